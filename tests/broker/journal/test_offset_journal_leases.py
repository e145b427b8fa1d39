"""Members and leases in the offset journal: what the next master takes over and believes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from aerobee.broker.groups.queue_leases import COUNTER_BITS, GroupQueue, Lease
from aerobee.broker.groups.run_record import RUNS_OF_AN_EPOCH, RunRecord
from aerobee.broker.journal.records import body_of
from aerobee.broker.offsets.entries import LEASE_PART_BYTES, decode_body, entry_text, lease_entries
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import (
    NotMaster,
)
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import KEY, KEYS, Replica, join, running
from tests.support.waiting import until


async def test_after_a_clean_end_the_next_master_takes_members_and_leases_over() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(8_000)
        join(master, "a")
        lease = master.groups.leases.acquire(KEY, "a")
        assert lease is not None
        assert lease.epoch >> COUNTER_BITS == RUNS_OF_AN_EPOCH
        await master.journal.leave()
        assert not list(master.groups.members.all_members())
        await asyncio.sleep(0.02)
        assert not master.journal.is_ready, "a term that was ended does not go on by itself"
        slave = Replica(master.log.copy(), broker_id=1, boot_id="another")
        slave.log.confirm()
        async with running(slave):
            await slave.lead(2)
            assert slave.groups.leases.holder(KEY) == lease
            assert slave.groups.leases.grace_end_s is None
        # Called off: the old master goes on.
        master.journal.resume()
        await until(lambda: master.journal.is_ready)
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
                await master.journal.leave()
        with pytest.raises(NotMaster):
            master.journal.writer()
        master.journal.resume()
        log.is_sync = True
        log.confirm()
        log.flush()
        await until(lambda: master.journal.is_ready)
        assert master.groups.leases.holder(KEY) == lease, "as if the broker had restarted"
        await master.groups.promise_session(8_000)
        assert master.state.lease is not None
        assert (master.state.lease.run_number, master.state.lease.is_clean) == (
            RUNS_OF_AN_EPOCH + 1,
            False,
        )
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
        ending = asyncio.create_task(master.journal.leave())
        await asyncio.sleep(0.01)
        with pytest.raises(NotMaster, match="is handing its groups"):
            master.journal.check_granting()
        with pytest.raises(NotMaster, match="is handing its groups"):
            await run_to_its_wait(ending, master.groups.promise_session(9_000), log)
        assert master.groups.leases.acquire(KEY, "a") is None
        assert master.groups.leases.drop_member("g", "a")[1] == []
        await ending


async def run_to_its_wait(
    ending: asyncio.Task[None], promise: Coroutine[Any, Any, None], log: MemoryLog
) -> None:
    """The promise waits for its turn after the record of the end."""
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

    async def write_slowly(record: bytes) -> None:
        await let_go.wait()

    async with running(master):
        await master.lead(1)
        master.groups.write_file = write_slowly
        promise = asyncio.create_task(master.groups.promise_session(8_000))
        await asyncio.sleep(0.02)
        master.journal.end()
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
        async with running(slave):
            slave.take_role(2, is_unclean=is_unclean)
            await until(lambda: slave.journal.is_ready)  # noqa: B023
            leases = slave.groups.leases
            assert leases.grace_end_s == ManualClock().monotonic_s() + 8
            assert leases.latest_epoch > lease.epoch
            assert len(leases.resume("g", "a", [(KEY, lease.epoch)])[0]) == confirmed


async def test_a_run_without_sessions_leaves_the_journal_as_it_is() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.journal.leave()
    assert master.log.bodies == []
    assert [record.is_clean for record in master.saved] == [True]


async def test_a_run_that_nobody_joined_is_followed_by_one_of_another_number() -> None:
    """As when a hand-over of a broker without groups is called off: no record tells of the run."""
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.journal.leave()
        master.journal.resume()
        await until(lambda: master.journal.is_ready)
        await master.groups.promise_session(8_000)
        assert master.state.lease is not None
        assert (master.state.lease.epoch, master.state.lease.run_number) == (
            1,
            RUNS_OF_AN_EPOCH + 1,
        )


async def test_a_run_whose_record_was_lost_never_shares_its_number() -> None:
    """An unclean election loses the record of the epoch between; its leases must be told apart."""
    lost = Replica(MemoryLog())
    async with running(lost):
        await lost.lead(1)
        await lost.groups.promise_session(1_000)
        elected = Replica(lost.log.copy(), broker_id=1)
        lost.journal.end()
        lost.take_role(2)
        await until(lambda: lost.journal.is_ready)
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
        Lease(GroupQueue("g" * (LEASE_PART_BYTES // 2), "t", number), "c", number + 1)
        for number in range(2)
    )
    record = RunRecord(3, 1_000, True, "boot", (), leases)
    first, second = lease_entries(record, 1)
    log = MemoryLog()
    log.append(body_of([entry_text(second)]))
    state = OffsetJournalState(ConsumerOffsetTable(), journal_end=1)
    state.apply(decode_body(log.bodies[0]), 0)
    assert state.lease is None
    state.apply([first], 1)
    state.apply([second], 2)
    assert state.lease == record
