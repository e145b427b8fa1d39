"""The state of the timer journal up to one of its records, on every replica: a `JournalState`.

Owns: the progress according to confirmed records, and its file. If a file claimed a move that a
power failure undid, the message would never be delivered: so a file that is ahead of the journal is
ignored in favour of an older one or the journal's beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from aerobee.broker.journal.place import Place, Placed, encode_file, read_file
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.timers.entries import TimerEntry, decode_entry, entry_text
from aerobee.broker.timers.progress import DoneView, TimerProgress
from aerobee.store.format.progress_file import TIMER_MAGIC, TIMER_PROGRESS

PROGRESS_PATH: Final = f"config/{TIMER_PROGRESS}"


class TimerJournalState(Placed):
    """On the loop."""

    encode = staticmethod(entry_text)
    decode = staticmethod(decode_entry)

    def __init__(self, progress: TimerProgress | None = None, place: Place | None = None) -> None:
        """Without arguments: the state of a journal without records."""
        self.progress = progress or TimerProgress()
        super().__init__(place)
        self._view: tuple[int, DoneView] | None = None

    def __repr__(self) -> str:
        return f"TimerJournalState({self._place}, {self.progress})"

    def view(self) -> DoneView:
        """What is done according to the records below `next_offset`; for the index."""
        if self._view is None or self._view[0] != self.next_offset:
            self._view = self.next_offset, self.progress.view()
        return self._view[1]

    def apply(self, entries: Sequence[TimerEntry | ImageEnd], queue_offset: int) -> None:
        """Apply the next record of the journal."""
        place = self._place.after(entries, queue_offset)
        self.progress.apply(entry for entry in entries if not isinstance(entry, ImageEnd))
        self._place = place

    def skip_to(self, queue_offset: int) -> None:
        """The records before this one are gone or cannot be read. What is known still holds:
        nothing is ever undone."""
        self._place = self._place.skipped_to(queue_offset)

    # ------------------------------------------------------------------------------ its file

    def snapshot(self) -> Callable[[], bytes]:
        """A callable that encodes the file as of now; call it on [any thread]. Write the file only
        when the journal's records below `next_offset` are on disk."""
        progress, place = self.progress.copy(), self._place
        return lambda: encode_file(TIMER_MAGIC, place, map(entry_text, progress.image()))


def file_reader(journal_end: int) -> Callable[[bytes], TimerJournalState]:
    """For `read_with_backup`: reads the file, given that the journal has `journal_end` records."""

    def read(data: bytes) -> TimerJournalState:
        entries: list[Any]
        place, entries = read_file(
            TIMER_MAGIC, data, decode_entry, journal_end=journal_end, subject="timers' progress"
        )
        progress = TimerProgress()
        progress.apply(entries)
        return TimerJournalState(progress, place)

    return read
