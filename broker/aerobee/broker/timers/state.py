"""What the journal of timers says up to one of its records, on every replica: a `JournalState`.

Owns: the progress that confirmed records bring, and its file. The file only saves reading the
journal from its last image on. It must not know more than the journal has: a move that a power
failure took back would be believed, and the message never delivered. So a file that is ahead of
the journal does not count, and an older one or the journal's own beginning takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from aerobee.broker.journal.records import UNKNOWN_IMAGE, ImageEnd, body_of, read_body
from aerobee.broker.timers.entries import TimerEntry, decode_entry, entry_text
from aerobee.broker.timers.pending import NUMBER_MAX
from aerobee.broker.timers.progress import DoneView, TimerProgress

_MAGIC: Final = "AQTP1"


@dataclass(frozen=True, slots=True)
class Place:
    """How much of the journal is known."""

    next_offset: int = 0
    image_position: int = 0
    is_whole: bool = True
    whole_from: int = 0
    """An image that begins here or later makes it whole again."""


class TimerJournalState:
    """On the loop."""

    encode = staticmethod(entry_text)
    decode = staticmethod(decode_entry)

    def __init__(self, progress: TimerProgress | None = None, place: Place | None = None) -> None:
        """Without arguments: that of a journal without records."""
        self.progress = progress or TimerProgress()
        self._place = place or Place()
        self._view: tuple[int, DoneView] | None = None

    def __repr__(self) -> str:
        return f"TimerJournalState({self._place}, {self.progress})"

    @property
    def next_offset(self) -> int:
        return self._place.next_offset

    @property
    def image_position(self) -> int:
        """A journal without records says everything: nobody has used timers here."""
        return self._place.image_position if self._place.next_offset else NUMBER_MAX

    @property
    def is_whole(self) -> bool:
        return self._place.is_whole

    def view(self) -> DoneView:
        """What is done as the records below `next_offset` say; for the index."""
        if self._view is None or self._view[0] != self.next_offset:
            self._view = self.next_offset, self.progress.view()
        return self._view[1]

    def apply(self, entries: Sequence[TimerEntry | ImageEnd], queue_offset: int) -> None:
        """The next record of the journal."""
        place = self._place
        assert queue_offset == place.next_offset, "records count in the order of the journal"
        image_position, is_whole = place.image_position, place.is_whole
        for entry in entries:
            if not isinstance(entry, ImageEnd):
                self.progress.apply((entry,))
            elif entry.first_offset >= place.whole_from:
                image_position, is_whole = entry.position, True
        self._place = Place(queue_offset + 1, image_position, is_whole, place.whole_from)

    def skip_to(self, queue_offset: int) -> None:
        """The records before this one are not there any more, or cannot be read. What is known
        stays true: nothing is ever undone."""
        assert queue_offset > self._place.next_offset
        self._place = Place(queue_offset, UNKNOWN_IMAGE, is_whole=False, whole_from=queue_offset)

    # ------------------------------------------------------------------------------ its file

    def encode_file(self) -> bytes:
        """Write it only when the journal's records below `next_offset` are on the disk."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], bytes]:
        """What encodes the file as it is now; [any thread]."""
        copy = TimerJournalState(self.progress.copy(), self._place)
        return copy._encode

    def _encode(self) -> bytes:
        place = self._place
        head = [place.next_offset, place.image_position, place.is_whole, place.whole_from]
        body = body_of(entry_text(entry) for entry in self.progress.image()).decode()
        text = f"{json.dumps(head)}\n{body}"
        return f"{_MAGIC} {crc32(text.encode()):08x}\n{text}\n".encode()


def file_reader(journal_end: int) -> Callable[[bytes], TimerJournalState]:
    """For `read_with_backup`: what reads the file where the journal has `journal_end` records."""

    def read(data: bytes) -> TimerJournalState:
        head, _, text = data.decode().partition("\n")
        text = text.removesuffix("\n")
        if head != f"{_MAGIC} {crc32(text.encode()):08x}":
            raise ValueError("the file of timers' progress is damaged")
        numbers, _, body = text.partition("\n")
        place = Place(*json.loads(numbers))
        if place.next_offset > journal_end:
            raise ValueError("the file of timers' progress is ahead of its journal")
        progress = TimerProgress()
        entries: list[Any] = read_body(body.encode(), decode_entry)
        progress.apply(entries)
        return TimerJournalState(progress, place)

    return read
