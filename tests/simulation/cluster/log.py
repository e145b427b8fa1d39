"""A simulated replica's folder: records with byte offsets, and the small files.

A record is a single object, however many logs have it: two logs are byte-identical where they have
the same objects at the same offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from typing import Any

from aerobee.broker.groups.run_record import FIRST_RECORD, RunRecord
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.state_file import ReplicaState
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.testing.simulated_disk import SimulatedDisk

JOURNAL_QUEUE = -1
"""The queue of the offset journal's records; messages have queues from 0 on."""

QueueId = int | QueueName
"""Records with bytes are in queues named as in a store."""


class Record:
    """One record of the log; `kind` is its meaning to the broker, `data` belongs to the kind."""

    __slots__ = ("data", "kind", "queue_id", "queue_offset", "size")

    def __init__(
        self, size: int, kind: str, data: Any, queue_id: QueueId, queue_offset: int
    ) -> None:
        self.size = size
        self.kind = kind
        self.data = data
        self.queue_id = queue_id
        self.queue_offset = queue_offset

    def __repr__(self) -> str:
        return f"{self.kind}({self.data})"


class Log:
    """A sequence of records; what is below `synced_end` survives a power failure."""

    __slots__ = ("begin", "end", "records", "starts", "synced_end")

    def __init__(self) -> None:
        self.begin = 0
        self.end = 0
        self.synced_end = 0
        self.starts: list[int] = []
        self.records: list[Record] = []

    def __repr__(self) -> str:
        return f"log {self.begin} to {self.end}, synced to {self.synced_end}"

    def append(self, record: Record) -> int:
        """Returns the record's offset."""
        start = self.end
        self.starts.append(start)
        self.records.append(record)
        self.end = start + record.size
        return start

    def index(self, position: int) -> int:
        """The index of the first record at or after `position`."""
        return bisect_left(self.starts, position)

    def record_at(self, start: int) -> Record | None:
        index = bisect_left(self.starts, start)
        if index < len(self.starts) and self.starts[index] == start:
            return self.records[index]
        return None

    def boundary(self, position: int) -> int:
        """The end of the last complete record that ends at or before `position`."""
        index = bisect_right(self.starts, position) - 1
        if index < 0:
            return self.begin
        end = self.starts[index] + self.records[index].size
        return end if end <= position else self.starts[index]

    def cut(self, end: int) -> None:
        """Drop everything from `end` on; what is left is on disk."""
        index = bisect_left(self.starts, end)
        del self.starts[index:], self.records[index:]
        self.end = end
        self.synced_end = min(self.synced_end, end)

    def drop_before(self, position: int) -> None:
        """Begin at `position`, the start of a record."""
        index = bisect_left(self.starts, position)
        del self.starts[:index], self.records[:index]
        self.begin = position

    def begin_at(self, position: int) -> None:
        """Empty the log, to continue at `position`."""
        self.starts.clear()
        self.records.clear()
        self.begin = self.end = self.synced_end = position


class Folder:
    """Everything that a replica has on its disk."""

    __slots__ = (
        "boots",
        "broker_id",
        "hangs",
        "has_lost_power",
        "history",
        "is_closed",
        "is_old_copy",
        "lease_file",
        "log",
        "pop_file",
        "queue_bases",
        "snapshot",
        "state",
        "timer_disk",
        "timer_file",
        "verified_end",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log = Log()
        self.history = EpochHistory()
        self.state: ReplicaState | None = None
        self.boots = 1
        self.hangs = False
        """No request to the disk completes."""
        self.is_closed = True
        """The last run stopped cleanly."""
        self.has_lost_power = False
        """Since it was last opened."""
        self.is_old_copy = False
        """It was put back, and this has not been detected yet."""
        self.queue_bases: dict[QueueId, int] = {}
        """Where queues begin, after retention has removed records."""
        self.lease_file: RunRecord = FIRST_RECORD
        """Synced on every write."""
        self.snapshot: Any = None
        """Tables derived from the log's beginning, as last written."""
        self.timer_file: bytes | None = None
        """Which waiting messages are done."""
        self.timer_disk = SimulatedDisk()
        """For the index of waiting messages."""
        self.pop_file: bytes | None = None
        """Messages in flight by POP."""
        self.verified_end = 0
        """Used by the checks: compared with the confirmed log up to here."""

    @property
    def opened_state(self) -> ReplicaState:
        """The state after opening."""
        assert self.state is not None, "it was opened"
        return self.state

    def drop_before(self, position: int) -> None:
        """Retention: the log begins at `position`, the start of a record."""
        log = self.log
        for record in log.records[: log.index(position)]:
            self.queue_bases[record.queue_id] = record.queue_offset + 1
        log.drop_before(position)

    def forget_timers(self) -> None:
        """The log restarts: what was known comes back from what is copied."""
        self.timer_file, self.timer_disk, self.pop_file = None, SimulatedDisk(), None

    def close(self) -> None:
        """Everything is on disk, and the state says so."""
        self.log.synced_end = self.log.end
        self.state = replace(self.opened_state, closed_end=self.log.end)
        self.is_closed = True

    def copied(self) -> Folder:
        """A copy of what is on disk now, even of a running broker."""
        copy = Folder(self.broker_id)
        log, own = copy.log, self.log
        index = own.index(own.synced_end)
        log.starts, log.records = own.starts[:index], own.records[:index]
        log.begin, log.end = own.begin, own.boundary(own.synced_end)
        log.synced_end = log.end
        copy.history, copy.state, copy.is_closed = self.history, self.state, self.is_closed
        copy.queue_bases, copy.lease_file = dict(self.queue_bases), self.lease_file
        copy.timer_file, copy.timer_disk = self.timer_file, self.timer_disk.copy()
        copy.pop_file = self.pop_file
        copy.snapshot, copy.boots = self.snapshot, self.boots + 1
        copy.is_old_copy = True
        return copy

    def lose_power(self, keep: int) -> None:
        """Bytes up to `keep` and whatever was synced survive."""
        log = self.log
        end = log.boundary(min(log.end, max(log.synced_end, keep)))
        log.cut(max(end, log.synced_end))
        log.synced_end = log.end
        self.has_lost_power = True
        self.boots += 1
        self.verified_end = min(self.verified_end, log.end)
