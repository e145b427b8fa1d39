"""State derived from a replica's log: queues' ends, producers' windows, the groups' offsets.

The windows and the offset journal's state are the real ones. As there, the appended log determines
queues and windows, the confirmed one offsets; a snapshot and the log after it give the same state
after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Self

from aerobee.broker.journal.records import UNKNOWN_IMAGE, ImageEnd
from aerobee.broker.offsets.entries import Entry
from aerobee.broker.offsets.opening import cut_to_queues
from aerobee.broker.offsets.state import OffsetJournalState, cut_mark
from aerobee.store.engine.producers.producer_windows import ProducerWindows, WindowRow
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable, JournalMark
from aerobee.store.format.producer_number import ProducerRun
from tests.simulation.cluster.log import JOURNAL_QUEUE, Folder, QueueId, Record

TOPIC = "T"


class Message(NamedTuple):
    """What a producer sent, and its place in its queue."""

    message_id: int
    producer_id: int
    sequence: int


class Snapshot(NamedTuple):
    """Files that spare a restart the walk over the whole log."""

    position: int
    """The windows are those of the log up to here."""
    windows: tuple[WindowRow, ...]
    table: bytes

    @classmethod
    def of_nothing(cls, position: int) -> Self:
        """For a log that restarts there, as `forget_offsets` leaves it."""
        table, is_whole = ConsumerOffsetTable(), position == 0
        table.forget(JournalMark(0, 0 if is_whole else UNKNOWN_IMAGE, is_whole))
        return cls(position, (), table.snapshot_bytes(0))


class JournalRecord(NamedTuple):
    """A record that is in the log and not applied."""

    end: int
    number: int
    entries: tuple[Entry | ImageEnd, ...]


class Derived:
    __slots__ = ("_folder", "_unsaved", "_waiting", "journal", "queue_ends", "table", "windows")

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._unsaved: Snapshot | None = None
        """Waiting for the log."""
        snapshot: Snapshot | None = folder.snapshot
        log = folder.log
        self.queue_ends = dict(folder.queue_bases)
        for record in log.records:
            self.queue_ends[record.queue_id] = record.queue_offset + 1
        self.windows = ProducerWindows()
        self.table = ConsumerOffsetTable()
        position = log.begin
        if snapshot is not None:
            self.table = ConsumerOffsetTable.load(snapshot.table)
            self.windows.restore(snapshot.windows)
            position = snapshot.position
            if position > log.end:
                # Rewritten before anything is appended, as recovery does: positions of lost records
                # must not apply to the records that replace them.
                self.windows.cut(
                    lambda topic, queue_id: self.queue_ends.get(_place(topic, queue_id), 0)
                )
                rows = tuple(self.windows.take_all())
                folder.snapshot = snapshot._replace(position=log.end, windows=rows)
        journal_end = self.queue_ends.get(JOURNAL_QUEUE, 0)
        ahead = cut_to_queues(
            self.table,
            self._end_of,
            journal_end=journal_end,
            is_whole_log=log.begin == 0,
        )
        if cut_mark(self.table, journal_end) or ahead:
            folder.snapshot = folder.snapshot._replace(table=self.table.snapshot_bytes(0))
        self.journal = OffsetJournalState(self.table, journal_end=journal_end)
        self._waiting: deque[JournalRecord] = deque()
        for start, record in zip(log.starts, log.records, strict=True):
            if record.kind == "journal" and record.queue_offset >= self.journal.next_offset:
                end = start + record.size
                self._waiting.append(JournalRecord(end, record.queue_offset, record.data))
            elif start >= position:
                self._number(record)

    def _end_of(self, topic: str, queue_id: int) -> int | None:
        """The members of these groups commit offsets of no messages in the plain topic."""
        return None if topic == TOPIC else self.queue_ends.get(_place(topic, queue_id), 0)

    @property
    def has_applied_all(self) -> bool:
        return not self._waiting

    def appended(self, record: Record, end: int) -> None:
        """The log has grown by this record."""
        self.queue_ends[record.queue_id] = record.queue_offset + 1
        self._number(record)
        if record.kind == "journal":
            self._waiting.append(JournalRecord(end, record.queue_offset, record.data))

    def apply(self, confirmed_end: int) -> Iterator[JournalRecord]:
        """Apply the journal's confirmed records, one after another."""
        while self._waiting and self._waiting[0].end <= confirmed_end:
            record = self._waiting.popleft()
            if record.number > self.journal.next_offset:
                self.journal.skip_to(record.number)
            self.journal.apply(record.entries, record.number)
            yield record

    def save(self, *, before_the_log: bool) -> None:
        """Write the snapshot; if messages were sent back, after the log that it is derived from, as
        in `flush_what_was_sent_back`."""
        if self._unsaved is not None:
            return
        log = self._folder.log
        snapshot = Snapshot(log.end, tuple(self.windows.take_all()), self.table.snapshot_bytes(0))
        if before_the_log or not self.journal.next_copy:
            self._folder.snapshot = snapshot
        else:
            self._unsaved = snapshot
            self.flushed()

    def flushed(self) -> None:
        """More of the log is on disk."""
        if self._unsaved is not None and self._unsaved.position <= self._folder.log.synced_end:
            self._folder.snapshot, self._unsaved = self._unsaved, None

    def _number(self, record: Record) -> None:
        """Count the record for its producer, if it has one."""
        run, place = None, record.queue_id
        if record.kind == "message":
            message: Message = record.data
            run = ProducerRun(message.producer_id, message.sequence, 1)
        elif record.kind == "stored":
            run = record.data.run
        if run is not None:
            name = place if isinstance(place, tuple) else (TOPIC, place)
            self.windows.appended(*name, (run,), record.queue_offset, 0)


def _place(topic: str, queue_id: int) -> QueueId:
    return queue_id if topic == TOPIC else (topic, queue_id)
