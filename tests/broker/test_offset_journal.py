"""The offset journal over a log whose confirmed end the test moves: masters, slaves, and the change
from one to the other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from aerobee.broker.groups.consumer_groups import Member, Subscription
from aerobee.broker.groups.group_state import GroupState
from aerobee.broker.groups.lease_journal import FIRST_RECORD, LeaseRecord
from aerobee.broker.groups.queue_leases import COUNTER_BITS, Lease, QueueKey
from aerobee.broker.offsets import journal, journal_writer
from aerobee.broker.offsets.journal import OffsetJournal, RunIdentity
from aerobee.broker.offsets.journal_records import (
    LEASE_PART_BYTES,
    OffsetEntry,
    body_of,
    decode_body,
    entry_text,
    lease_entries,
)
from aerobee.broker.offsets.journal_state import OffsetJournalState
from aerobee.broker.offsets.merge import Change, ChangeKind, Standing
from aerobee.broker.store.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import (
    Busy,
    MessageTooLarge,
    MqError,
    NotMaster,
    NotWritable,
    ReplicaBehind,
)
from tests.support.journal_log import MemoryLog

KEY = QueueKey("g", "t", 0)
KEYS = [QueueKey(group, "t", queue_id) for group in ("g", "h") for queue_id in range(3)]
NEVER = 1 << 60


@dataclass
class Role:
    master_epoch: int | None = None
    unclean: set[int] = field(default_factory=set)

    def is_unclean(self, epoch: int) -> bool:
        return epoch in self.unclean


class Replica:
    """One replica's journal over its own log and table."""

    def __init__(
        self,
        log: MemoryLog,
        table: ConsumerOffsetTable | None = None,
        *,
        broker_id: int = 0,
        boot_id: str = "boot",
        previous: LeaseRecord = FIRST_RECORD,
        image_interval_bytes: int = NEVER,
    ) -> None:
        self.log = log
        self.table = ConsumerOffsetTable() if table is None else table
        self.state = OffsetJournalState(self.table, journal_end=log.records_end)
        self.role = Role()
        self.saved: list[LeaseRecord] = []
        self.resets: list[QueueKey] = []
        self.groups = GroupState(self._save)
        self.journal = OffsetJournal(
            self.state,
            log,
            self.groups,
            ManualClock(),
            roles=self.role,
            run=RunIdentity(boot_id, broker_id, previous, run_number_min=1),
            image_interval_bytes=image_interval_bytes,
            on_reset=self.resets.append,
            on_term=lambda: None,
        )
        self.groups.attach(self.journal.write_lease)

    async def _save(self, record: LeaseRecord) -> None:
        self.saved.append(record)

    def commit(
        self, offset: int, lease_epoch: int = 0, key: QueueKey = KEY
    ) -> asyncio.Future[None]:
        change = Change(ChangeKind.COMMIT, offset, lease_epoch)
        return self.journal.writer().change(key, change, "c")

    def reset(self, offset: int, granted: int = 0, key: QueueKey = KEY) -> asyncio.Future[None]:
        return self.journal.writer().change(key, Change(ChangeKind.RESET, offset, granted))

    def offset(self, key: QueueKey = KEY) -> int | None:
        return self.table.query(*key)

    def standings(self) -> dict[QueueKey, Standing | None]:
        return {key: self.state.standing(key) for key in KEYS}

    async def lead(self, epoch: int) -> None:
        self.role.master_epoch = epoch
        await self.journal.begin_term(epoch)

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not happened():
                await asyncio.sleep(0.001)


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
    """The table as its file brings it back."""
    return ConsumerOffsetTable.load(table.snapshot_bytes(1))


async def test_a_commit_counts_when_its_record_is_confirmed_and_not_before() -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        done = master.commit(5)
        await asyncio.sleep(0.02)
        assert (done.done(), master.offset()) == (False, None)
        assert master.journal.writer().standing(KEY) == Standing(5)
        master.log.confirm()
        await done
        assert master.offset() == 5


