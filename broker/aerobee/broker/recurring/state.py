"""The state of the schedules' journal up to one of its records, and a master's side of a term.

    intend -> the run is in the journal -> append its message in the same turn -> note_acted

A message is appended under the number of its run, as an idempotent producer of the broker's own. So
a new master looks at the newest run alone: every older one is in the log before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from aerobee.broker.journal.place import Place, Placed, encode_file, read_file
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.recurring.entries import decode_entry, entry_text
from aerobee.broker.recurring.schedules import (
    Acted,
    Passed,
    Progress,
    Put,
    Ran,
    Removed,
    Schedule,
    ScheduleEntry,
    Schedules,
    image_of,
)
from aerobee.store.format.progress_file import SCHEDULE_MAGIC, SCHEDULE_PROGRESS

PROGRESS_PATH: Final = f"config/{SCHEDULE_PROGRESS}"


class ScheduleJournalState(Placed):
    """A `JournalState`; on the loop."""

    encode = staticmethod(entry_text)
    decode = staticmethod(decode_entry)

    def __init__(self, schedules: Schedules | None = None, place: Place | None = None) -> None:
        """Without arguments: the state of a journal without records."""
        self.schedules = schedules or Schedules()
        super().__init__(place)

    def __repr__(self) -> str:
        return f"ScheduleJournalState({self._place}, {self.schedules})"

    def apply(self, entries: Sequence[ScheduleEntry | ImageEnd], queue_offset: int) -> None:
        """Apply the next record of the journal."""
        place = self._place.after(entries, queue_offset)
        self.schedules.apply(entry for entry in entries if not isinstance(entry, ImageEnd))
        self._place = place

    def skip_to(self, queue_offset: int) -> None:
        """The records before this one are gone or cannot be read. What they removed may be known
        here still, so all is forgotten; the image has it."""
        self.schedules = Schedules()
        self._place = self._place.skipped_to(queue_offset)

    def snapshot(self) -> Callable[[], bytes]:
        """A callable that encodes the file as of now; call it on [any thread]. Write the file only
        when the journal's records below `next_offset` are on disk."""
        schedules, place = self.schedules.copy(), self._place
        return lambda: encode_file(
            SCHEDULE_MAGIC, place, map(entry_text, image_of(lambda: schedules))
        )


def file_reader(journal_end: int) -> Callable[[bytes], ScheduleJournalState]:
    """For `read_with_backup`: reads the file, given that the journal has `journal_end` records."""

    def read(data: bytes) -> ScheduleJournalState:
        entries: list[Any]
        place, entries = read_file(
            SCHEDULE_MAGIC, data, decode_entry, journal_end=journal_end, subject="schedules"
        )
        schedules = Schedules()
        schedules.apply(entries)
        return ScheduleJournalState(schedules, place)

    return read


class EntryWriter(Protocol):
    """What a term needs of `JournalWriter`."""

    def add(self, entry: ScheduleEntry | ImageEnd, *, is_durable: bool = True) -> Any: ...

    def flush(self) -> None: ...


class ScheduleTerm:
    """A `JournalTerm`; on the loop."""

    def __init__(self, state: ScheduleJournalState, writer: EntryWriter) -> None:
        self._state = state
        self._writer = writer
        self.schedules = state.schedules.copy()
        """Once everything waiting is confirmed. Replaced by another object after something was
        dropped."""

    def put(self, schedule: Schedule) -> Any:
        """Returns the writer's future: done when that is confirmed and on disk. Raises
        AerobeeError."""
        return self._add(Put(schedule), is_durable=True)

    def remove(self, name: str) -> Any:
        """As `put`."""
        return self._add(Removed(name), is_durable=True)

    def note_passed(self, name: str, progress: Progress) -> None:
        """Runs were missed. Raises AerobeeError."""
        self._add(Passed(name, progress), is_durable=False)

    def intend(self, schedule: Schedule, time_ms: int, queue_id: int, progress: Progress) -> Ran:
        """On return the run is in the journal, though not confirmed. Append its message, then call
        `note_acted`.

        Raises:
            AerobeeError: it is not in the journal, and nothing is done.
        """
        self._writer.flush()
        schedules = self.schedules
        assert schedules.open is None, "one run after the other"
        ran = Ran(schedules.next_number, schedule.name, time_ms, queue_id, progress)
        # It need not be on disk first: the message follows it in the log.
        done = self._add(ran, is_durable=False)
        self._writer.flush()
        if done.done() and (error := done.exception()) is not None:
            raise error
        return ran

    def note_acted(self) -> None:
        """The open run is in the log. Raises AerobeeError."""
        if (ran := self.schedules.open) is not None:
            self._add(Acted(ran.number + 1), is_durable=False)

    def _add(self, entry: ScheduleEntry, *, is_durable: bool) -> Any:
        done = self._writer.add(entry, is_durable=is_durable)
        self.schedules.apply((entry,))
        return done

    def counted(self, entries: Sequence[ScheduleEntry | ImageEnd]) -> None:
        """Nothing to do: it is already in effect here."""

    def dropped(self, waiting: Iterable[ScheduleEntry | ImageEnd]) -> None:
        """Undo what was not appended, as if it had never been added."""
        self.schedules = self._state.schedules.copy()
        self.schedules.apply(entry for entry in waiting if not isinstance(entry, ImageEnd))

    def image(self) -> Iterator[ScheduleEntry]:
        return image_of(lambda: self.schedules)


class ScheduleTerms:
    """A `JournalClient`: one `ScheduleTerm` for each term as master."""

    def __init__(
        self,
        state: ScheduleJournalState,
        *,
        on_begin: Callable[[ScheduleTerm], None],
        on_end: Callable[[], None],
    ) -> None:
        """`on_begin` must not await anything. `on_end`: nothing more is sent."""
        self._state = state
        self._on_begin = on_begin
        self._on_end = on_end

    def begin(self, writer: EntryWriter, epoch: int, *, is_unclean: bool) -> ScheduleTerm:
        """Everything in the log is confirmed and applied."""
        term = ScheduleTerm(self._state, writer)
        self._on_begin(term)
        return term

    def end(self) -> None:
        self._on_end()
