"""What the journal of timers says up to one of its records, on every replica: a `JournalState`.

Owns: the progress that confirmed records bring, and its file. A move that a power failure took back
would be believed, and the message never delivered: so a file that is ahead of the journal does not
count, and an older one or the journal's own beginning takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from aerobee.broker.journal.place import Place, encode_file, read_file
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.timers.entries import TimerEntry, decode_entry, entry_text
from aerobee.broker.timers.progress import DoneView, TimerProgress

PROGRESS_PATH: Final = "config/timerProgress"
_MAGIC: Final = "AQTP1"


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
        return self._place.whole_position

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
        place = self._place.after(entries, queue_offset)
        self.progress.apply(entry for entry in entries if not isinstance(entry, ImageEnd))
        self._place = place

    def skip_to(self, queue_offset: int) -> None:
        """The records before this one are not there any more, or cannot be read. What is known
        stays true: nothing is ever undone."""
        self._place = self._place.skipped_to(queue_offset)

    # ------------------------------------------------------------------------------ its file

    def snapshot(self) -> Callable[[], bytes]:
        """What encodes the file as it is now; [any thread]. Write it only when the journal's
        records below `next_offset` are on the disk."""
        progress, place = self.progress.copy(), self._place
        return lambda: encode_file(_MAGIC, place, map(entry_text, progress.image()))


def file_reader(journal_end: int) -> Callable[[bytes], TimerJournalState]:
    """For `read_with_backup`: what reads the file where the journal has `journal_end` records."""

    def read(data: bytes) -> TimerJournalState:
        entries: list[Any]
        place, entries = read_file(
            _MAGIC, data, decode_entry, journal_end=journal_end, subject="timers' progress"
        )
        progress = TimerProgress()
        progress.apply(entries)
        return TimerJournalState(progress, place)

    return read
