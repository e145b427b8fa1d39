"""Offsets that are deleted: gone at once on a master, and for every reader of the journal."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.entries import OffsetsRemoved, decode_body, entry_text
from aerobee.broker.offsets.merge import Standing
from aerobee.runtime.errors import NotWritable
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import KEY, KEYS, Replica, cut_below, nothing, running, stored
from tests.support.waiting import until

GROUP_GONE = OffsetsRemoved("g", None, None, 1, "deleted")
TOPIC_GONE = OffsetsRemoved(None, "t", None, 1, "topic deleted")
QUEUE_GONE = OffsetsRemoved("g", "t", 1, 1)


async def committed_everywhere(master: Replica) -> None:
    await master.lead(1)
    for number, key in enumerate(KEYS):
        await master.commit(number + 1, 5, key)


@pytest.mark.parametrize(
    ("removed", "left"),
    [
        (GROUP_GONE, KEYS[3:]),
        (TOPIC_GONE, []),
        (QUEUE_GONE, [KEYS[0], *KEYS[2:]]),
        (OffsetsRemoved("g", "other", None, 1), KEYS),
    ],
)
async def test_a_removal_takes_what_it_selects_from_every_replica(
    removed: OffsetsRemoved, left: list[GroupQueue]
) -> None:
    master = Replica(MemoryLog())
    slave = Replica(master.log, broker_id=1)
    async with running(master, slave):
        await committed_everywhere(master)
        await master.journal.writer().remove(removed)
        assert master.state.keys() == left
        assert master.resets == [key for key in KEYS if key not in left], "holders begin anew"
        await until(lambda: slave.state.next_offset == master.log.records_end)
        assert slave.standings() == master.standings()
        # From the snapshot, and from the journal alone.
        assert stored(master.table).as_json() == master.table.as_json()
        rebuilt = Replica(master.log, broker_id=2)
        async with running(rebuilt):
            await until(lambda: rebuilt.state.next_offset == master.log.records_end)
            assert rebuilt.table.as_json() == master.table.as_json()


def test_an_entry_is_read_as_it_was_written() -> None:
    for entry in (GROUP_GONE, TOPIC_GONE, QUEUE_GONE):
        assert decode_body(f"[{entry_text(entry)}]".encode()) == [entry]
    with pytest.raises(ValueError, match="names a group, a topic"):
        decode_body(b'[{"kind":"remove","timestamp":1,"reason":""}]')


async def test_a_removal_counts_once_confirmed_and_nothing_is_committed_in_between() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await committed_everywhere(master)
        master.log.is_sync = False
        writer = master.journal.writer()
        done = writer.remove(GROUP_GONE)
        assert (writer.standing(KEY), writer.is_removing(KEY)) == (None, True)
        assert not writer.is_removing(KEYS[3])
        assert master.offset() == 1, "nobody is told what is not confirmed"
        await asyncio.sleep(0.01)
        master.log.confirm()
        await asyncio.sleep(0.01)
        assert (done.done(), master.offset(), writer.is_removing(KEY)) == (False, None, False)
        master.log.flush()
        await done


async def test_a_removal_that_the_log_refuses_leaves_everything() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await committed_everywhere(master)
        before = master.standings()
        master.log.refusal = NotWritable("the disk is too full")
        writer = master.journal.writer()
        with pytest.raises(NotWritable):
            await writer.remove(TOPIC_GONE)
        assert not writer.is_removing(KEY)
        assert writer.standing(KEY) == before[KEY]
        assert master.standings() == before


async def test_a_group_that_commits_again_begins_with_that_commit() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await committed_everywhere(master)
        await master.journal.writer().remove(GROUP_GONE)
        await master.commit(0, 9)
        assert master.state.standing(KEY) == Standing(0, 9)
        slave = Replica(master.log, broker_id=1)
        async with running(slave):
            await until(lambda: slave.state.next_offset == master.log.records_end)
            assert slave.state.standing(KEY) == Standing(0, 9)


async def test_an_image_does_not_say_what_was_removed() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await committed_everywhere(master)
        await master.journal.writer().remove(GROUP_GONE)
        end = master.log.end
        first = master.log.records_end
        assert await master.journal.prepare_removal(end, nothing) == ""
        late = Replica(cut_below(master.log, first), broker_id=1)
        late.log.confirm()
        async with running(late):
            await until(lambda: late.state.next_offset == late.log.records_end)
            late.journal.check_known()
            assert late.standings() == master.standings()


async def test_a_replica_that_missed_the_removal_learns_of_it_from_the_image() -> None:
    """Its snapshot has the offsets, and the log has lost the record that removed them."""
    master = Replica(MemoryLog())
    async with running(master):
        await committed_everywhere(master)
        old = stored(master.table)
        await master.journal.writer().remove(GROUP_GONE)
        await master.commit(7, 9, KEYS[1])
        first = master.log.records_end
        assert await master.journal.prepare_removal(master.log.end, nothing) == ""
        late = Replica(cut_below(master.log, first), old, broker_id=1)
        late.log.confirm()
        async with running(late):
            await until(lambda: late.state.next_offset == late.log.records_end)
            late.journal.check_known()
            assert late.table.as_json() == master.table.as_json()


async def test_the_same_holds_when_the_replica_starts_again_in_between() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await committed_everywhere(master)
        old = stored(master.table)
        await master.journal.writer().remove(GROUP_GONE)
        first = master.log.records_end
        early_log = cut_below(master.log, first)
        early = Replica(early_log, old, broker_id=1)
        early.state.skip_to(first)
        again = stored(early.table)
        assert again.query(*KEY) == 1
        assert await master.journal.prepare_removal(master.log.end, nothing) == ""
        late = Replica(cut_below(master.log, first), again, broker_id=1)
        late.log.confirm()
        async with running(late):
            await until(lambda: late.state.next_offset == late.log.records_end)
            assert late.table.as_json() == master.table.as_json()
