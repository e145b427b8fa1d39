"""One replica's offset journal over its own log and table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.members import Member, Subscription
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.run_record import FIRST_RECORD, RunRecord
from aerobee.broker.journal.records import ImageEnd
from aerobee.broker.offsets.entries import Entry, entry_text
from aerobee.broker.offsets.journal import OffsetJournal, RunIdentity
from aerobee.broker.offsets.merge import Change, ChangeKind, Standing
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from tests.support.journal_log import MemoryLog
from tests.support.waiting import until

KEY = GroupQueue("g", "t", 0)
KEYS = [GroupQueue(group, "t", queue_id) for group in ("g", "h") for queue_id in range(3)]
NEVER = 1 << 60


class Led(NamedTuple):
    """A term as master, as passed to a journal."""

    epoch: int
    is_unclean: bool = False


class Replica:
    """One replica's journal over its own log and table."""

    def __init__(
        self,
        log: MemoryLog,
        table: ConsumerOffsetTable | None = None,
        *,
        broker_id: int = 0,
        boot_id: str = "boot",
        previous: RunRecord = FIRST_RECORD,
        image_interval_bytes: int = NEVER,
    ) -> None:
        self.log = log
        self.clock = ManualClock()
        self.table = ConsumerOffsetTable() if table is None else table
        self.state = OffsetJournalState(self.table, journal_end=log.records_end)
        self.saved: list[RunRecord] = []
        self.resets: list[GroupQueue] = []
        self.groups = CurrentRun(self._save)
        self.journal = OffsetJournal(
            self.state,
            log,
            self.groups,
            self.clock,
            run=RunIdentity(boot_id, broker_id, previous, run_number_min=1),
            image_interval_bytes=image_interval_bytes,
            on_reset=self.resets.append,
            on_term=lambda held_back_s: None,
        )

    async def _save(self, record: bytes) -> None:
        self.saved.append(RunRecord.decode(record))

    def commit(
        self, offset: int, lease_epoch: int = 0, key: GroupQueue = KEY
    ) -> asyncio.Future[None]:
        change = Change(ChangeKind.COMMIT, offset, lease_epoch)
        return self.journal.writer().change(key, change, "c")

    def reset(self, offset: int, granted: int = 0, key: GroupQueue = KEY) -> asyncio.Future[None]:
        return self.journal.writer().change(key, Change(ChangeKind.RESET, offset, granted))

    def offset(self, key: GroupQueue = KEY) -> int | None:
        return self.table.query(*key)

    def standings(self) -> dict[GroupQueue, Standing | None]:
        return {key: self.state.standing(key) for key in KEYS}

    async def lead(self, epoch: int) -> None:
        self.take_role(epoch)
        await until(lambda: self.journal.is_ready)

    def take_role(self, epoch: int | None, *, is_unclean: bool = False) -> None:
        """Master under this epoch, or slave."""
        if epoch is None:
            self.journal.end()
        else:
            self.journal.begin(Led(epoch, is_unclean))


@asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(replica.journal.run()) for replica in replicas]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def stored(table: ConsumerOffsetTable) -> ConsumerOffsetTable:
    """The table as reloaded from its file."""
    return ConsumerOffsetTable.load(table.snapshot_bytes(1))


def any_text(entry: Entry | ImageEnd) -> str:
    """A journal entry as JSON, the client's or the journal's own."""
    return entry.text() if isinstance(entry, ImageEnd) else entry_text(entry)


async def nothing() -> None:
    return None


def cut_below(log: MemoryLog, records: int) -> MemoryLog:
    """A new replica's copy of a log that begins later."""
    copy = log.copy()
    copy.remove_below(records)
    return copy


def join(replica: Replica, client_id: str) -> None:
    replica.groups.members.join(
        Member("g", client_id, "1", (Subscription("t"),), False, 8.0, 1_000.0)
    )