async def test_what_must_be_durable_waits_for_the_disk_too() -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        done = master.journal.writer().change(KEY, Change(ChangeKind.RESET, 5, 0), is_durable=True)
        await asyncio.sleep(0.01)
        master.log.confirm()
        await asyncio.sleep(0.01)
        assert (done.done(), master.offset(), master.resets) == (False, 5, [KEY])
        master.log.flush()
        await done


async def test_commits_of_one_turn_share_a_record_and_those_under_load_too() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await asyncio.gather(*(master.commit(1, key=QueueKey("g", "t", n)) for n in range(100)))
        assert len(master.log.bodies) == 1
        for number in range(20):
            master.commit(2, key=QueueKey("g", "t", number))
            await asyncio.sleep(0)
        await master.commit(3)
        assert len(master.log.bodies) < 15


async def test_a_record_is_no_longer_than_64_kib() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await asyncio.gather(
            *(master.commit(1, key=QueueKey("g" * 100, "t", n)) for n in range(2_000))
        )
        assert max(map(len, master.log.bodies)) <= 65_538
        assert sum(len(decode_body(body)) for body in master.log.bodies) == 2_000


async def test_too_much_that_waits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "WAITING_BYTES_MAX", 2_000)
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        waiting = [master.commit(number) for number in range(1, 4)]
        with pytest.raises(Busy, match="wait for the log"):
            master.commit(9)
        await asyncio.sleep(0.01)
        master.log.confirm()
        await asyncio.gather(*waiting)
        assert master.journal.waiting_bytes == 0
        master.commit(9)


async def test_what_the_log_refuses_leaves_no_trace() -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        first = master.commit(5)
        await asyncio.sleep(0.01)
        master.log.refusal = NotWritable("the disk is too full")
        refused = [master.commit(8), master.commit(1, key=KEYS[1])]
        for each in refused:
            with pytest.raises(NotWritable):
                await each
        writer = master.journal.writer()
        assert (writer.standing(KEY), writer.standing(KEYS[1])) == (Standing(5), None)
        master.log.refusal = None
        again = master.commit(6)
        await asyncio.sleep(0.01)
        master.log.confirm()
        await asyncio.gather(first, again)
        assert (master.offset(), master.offset(KEYS[1])) == (6, None)
        assert master.journal.waiting_bytes == 0


@pytest.mark.parametrize("failure", [MessageTooLarge("too large"), ValueError("a defect")])
async def test_whatever_fails_in_the_writers_turn_reaches_those_who_wait(
    failure: Exception,
) -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        master.log.refusal = failure
        refused = [master.commit(8), master.commit(1, key=KEYS[1])]
        async with asyncio.timeout(1):
            for each in refused:
                with pytest.raises(MqError, match=r"too large|a defect"):
                    await each
            with pytest.raises(MqError):
                await master.groups.promise_session(1_000)
        assert master.journal.waiting_bytes == 0
        # A clean end that cannot be written down ends the term all the same.
        await master.journal.end_term(is_clean=True)
        master.log.refusal = None
        await master.lead(2)
        await master.commit(6)
        assert master.offset() == 6


async def test_a_slave_follows_what_is_confirmed_and_takes_over_where_the_master_was() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.commit(3, 5)
        await master.reset(1, 5)
        await master.commit(2, 6)
        slave = Replica(master.log.copy(), broker_id=1)
        await master.commit(4, 6)
    slave.log.confirmed_end = slave.log.ends[1]
    async with running(slave):
        await slave.until(lambda: slave.offset() == 1)
        with pytest.raises(NotMaster):
            slave.journal.writer()
        slave.journal.check_known()
        beginning = asyncio.create_task(slave.lead(2))
        await asyncio.sleep(0.03)
        assert not beginning.done(), "what is in its log may be cut until it is confirmed"
        with pytest.raises(ReplicaBehind):
            slave.journal.writer()
        with pytest.raises(ReplicaBehind):
            slave.journal.check_known()
        slave.log.confirm()
        await beginning
        assert slave.state.standing(KEY) == Standing(2, 6), "the 4 was never confirmed"
        slave.log.is_sync = True
        await slave.commit(3, 7)
        assert slave.offset() == 3


