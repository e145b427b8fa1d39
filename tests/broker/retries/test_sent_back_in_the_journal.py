"""What the offset journal says of messages that were sent back, on masters, slaves and after a
restart."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.records import BODY_BYTES_MAX
from aerobee.broker.offsets.entries import OffsetsRemoved, entry_text
from aerobee.broker.offsets.sent_back import FinishedBeyond, SentBack, TriedInOrder
from aerobee.broker.offsets.writer import SENT_BACK_AT_ONCE
from aerobee.runtime.errors import NotWritable
from aerobee.store.engine.tables.consumer_offset_table import Tried
from aerobee.store.engine.tables.finished_ranges import Range
from aerobee.store.format.dead_letter_fields import Death
from aerobee.store.format.delayed_records import Delay
from aerobee.store.format.retry_records import shortened_death
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import KEY, Replica, cut_below, nothing, running, stored
from tests.support.waiting import until


def send_back(
    replica: Replica, offset: int, *, key: GroupQueue = KEY, way: Delay | Death | None = None
) -> asyncio.Future[None]:
    writer = replica.journal.writer()
    way = Delay(level=3) if way is None else way
    return writer.send_back([SentBack(key, offset, writer.next_copy, way, 5, "c")])


def finished(replica: Replica, key: GroupQueue = KEY) -> list[Range]:
    ranges = replica.state.finished_beyond(key)
    return [] if ranges is None else list(ranges)


def open_numbers(replica: Replica) -> list[int]:
    return [entry.number for entry in replica.state.open_copies]


async def test_it_is_finished_at_once_for_the_master_and_for_all_once_it_is_confirmed() -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        done = send_back(master, 7)
        assert master.journal.writer().is_finished_beyond(KEY, 7)
        assert finished(master) == []
        master.log.confirm()
        assert finished(master) == [Range(7, 8)]
        assert open_numbers(master) == [0]
        assert not done.done(), "the disk does not have it yet"
        master.log.flush()
        await done
        records = master.log.records_end
        master.journal.writer().note_copied([0])
        await until(lambda: master.log.records_end > records)
        master.log.confirm()
        assert open_numbers(master) == []
        slave = Replica(master.log.copy(), broker_id=1)
        slave.log.confirm()
        async with running(slave):
            await until(lambda: slave.state.next_offset == slave.log.records_end)
            assert finished(slave) == [Range(7, 8)]
            assert (slave.state.next_copy, open_numbers(slave)) == (1, [])


async def test_the_next_master_owes_the_copies_that_nobody_said_to_be_there() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        death = Death("g", 3, 5, "ValueError", "cannot read it", "c")
        await send_back(master, 3)
        await send_back(master, 4, way=death)
        await send_back(master, 5)
        master.journal.writer().note_copied([1])
        again = Replica(MemoryLog(list(master.log.bodies), list(master.log.ends)))
    again.log.confirm()
    async with running(again):
        await again.lead(2)
        owed = again.journal.writer().owed_copies()
        assert [(entry.number, entry.offset) for entry in owed] == [(0, 3), (1, 4), (2, 5)]
        assert owed[1].way == death
        again.journal.writer().note_copied([0, 1])
        assert [entry.number for entry in again.journal.writer().owed_copies()] == [2]
        assert again.journal.writer().next_copy == 3


async def test_a_commit_passes_what_is_finished_and_a_reset_takes_it_back() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        for offset in (3, 4, 8):
            await send_back(master, offset)
        assert finished(master) == [Range(3, 5), Range(8, 9)]
        await master.commit(4)
        assert finished(master) == [Range(4, 5), Range(8, 9)]
        await master.commit(6)
        assert finished(master) == [Range(8, 9)]
        await master.reset(2)
        assert finished(master) == []


@pytest.mark.parametrize(
    "removed",
    [
        OffsetsRemoved("g", None, None, 1),
        OffsetsRemoved(None, "t", None, 1),
        OffsetsRemoved("g", "t", 0, 1),
    ],
)
async def test_a_removal_takes_it_away_even_of_a_group_that_never_committed(
    removed: OffsetsRemoved,
) -> None:
    master = Replica(MemoryLog())
    other = GroupQueue("h", "u", 1)
    async with running(master):
        await master.lead(1)
        await send_back(master, 3)
        await send_back(master, 3, key=other)
        await master.journal.writer().remove(removed)
        assert finished(master) == []
        assert finished(master, other) == [Range(3, 4)]


async def test_it_is_in_the_snapshot_and_in_the_image() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        for offset in (3, 5, 7):
            await send_back(master, offset)
        await master.commit(4)
        master.journal.writer().note_copied([1])
        again = Replica(master.log, stored(master.table))
        assert finished(again) == finished(master) == [Range(5, 6), Range(7, 8)]
        assert open_numbers(again) == open_numbers(master)
        assert again.state.next_copy == 3
        records = master.log.records_end
        assert await master.journal.prepare_removal(master.log.end, nothing) == ""
        late = Replica(cut_below(master.log, records), broker_id=1)
        late.log.confirm()
        async with running(late):
            await until(lambda: late.state.next_offset == late.log.records_end)
            assert finished(late) == finished(master)
            assert open_numbers(late) == [0, 2]
            assert late.state.next_copy == 3


async def test_an_image_does_not_finish_again_what_a_reset_has_taken_back() -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        send_back(master, 5)
        master.log.confirm()
        records = master.log.records_end
        master.reset(2)
        entries = list(master.journal.writer().image())
        assert not any(isinstance(entry, FinishedBeyond) for entry in entries)
        await until(lambda: master.log.records_end > records)
        master.log.confirm()
        assert finished(master) == []


@pytest.mark.parametrize(
    "removed",
    [
        OffsetsRemoved("g", None, None, 1),
        OffsetsRemoved(None, "t", None, 1),
        OffsetsRemoved("g", "t", 0, 1),
    ],
)
@pytest.mark.parametrize("is_confirmed", [True, False])
async def test_an_image_does_not_finish_again_what_a_removal_takes_away(
    removed: OffsetsRemoved, is_confirmed: bool
) -> None:
    master = Replica(MemoryLog(is_sync=False))
    async with running(master):
        await master.lead(1)
        send_back(master, 5)
        if is_confirmed:
            master.log.confirm()
        writer = master.journal.writer()
        confirmed, records = master.log.end, master.log.records_end
        writer.remove(removed)
        await until(lambda: master.log.records_end > records)
        master.log.confirm(confirmed)
        assert finished(master) == [Range(5, 6)]
        assert not any(isinstance(entry, FinishedBeyond) for entry in writer.image())


async def test_with_a_topic_go_the_copies_that_nobody_has_made_of_its_messages() -> None:
    """Its next life has other messages at the same offsets."""
    master = Replica(MemoryLog())
    other = GroupQueue("g", "u", 0)
    async with running(master):
        await master.lead(1)
        await send_back(master, 3)
        await send_back(master, 4, key=other)
        writer = master.journal.writer()
        await writer.end_topic("t", 7, lease_epoch=1)
        assert open_numbers(master) == [1]
        assert [entry.key for entry in writer.owed_copies()] == [other]
        assert open_numbers(Replica(master.log, stored(master.table))) == [1]


async def test_what_could_not_be_written_is_not_finished_and_its_number_is_not_used_again() -> None:
    log = MemoryLog()
    master = Replica(log)
    async with running(master):
        await master.lead(1)
        log.refusal = NotWritable("the disk is full")
        with pytest.raises(NotWritable):
            send_back(master, 5)
        log.refusal = None
        writer = master.journal.writer()
        assert not writer.is_finished_beyond(KEY, 5)
        assert writer.owed_copies() == []
        assert writer.next_copy == 1


async def test_what_the_journal_has_lost_is_not_finished() -> None:
    """A snapshot of another life of the log knows more than the log has."""
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await send_back(master, 3)
        kept = master.log.records_end
        await send_back(master, 5, key=GroupQueue("h", "t", 0))
        snapshot = stored(master.table)
        master.log.cut(kept)
        again = Replica(master.log, snapshot)
        assert finished(again) == [Range(3, 4)]
        assert finished(again, GroupQueue("h", "t", 0)) == []
        assert open_numbers(again) == [0]


def try_again(
    replica: Replica, offset: int, attempts: int, key: GroupQueue = KEY
) -> asyncio.Future[None]:
    entry = TriedInOrder(key, Tried(offset, attempts), 5, "c")
    return replica.journal.writer().try_again(entry)


async def test_attempts_in_order_are_known_to_slaves_snapshots_and_images() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        await try_again(master, 7, 2)
        await try_again(master, 7, 1)
        assert master.state.tried(KEY) == Tried(7, 2), "they only rise"
        await try_again(master, 5, 1)
        assert master.state.tried(KEY) == Tried(5, 1), "an older one is tried first"
        await try_again(master, 7, 2)
        assert Replica(master.log, stored(master.table)).state.tried(KEY) == Tried(7, 2)
        records = master.log.records_end
        assert await master.journal.prepare_removal(master.log.end, nothing) == ""
        for log in (master.log.copy(), cut_below(master.log, records)):
            slave = Replica(log, broker_id=1)
            slave.log.confirm()
            async with running(slave):
                await until(lambda s=slave: s.state.next_offset == s.log.records_end)
                assert slave.state.tried(KEY) == Tried(7, 2)


@pytest.mark.parametrize("how", ["commit", "reset", "group", "topic", "cut"])
async def test_attempts_in_order_end_with_their_message(how: str) -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        kept = master.log.records_end
        await try_again(master, 7, 2)
        await master.commit(7)
        assert master.state.tried(KEY) == Tried(7, 2)
        writer = master.journal.writer()
        match how:
            case "commit":
                await master.commit(8)
            case "reset":
                await master.reset(0)
            case "group":
                await writer.remove(OffsetsRemoved("g", None, None, 1))
            case "topic":
                await writer.end_topic("t", 7, lease_epoch=1)
            case "cut":
                snapshot = stored(master.table)
                master.log.cut(kept)
                assert Replica(master.log, snapshot).state.tried(KEY) is None
                return
        assert master.state.tried(KEY) is None
        if how == "commit":
            await try_again(master, 7, 3)
            assert master.state.tried(KEY) is None, "it is finished"


async def test_the_number_of_a_lost_copy_is_used_again_by_the_next_master() -> None:
    """A master that comes back after another went on from an earlier end of its log."""
    master = Replica(MemoryLog())
    async with running(master):
        await master.lead(1)
        kept = master.log.records_end
        await send_back(master, 3)
        master.journal.writer().note_copied([0])
        await until(lambda: master.state.open_copies == [])
        snapshot = stored(master.table)
    master.log.cut(kept)
    Replica(master.log, snapshot)  # truncated, before anything comes
    async with running(other := Replica(master.log.copy(), broker_id=1)):
        await other.lead(2)
        await send_back(other, 5)
        assert open_numbers(other) == [0]
        again = Replica(other.log, stored(snapshot))
        async with running(again):
            await until(lambda: again.state.next_offset == other.log.records_end)
            assert open_numbers(again) == [0]


def test_what_is_sent_back_at_once_shares_a_record_whatever_its_reason() -> None:
    text = "й" * 2_000
    death = shortened_death(Death("g" * 120, 1 << 31, 1 << 62, text, text, text))
    key = GroupQueue("g" * 120, "t" * 127, 1_000)
    entry = SentBack(key, 1 << 62, 1 << 47, death, 1 << 62, "й" * 127)
    assert SENT_BACK_AT_ONCE * (len(entry_text(entry)) + 1) <= BODY_BYTES_MAX
