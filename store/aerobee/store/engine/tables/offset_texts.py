"""The text of consumerOffset.json, rendered again only where something has changed.

Owns: the text of each group's offsets on a topic, with what else is known of them. The event loop
provides copies of what has changed; a thread renders the text, as hundreds of thousands of offsets
would hold up the loop for seconds.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aerobee.store.engine.tables.last_changes import changes_text
from aerobee.store.format.json_config import JsonValue, render_text


class OffsetRow(NamedTuple):
    """A group's offsets on a topic, by queue id; these copies are never modified."""

    topic: str
    group: str
    offsets: Mapping[int, int]
    """Empty: there are none any more."""
    epochs: Mapping[int, int]
    changes: array[int]


class OffsetTexts:
    """One thread renders at a time, any thread."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence[OffsetRow]] = deque()
        # Sorted; each is the JSON of `topic@group`.
        self._names: list[str] = []
        self._offsets: dict[str, str] = {}
        self._epochs: dict[str, str] = {}
        self._changes: dict[str, str] = {}

    def keep(self, key: str, value: JsonValue) -> None:
        """An entry of the file that is not a group's, unchanged."""
        name = render_text(key)
        self._offsets[name] = render_text(value, depth=2)
        self._names = sorted(self._offsets)

    def take(self, rows: Sequence[OffsetRow]) -> None:
        """[loop] Take in what has changed since the last time."""
        self._waiting.append(rows)

    def update(self) -> None:
        """Render everything that was taken in."""
        added: list[str] = []
        while self._waiting:
            for row in self._waiting.popleft():
                name = render_text(f"{row.topic}@{row.group}")
                if row.offsets and name not in self._offsets:
                    added.append(name)
                _set(self._offsets, name, _numbers(row.offsets, "\n\t\t"))
                _set(self._epochs, name, _numbers(row.epochs))
                _set(self._changes, name, changes_text(row.changes))
        if added or len(self._names) != len(self._offsets):
            # Sorting a list that is almost sorted is fast.
            names = [name for name in dict.fromkeys(self._names + added) if name in self._offsets]
            names.sort()
            self._names = names

    def offsets(self) -> str:
        """The member `offsetTable`."""
        return self._section(self._offsets, "\n\t\t", "\n\t")

    def epochs(self) -> str:
        """The journal's member `epochs`."""
        return self._section(self._epochs, "\n\t\t\t", "\n\t\t")

    def changes(self) -> str:
        """The journal's member `changes`; empty if nothing is known."""
        return self._section(self._changes, "\n\t\t\t", "\n\t\t") if self._changes else ""

    def _section(self, texts: Mapping[str, str], indent: str, end: str) -> str:
        if not texts:
            return "{}"
        entries = ",".join(f"{indent}{name}:{texts[name]}" for name in self._names if name in texts)
        return f"{{{entries}{end}}}"


def _set(texts: dict[str, str], name: str, text: str) -> None:
    if text:
        texts[name] = text
    else:
        texts.pop(name, None)


def _numbers(by_queue: Mapping[int, int], end: str = "") -> str:
    if not by_queue:
        return ""
    listed = ",".join(f'"{queue_id}":{by_queue[queue_id]}' for queue_id in sorted(by_queue))
    return f"{{{listed}{end}}}"