async def test_a_term_that_ends_tells_nobody_that_his_commit_counts() -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        waiting = master.commit(5)
        await asyncio.sleep(0.01)
        unwritten = master.commit(6)
        await master.journal.end_term()
        master.log.confirm()
        for each in (waiting, unwritten):
            with pytest.raises(NotMaster, match="may count or not"):
                await each
        with pytest.raises(NotMaster):
            master.commit(7)


async def test_a_term_that_ends_before_it_could_begin_is_given_up() -> None:
    master = Replica(MemoryLog(is_sync=False, bodies=[body_of([])], ends=[10]))
    async with running(master):
        master.role.master_epoch = 1
        beginning = asyncio.create_task(master.journal.begin_term(1))
        await asyncio.sleep(0.01)
        master.role.master_epoch = None
        await master.journal.end_term()
        with pytest.raises(NotMaster):
            await beginning


async def test_roles_begin_and_end_terms_by_themselves_and_a_newer_epoch_changes_nothing() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        master.role.master_epoch = 0
        await master.until(lambda: master.journal.is_ready)
        writer = master.journal.writer()
        done = master.commit(5)
        master.role.master_epoch = 4
        await done
        await asyncio.sleep(0.02)
        assert master.journal.writer() is writer
        master.role.master_epoch = None
        await master.until(lambda: not master.journal.is_ready)


async def test_after_a_clean_end_the_next_master_takes_members_and_leases_over() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(8_000)
        join(master, "a")
        lease = master.groups.leases.acquire(KEY, "a")
        assert lease is not None
        assert lease.epoch >> COUNTER_BITS == 1
        await master.journal.end_term(is_clean=True)
        assert not list(master.groups.groups.all_members())
        await asyncio.sleep(0.02)
        assert not master.journal.is_ready, "a term that was ended does not go on by itself"
        slave = Replica(master.log.copy(), broker_id=1, boot_id="another")
        slave.log.confirm()
        async with running(slave):
            await slave.lead(2)
            assert slave.groups.leases.holder(KEY) == lease
            assert slave.groups.leases.grace_end_s is None
        # Called off: the old master goes on.
        await master.journal.begin_term(1)
        assert master.groups.leases.holder(KEY) == lease


async def test_a_clean_end_that_is_called_off_is_followed_by_a_run_of_its_own() -> None:
    """The record may count after all; whoever is granted a queue then is in no other."""
    log = MemoryLog()
    master = Replica(log)
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(8_000)
        join(master, "a")
        lease = master.groups.leases.acquire(KEY, "a")
        assert lease is not None
        log.is_sync = False
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await master.journal.end_term(is_clean=True)
        with pytest.raises(NotMaster):
            master.journal.writer()
        master.journal.go_on()
        log.is_sync = True
        log.confirm()
        log.flush()
        await master.until(lambda: master.journal.is_ready)
        assert master.groups.leases.holder(KEY) == lease, "as if the broker had restarted"
        await master.groups.promise_session(8_000)
        assert master.state.lease is not None
        assert (master.state.lease.run_number, master.state.lease.is_clean) == (2, False)
        join(master, "b")
        master.groups.leases.release(KEY, "a", lease.epoch)
        assert master.groups.leases.acquire(KEY, "b") is not None
    slave = Replica(log.copy(), broker_id=1)
    slave.log.confirm()
    slave.log.is_sync = True
    async with running(slave):
        await slave.lead(2)
        assert slave.groups.leases.grace_end_s is not None
        join(slave, "c")
        assert slave.groups.leases.acquire(KEY, "c") is None


