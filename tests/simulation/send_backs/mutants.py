"""Sending back with known errors, which the judge must notice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from aerobee.broker.journal.records import ImageEnd, body_of, read_body
from aerobee.broker.offsets.entries import Entry, decode_entry, entry_text
from aerobee.broker.offsets.sent_back import SentBack
from aerobee.broker.timers.acts import Standing
from aerobee.store.engine.producers.window import NEW
from tests.simulation.send_backs.scene import SendBackScene


class JournalsNoAttempt(SendBackScene):
    """Sometimes the journal is not told that a message was sent back."""

    def written(self, body: bytes) -> bytes:
        entries = cast("list[Entry | ImageEnd]", read_body(body, decode_entry))
        if self.chance.random() < 0.8:
            return body
        kept = [each for each in entries if not isinstance(each, SentBack)]
        return body_of(
            each.text() if isinstance(each, ImageEnd) else entry_text(each) for each in kept
        )


class LooksForNoCopy(SendBackScene):
    """A new master makes the owed copies without checking which of them exist."""

    @property
    def standing(self) -> Standing:
        return lambda name, first_sequence, count: NEW


MUTANTS: Mapping[str, Callable[[], type[SendBackScene]]] = MappingProxyType(
    {
        "attempt-not-journalled": lambda: JournalsNoAttempt,
        "repeated-copy": lambda: LooksForNoCopy,
    }
)
