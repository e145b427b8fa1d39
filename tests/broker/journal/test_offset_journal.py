"""The offset journal over a log whose confirmed end the test moves: masters, slaves, and the change
from one to the other.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal import writer as journal_writer
from aerobee.broker.journal.records import body_of
from aerobee.broker.offsets.entries import OffsetEntry, decode_body, entry_text
from aerobee.broker.offsets.merge import Change, ChangeKind, Standing
from aerobee.runtime.errors import (
    AerobeeError,
    Busy,
    MessageTooLarge,
    NotMaster,
    NotWritable,
    ReplicaBehind,
    StoreFailed,
)
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import KEY, KEYS, Replica, running, stored
from tests.support.waiting import until


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
        await asyncio.gather(*(master.commit(1, key=GroupQueue("g", "t", n)) for n in range(100)))
        assert len(master.log.bodies) == 1
        for number in range(20):
            master.commit(2, key=GroupQueue("g", "t", number))
            await asyncio.sleep(0)
        await master.commit(3)
        assert len(master.log.bodies) < 15


async def test_a_record_is_no_longer_than_64_kib() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await asyncio.gather(
            *(master.commit(1, key=GroupQueue("g" * 100, "t", n)) for n in range(2_000))
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
                with pytest.raises(AerobeeError, match=r"too large|a defect"):
                    await each
            with pytest.raises(AerobeeError):
                await master.groups.promise_session(1_000)
        assert master.journal.waiting_bytes == 0
        # A clean end that cannot be written down ends the term all the same.
        await master.journal.leave()
        master.log.refusal = None
        await master.lead(2)
        await master.commit(6)
        assert master.offset() == 6


async def test_a_record_that_lies_where_none_was_expected_ends_the_broker() -> None:
    """It is in the log and its replicas will apply it: an error for the commit alone would hide
    that this broker does not."""
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await master.commit(3)
        master.log.append(body_of([]))  # by somebody else
        lost = [master.commit(5), master.commit(1, key=KEYS[1])]
        for each in lost:
            with pytest.raises(StoreFailed, match="something else writes to it"):
                await each
        assert isinstance(master.log.failure, StoreFailed)
        with pytest.raises(AerobeeError):
            await master.commit(6)
        assert master.offset() == 3


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
        await until(lambda: slave.offset() == 1)
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
        master.journal.end()
        master.log.confirm()
        for each in (waiting, unwritten):
            with pytest.raises(NotMaster, match="may or may not count"):
                await each
        with pytest.raises(NotMaster):
            master.commit(7)


async def test_a_term_that_ends_before_it_could_begin_is_given_up() -> None:
    master = Replica(MemoryLog(is_sync=False, bodies=[body_of([])], ends=[10]))
    async with running(master):
        master.take_role(1)
        await asyncio.sleep(0.01)
        master.take_role(None)
        master.log.confirm()
        await until(lambda: master.state.next_offset == 1)
        with pytest.raises(NotMaster):
            master.journal.writer()


async def test_roles_begin_and_end_terms_by_themselves_and_a_newer_epoch_changes_nothing() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        master.take_role(0)
        await until(lambda: master.journal.is_ready)
        writer = master.journal.writer()
        done = master.commit(5)
        master.take_role(4)
        await done
        await asyncio.sleep(0.02)
        assert master.journal.writer() is writer
        master.take_role(None)
        await until(lambda: not master.journal.is_ready)


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
        await until(lambda: again.state.next_offset == 4)
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
        await until(lambda: slave.state.next_offset == 4)
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
        await until(lambda: again.state.image_position >= 0)
        later = Replica(again.log.copy(), broker_id=1)
        later.log.confirm()
        async with running(later):
            await until(lambda: later.offset() == 4)


async def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    log = MemoryLog()
    log.append(b"not json")
    log.append(body_of([entry_text(OffsetEntry(KEY, Change(ChangeKind.COMMIT, 3), 1))]))
    slave = Replica(log)
    async with running(slave):
        await until(lambda: slave.offset() == 3)


@pytest.mark.parametrize("seed", range(25))
async def test_every_replica_has_the_same_offsets_whenever_it_began(seed: int) -> None:
    """Masters change, some of them with commits that nobody else has; snapshots are taken at any
    moment; replicas begin after images."""
    chance = random.Random(seed)
    replica = Replica(MemoryLog(is_sync=False))
    snapshots = [ConsumerOffsetTable()]
    acknowledged: dict[GroupQueue, int] = {}
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
        await until(lambda: replica.state.next_offset == replica.log.records_end)
        for key, offset in acknowledged.items():
            assert (replica.offset(key) or 0) >= offset, key
        for snapshot in snapshots:
            other = Replica(replica.log.copy(), stored(snapshot))
            other.log.confirm()
            async with running(other):
                await until(lambda: other.state.next_offset == other.log.records_end)  # noqa: B023
                assert other.standings() == replica.standings()


async def one_step(
    replica: Replica,
    chance: random.Random,
    epoch: int,
    acknowledged: dict[GroupQueue, int],
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