async def test_nothing_is_granted_while_the_clean_record_is_written() -> None:
    log = MemoryLog()
    master = Replica(log)
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(8_000)
        join(master, "a")
        other = KEYS[1]
        assert master.groups.leases.acquire(other, "a") is not None
        assert master.groups.leases.acquire(other, "b") is None
        log.is_sync = False
        ending = asyncio.create_task(master.journal.end_term(is_clean=True))
        await asyncio.sleep(0.01)
        with pytest.raises(NotMaster, match="leaves its groups"):
            master.journal.check_granting()
        with pytest.raises(NotMaster, match="leaves its groups"):
            await run_to_its_wait(ending, master.groups.promise_session(9_000), log)
        assert master.groups.leases.acquire(KEY, "a") is None
        assert master.groups.leases.drop_member("g", "a")[1] == []
        await ending


async def run_to_its_wait(
    ending: asyncio.Task[None], promise: Coroutine[Any, Any, None], log: MemoryLog
) -> None:
    """The promise waits for its turn behind the record of the end."""
    promised = asyncio.create_task(promise)
    await asyncio.sleep(0.01)
    assert not ending.done()
    assert not promised.done()
    log.confirm()
    log.flush()
    await promised


async def test_a_promise_of_the_run_before_is_none_of_the_next_one() -> None:
    """Its record was written; the next run has not written its own yet."""
    master = Replica(MemoryLog())
    let_go = asyncio.Event()

    async def save_slowly(record: LeaseRecord) -> None:
        await let_go.wait()

    async with running(master):
        await master.lead(1)
        master.groups.save = save_slowly
        promise = asyncio.create_task(master.groups.promise_session(8_000))
        await asyncio.sleep(0.02)
        await master.journal.end_term()
        await master.lead(2)
        let_go.set()
        with pytest.raises(NotMaster):
            await promise
        await master.groups.promise_session(8_000)
        assert master.state.lease is not None
        assert master.state.lease.epoch == 2


async def test_after_a_crash_the_next_master_waits_but_believes_what_members_show() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(8_000)
        join(master, "a")
        lease = master.groups.leases.acquire(KEY, "a")
        assert lease is not None
    for is_unclean, confirmed in ((False, 1), (True, 0)):
        slave = Replica(master.log.copy(), broker_id=1, boot_id="another")
        slave.log.confirm()
        if is_unclean:
            slave.role.unclean.add(2)
        async with running(slave):
            slave.role.master_epoch = 2
            await slave.until(lambda: slave.journal.is_ready)  # noqa: B023
            leases = slave.groups.leases
            assert leases.grace_end_s == ManualClock().monotonic_s() + 8
            assert leases.latest_epoch > lease.epoch
            assert len(leases.resume("g", "a", [(KEY, lease.epoch)])[0]) == confirmed


async def test_a_run_without_sessions_leaves_the_journal_as_it_is() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.journal.end_term(is_clean=True)
    assert master.log.bodies == []
    assert [record.is_clean for record in master.saved] == [True]


async def test_a_run_whose_record_was_lost_never_shares_its_number() -> None:
    """An unclean election loses the record of the epoch between; its leases must be told apart."""
    lost = Replica(MemoryLog())
    async with running(lost):
        await lost.lead(1)
        await lost.groups.promise_session(1_000)
        elected = Replica(lost.log.copy(), broker_id=1)
        await lost.journal.end_term()
        lost.role.master_epoch = 2
        await lost.until(lambda: lost.journal.is_ready)
        await lost.groups.promise_session(2_000)
        lost.groups.leases.end_grace()
        lost_lease = lost.groups.leases.acquire(KEY, "a")
    elected.log.confirm()
    async with running(elected):
        await elected.lead(3)
        assert lost_lease is not None
        assert elected.groups.leases.latest_epoch > lost_lease.epoch


