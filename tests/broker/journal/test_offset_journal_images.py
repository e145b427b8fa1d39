"""Images of all offsets in the journal: who begins in the middle of the log knows everything."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal import journal
from aerobee.broker.offsets.merge import Standing
from aerobee.runtime.errors import (
    NotWritable,
    ReplicaBehind,
)
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import KEYS, Replica, cut_below, nothing, running
from tests.support.waiting import until


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
            await until(lambda: early.state.next_offset == early.log.records_end)
            with pytest.raises(ReplicaBehind, match="not copied all"):
                early.journal.check_known()
            await until(lambda: late.state.next_offset == late.log.records_end)
            late.journal.check_known()
            assert late.standings() == master.standings()
            assert late.state.lease == master.state.lease
            assert late.state.image_position == master.state.image_position >= end


async def test_an_image_that_is_cut_short_is_none() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        many = [GroupQueue("g", "t", number) for number in range(300)]
        await asyncio.gather(*(master.commit(3, 5, key) for key in many))
        first = master.log.records_end
        assert await master.journal.prepare_removal(master.log.end, nothing) == ""
        assert master.log.records_end >= first + 2
        # Begins within the image: it has its end, but not its beginning.
        slave = Replica(cut_below(master.log, first + 1), broker_id=1)
        slave.log.confirm()
        async with running(slave):
            await until(lambda: slave.state.next_offset == slave.log.records_end)
            with pytest.raises(ReplicaBehind):
                slave.journal.check_known()


async def test_an_image_is_written_again_as_the_log_grows() -> None:
    master = Replica(MemoryLog(), image_interval_bytes=2_000)
    async with running(master):
        await master.lead(1)
        for offset in range(1, 30):
            await master.commit(offset)
        # An image takes some room itself, and commits came while it was written.
        await until(lambda: master.log.end - master.state.image_position < 4_000)
        assert master.state.image_position > 2_000


async def test_an_idle_log_does_not_grow_however_large_the_image() -> None:
    master = Replica(MemoryLog(), image_interval_bytes=2_000)
    async with running(master):
        await master.lead(1)
        await asyncio.gather(*(master.commit(1, key=GroupQueue("g", "t", n)) for n in range(100)))
        await until(lambda: master.state.image_position > 2_000)
        await asyncio.sleep(0.2)
        end = master.log.end
        assert end - master.state.image_position > 2_000, "the image is longer than the interval"
        await asyncio.sleep(0.2)
        assert master.log.end == end
        for offset in range(2, 20):
            await master.commit(offset)
        await until(lambda: master.state.image_position >= end)


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
        await until(lambda: master.state.image_position >= end)
        assert await master.journal.prepare_removal(end, nothing) == ""


async def test_an_image_never_says_older_leases_than_what_is_on_its_way() -> None:
    """A run's first record is not confirmed yet: after it the clean one of the run before would
    let the next master give the same queues away."""
    log = MemoryLog()
    master = Replica(log)
    async with running(master):
        await master.lead(1)
        await master.groups.promise_session(8_000)
        await master.journal.leave()
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
        await until(lambda: slave.state.next_offset == slave.log.records_end)
        assert slave.state.lease is not None
        assert (slave.state.lease.is_clean, slave.state.lease.epoch) == (False, 2)


async def test_commits_and_resets_between_the_records_of_an_image_count() -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        keys = [GroupQueue("g", "t", number) for number in range(600)]
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
            await until(lambda: slave.state.next_offset == slave.log.records_end)
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
        master.journal.saved(master.state.next_offset)
        assert await master.journal.prepare_removal(end, nothing) == ""