async def test_leases_in_parts_of_which_one_is_missing_are_not_believed() -> None:
    leases = tuple(
        Lease(QueueKey("g" * (LEASE_PART_BYTES // 2), "t", number), "c", number + 1)
        for number in range(2)
    )
    record = LeaseRecord(3, 1_000, True, "boot", (), leases)
    first, second = lease_entries(record, 1)
    log = MemoryLog()
    log.append(body_of([entry_text(second)]))
    state = OffsetJournalState(ConsumerOffsetTable(), journal_end=1)
    state.apply(decode_body(log.bodies[0]), 0)
    assert state.lease is None
    state.apply([first], 1)
    state.apply([second], 2)
    assert state.lease == record


async def test_a_start_goes_on_where_the_snapshot_ends() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(1_000)
        await master.commit(3, 5)
        snapshot = stored(master.table)
        await master.reset(1, 5)
        await master.commit(2, 6)
    again = Replica(master.log.copy(), snapshot)
    assert again.state.next_offset == 2
    assert again.state.lease == master.state.lease
    again.log.confirm()
    async with running(again):
        await again.until(lambda: again.state.next_offset == 4)
        assert again.standings() == master.standings()
        assert stored(again.table).mark == stored(master.table).mark


async def test_a_snapshot_ahead_of_a_log_that_lost_its_end_reads_what_comes_instead() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        for offset in (3, 5, 7):
            await master.commit(offset, 5)
        await master.reset(2, 5)
        ahead, whole = stored(master.table), master.log.copy()
        await master.commit(9, 6)
    # A slave whose machine lost power: the master sends the same records again.
    slave = Replica(MemoryLog(whole.bodies[:1], whole.ends[:1]), ahead, broker_id=1)
    async with running(slave):
        slave.log.bodies[1:], slave.log.ends[1:] = whole.bodies[1:], whole.ends[1:]
        slave.log.confirm()
        await slave.until(lambda: slave.state.next_offset == 4)
        assert slave.state.standing(KEY) == Standing(2, 6)


async def test_a_table_that_apache_wrote_counts_more_than_the_journal() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.commit(9)
    table = ConsumerOffsetTable.load(b'{"offsetTable":{"t@g":{"0":4}}}')
    again = Replica(master.log.copy(), table)
    again.log.confirm()
    again.log.is_sync = True
    async with running(again):
        await again.lead(2)
        assert again.offset() == 4
        # Whoever comes later learns of it from the journal alone.
        await again.until(lambda: again.state.image_position >= 0)
        later = Replica(again.log.copy(), broker_id=1)
        later.log.confirm()
        async with running(later):
            await later.until(lambda: later.offset() == 4)


async def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    log = MemoryLog()
    log.append(b"not json")
    log.append(body_of([entry_text(OffsetEntry(KEY, Change(ChangeKind.COMMIT, 3), 1))]))
    slave = Replica(log)
    async with running(slave):
        await slave.until(lambda: slave.offset() == 3)


# ------------------------------------------------------------------------------ images


async def test_a_replica_that_begins_in_the_middle_knows_everything_once_it_has_an_image() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(1_000)
        await master.commit(3, 5)
        await master.commit(4, 5, KEYS[1])
        await master.reset(2, 5)
        end = master.log.end
        early = Replica(cut_below(master.log, 2), broker_id=1)
        assert await master.journal.prepare_removal(end, nothing) == ""
        await master.commit(8, 6, KEYS[2])
        late = Replica(cut_below(master.log, 4), broker_id=2)
        for replica in (early, late):
            replica.log.confirm()
        async with running(early, late):
            await early.until(lambda: early.state.next_offset == early.log.records_end)
            with pytest.raises(ReplicaBehind, match="not copied all"):
                early.journal.check_known()
            await late.until(lambda: late.state.next_offset == late.log.records_end)
            late.journal.check_known()
            assert late.standings() == master.standings()
            assert late.state.lease == master.state.lease
            assert late.state.image_position == master.state.image_position >= end


async def test_an_image_that_is_cut_short_is_none() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.commit(3, 5)
        await master.commit(4, 5, KEYS[1])
        first = master.log.records_end
        assert await master.journal.prepare_removal(master.log.end, nothing) == ""
        assert master.log.records_end >= first + 2
        # Begins within the image: it has its end, but not its beginning.
        slave = Replica(cut_below(master.log, first + 1), broker_id=1)
        slave.log.confirm()
        async with running(slave):
            await slave.until(lambda: slave.state.next_offset == slave.log.records_end)
            with pytest.raises(ReplicaBehind):
                slave.journal.check_known()


async def test_an_image_is_written_again_as_the_log_grows() -> None:
    master = Replica(MemoryLog(), image_interval_bytes=2_000)
    async with running(master):
        await master.lead(1)
        for offset in range(1, 30):
            await master.commit(offset)
        await master.until(lambda: master.log.end - master.state.image_position < 2_000)
        assert master.state.image_position > 2_000


async def test_an_idle_log_does_not_grow_however_large_the_image() -> None:
    master = Replica(MemoryLog(), image_interval_bytes=2_000)
    async with running(master):
        await master.lead(1)
        await asyncio.gather(*(master.commit(1, key=QueueKey("g", "t", n)) for n in range(100)))
        await master.until(lambda: master.state.image_position > 2_000)
        await asyncio.sleep(0.2)
        end = master.log.end
        assert end - master.state.image_position > 2_000, "the image is longer than the interval"
        await asyncio.sleep(0.2)
        assert master.log.end == end
        for offset in range(2, 20):
            await master.commit(offset)
        await master.until(lambda: master.state.image_position >= end)


async def test_an_image_that_nobody_waits_for_any_more_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal, "IMAGE_TIMEOUT_S", 0.02)
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.commit(3)
        end = master.log.end
        master.log.is_sync = False
        for _ in range(5):
            why = await master.journal.prepare_removal(end, nothing)
            assert "not confirmed in another place yet" in why
        assert master.log.records_end <= 2, "its one record waits to be confirmed"
        master.log.is_sync = True
        master.log.confirm()
        await master.until(lambda: master.state.image_position >= end)
        assert await master.journal.prepare_removal(end, nothing) == ""


async def test_an_image_never_says_older_leases_than_what_is_on_its_way() -> None:
    """A run's first record is not confirmed yet: behind it the clean one of the run before would
    let the next master give the same queues away."""
    log = MemoryLog()
    master = Replica(log)
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(8_000)
        await master.journal.end_term(is_clean=True)
        await master.lead(2)
        log.is_sync = False
        promise = asyncio.create_task(master.groups.promise_session(8_000))
        await asyncio.sleep(0.01)
        removing = asyncio.create_task(master.journal.prepare_removal(log.end, nothing))
        while not removing.done():
            await asyncio.sleep(0.003)
            log.confirm()
            log.flush()
        await promise
    slave = Replica(log.copy(), broker_id=1)
    slave.log.confirm()
    async with running(slave):
        await slave.until(lambda: slave.state.next_offset == slave.log.records_end)
        assert slave.state.lease is not None
        assert (slave.state.lease.is_clean, slave.state.lease.epoch) == (False, 2)


async def test_commits_and_resets_between_the_records_of_an_image_count() -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        keys = [QueueKey("g", "t", number) for number in range(600)]
        for key in keys:
            master.commit(5, 5, key)
        await asyncio.sleep(0.01)
        master.log.confirm()
        master.log.flush()
        await asyncio.sleep(0)
        removing = asyncio.create_task(master.journal.prepare_removal(master.log.end, nothing))
        await asyncio.sleep(0.005)
        first_of_image = master.log.records_end
        for key in keys:
            master.commit(6, 5, key)
        master.reset(1, 5, keys[-1])
        while not removing.done():
            await asyncio.sleep(0.003)
            master.log.confirm()
            master.log.flush()
        assert await removing == ""
        slave = Replica(cut_below(master.log, first_of_image - 1), broker_id=1)
        slave.log.confirm()
        async with running(slave):
            await slave.until(lambda: slave.state.next_offset == slave.log.records_end)
            slave.journal.check_known()
            for key in keys:
                assert slave.state.standing(key) == master.state.standing(key)
            assert slave.state.standing(keys[-1]) == Standing(1, 6)


async def test_the_log_is_kept_while_nothing_else_knows_what_stands() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.commit(3)
        end = master.log.end
        slave = Replica(master.log.copy(), broker_id=1)
        assert "their master will write them again" in await slave.journal.prepare_removal(
            end, nothing
        )
        master.log.refusal = NotWritable("the disk is full")
        assert "the disk is full" in await master.journal.prepare_removal(end, nothing)
        # On a disk without any room the snapshot is enough.
        master.table.snapshot_bytes(1)
        master.journal.saved(master.table.rendered_mark)
        assert await master.journal.prepare_removal(end, nothing) == ""


@pytest.mark.parametrize("seed", range(25))
async def test_every_replica_has_the_same_offsets_whenever_it_began(seed: int) -> None:
    """Masters change, some of them with commits that nobody else has; snapshots are taken at any
    moment; replicas begin behind images."""
    chance = random.Random(seed)
    replica = Replica(MemoryLog(is_sync=False))
    snapshots = [ConsumerOffsetTable()]
    acknowledged: dict[QueueKey, int] = {}
    for epoch in range(1, 6):
        async with running(replica):
            replica.log.confirm()
            await replica.lead(epoch)
            for _ in range(chance.randrange(12)):
                await one_step(replica, chance, epoch, acknowledged, snapshots)
        log = replica.log
        kept = log.records_end
        while kept and log.ends[kept - 1] > log.confirmed_end:
            kept -= 1
        successor = log.copy()
        successor.cut(chance.randint(kept, log.records_end))
        confirmed_end = log.confirmed_end
        replica = Replica(successor, stored(chance.choice(snapshots)), broker_id=epoch)
        replica.log.confirmed_end = confirmed_end
    replica.log.confirm()
    async with running(replica):
        await replica.until(lambda: replica.state.next_offset == replica.log.records_end)
        for key, offset in acknowledged.items():
            assert (replica.offset(key) or 0) >= offset, key
        for snapshot in snapshots:
            other = Replica(replica.log.copy(), stored(snapshot))
            other.log.confirm()
            async with running(other):
                await other.until(lambda: other.state.next_offset == other.log.records_end)  # noqa: B023
                assert other.standings() == replica.standings()


async def one_step(
    replica: Replica,
    chance: random.Random,
    epoch: int,
    acknowledged: dict[QueueKey, int],
    snapshots: list[ConsumerOffsetTable],
) -> None:
    key = chance.choice(KEYS)
    writer = replica.journal.writer()
    standing = writer.standing(key)
    offset = chance.randrange(20)
    match chance.randrange(6):
        case 0:
            done = replica.reset(offset, granted=epoch, key=key)
            done.add_done_callback(lambda _: acknowledged.pop(key, None))
            # Whether or not it will be confirmed, nothing can be said of this queue until then.
            acknowledged.pop(key, None)
        case 1:
            snapshots.append(stored(replica.table))
        case 2:
            await asyncio.sleep(0.004)
            replica.log.confirm()
        case 3:
            await asyncio.sleep(0.004)
        case _:
            if standing is None or offset > standing.offset:
                done = replica.commit(offset, key=key)
                done.add_done_callback(
                    lambda done: (
                        acknowledged.update({key: offset}) if not done.exception() else None
                    )
                )


async def nothing() -> None:
    return None


def cut_below(log: MemoryLog, records: int) -> MemoryLog:
    """A new replica's copy of a log that begins later."""
    copy = log.copy()
    copy.remove_below(records)
    return copy


def join(replica: Replica, client_id: str) -> None:
    replica.groups.groups.join(
        Member("g", client_id, "1", (Subscription("t"),), False, 8.0, 1_000.0)
    )
