"""The ends of deleted topics in the offset journal: written once, known to every replica, and
nothing of the former life counts in the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.broker.cluster.topic_directives import AnnouncedTopic, apply_topics
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.ownership import Claim
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.entries import (
    TopicEnded,
    TopicEndKnown,
    TopicLivesOn,
    decode_body,
    entry_text,
)
from aerobee.broker.offsets.merge import Standing
from aerobee.broker.offsets.state import OffsetJournalState, cut_mark
from aerobee.broker.offsets.topic_ends import TopicEnds
from aerobee.broker.sending.guard import Guard
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Busy, LeaseExpired, NotWritable
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable, JournalMark
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import (
    KEY,
    KEYS,
    Replica,
    cut_below,
    join,
    nothing,
    running,
    stored,
)
from tests.support.loop_wakes import loop_wakes
from tests.support.stores import append, flush, open_store
from tests.support.waiting import until

TOPIC = KEY.topic
OTHER = KEY._replace(topic="another")


async def committed_everywhere(master: Replica) -> None:
    await master.lead(1)
    for number, key in enumerate(KEYS):
        await master.commit(number + 1, 5, key)


def ends(replica: Replica) -> dict[str, int]:
    return {topic: end.deleted_at_ms for topic, end in replica.table.topic_ends.items()}


# ---------------------------------------------------------------------------------- the journal


async def test_an_end_takes_the_topics_offsets_from_every_replica_for_good() -> None:
    master = Replica(MemoryLog())
    slave = Replica(master.log, broker_id=1)
    async with running(master, slave):
        await committed_everywhere(master)
        await master.journal.writer().end_topic(TOPIC, 1_000, lease_epoch=7)
        assert master.state.keys() == [key for key in KEYS if key.topic != TOPIC]
        await master.commit(1, 9)
        await until(lambda: slave.state.next_offset == master.log.records_end)
        for replica in (master, slave):
            assert replica.state.standing(KEY) == Standing(1, 9)
            assert ends(replica) == {TOPIC: 1_000}
            assert stored(replica.table).topic_ends == replica.table.topic_ends
            assert replica.state.topic_ended_at_ms(TOPIC) == 1_000
            assert replica.state.topic_ended_at_ms("another") == 0


async def test_an_end_is_alone_in_its_record_which_the_log_is_told_of() -> None:
    """The store knows it by the record, not by what is in it."""
    master = Replica(MemoryLog())
    told: list[tuple[int, str]] = []
    append_really = master.log.append

    def append_noting(body: bytes, *, ends_topic: str = "") -> Any:
        told.append((len(decode_body(body)), ends_topic))
        return append_really(body)

    async with running(master):
        await committed_everywhere(master)
        master.log.append = append_noting  # type: ignore[method-assign]
        writer = master.journal.writer()
        waiting = [
            master.commit(50, 9, OTHER),
            writer.end_topic(TOPIC, 1_000, lease_epoch=0),
            master.commit(1, 9),
        ]
        await asyncio.gather(*waiting)
        assert told == [(1, ""), (1, TOPIC), (1, "")]
        assert master.offset() == 1


def test_entries_are_read_as_they_were_written() -> None:
    entries = TopicEnded.of("t", 9, 8, 7), TopicEndKnown("t", 9, 8, 7), TopicLivesOn("t", 9, 7)
    for entry in entries:
        assert decode_body(f"[{entry_text(entry)}]".encode()) == [entry]


async def test_while_it_waits_nothing_is_committed_and_if_it_is_refused_all_stands() -> None:
    master = Replica(MemoryLog())
    async with running(master):
        await committed_everywhere(master)
        before = master.standings()
        master.log.refusal = NotWritable("full")
        with pytest.raises(NotWritable):
            await master.journal.writer().end_topic(TOPIC, 1_000, lease_epoch=0)
        assert master.standings() == before
        assert ends(master) == {}
        master.log.refusal = None
        master.log.is_sync = False
        done = master.journal.writer().end_topic(TOPIC, 1_000, lease_epoch=0)
        assert master.journal.writer().is_removing(KEY)
        assert not done.done()
        master.log.confirm()
        master.log.flush()
        await done


async def test_a_replica_that_missed_the_end_learns_of_it_from_the_image() -> None:
    """Its snapshot has offsets of the former life, and the log has lost the record of the end."""
    master = Replica(MemoryLog())
    async with running(master):
        await committed_everywhere(master)
        old = stored(master.table)
        await master.journal.writer().end_topic(TOPIC, 1_000, lease_epoch=7)
        first = master.log.records_end
        await master.commit(3, 9)
        assert await master.journal.prepare_removal(master.log.end, nothing) == ""
        assert master.state.standing(KEY) == Standing(3, 9), "an image ends nothing again"
        late = Replica(cut_below(master.log, first), old, broker_id=1)
        late.log.confirm()
        async with running(late):
            await until(lambda: late.state.next_offset == late.log.records_end)
            assert late.table.as_json() == master.table.as_json()
            assert ends(late) == {TOPIC: 1_000}
            assert late.state.may_lack_end(0), "of what was deleted before the image"


def test_what_a_power_failure_took_from_the_journal_is_not_known_any_more() -> None:
    table = ConsumerOffsetTable()
    state = OffsetJournalState(table, journal_end=0)
    state.apply([TopicEnded.of("a", 1, 0, 0)], 0)
    state.apply([TopicEnded.of("b", 2, 0, 0)], 1)
    assert cut_mark(table, 1)
    assert list(table.topic_ends) == ["a"]


def test_commits_that_come_again_after_a_power_failure_end_with_their_topic_again() -> None:
    """The table was saved after the end, the journal comes again from before it."""
    table = ConsumerOffsetTable()
    state = OffsetJournalState(table, journal_end=0)
    old, end, new = stored_entries()
    for number, entry in enumerate((old, end, new)):
        state.apply([entry], number)
    again = OffsetJournalState(stored(table), journal_end=0)
    for number, entry in enumerate((old, end, new)):
        again.apply([entry], number)
    assert again.standing(KEY) == Standing(5, 9)


def stored_entries() -> tuple[Any, Any, Any]:
    from aerobee.broker.offsets.entries import OffsetEntry
    from aerobee.broker.offsets.merge import Change, ChangeKind

    return (
        OffsetEntry(KEY, Change(ChangeKind.COMMIT, 1_000, 4), 1),
        TopicEnded.of(TOPIC, 10, 4, 2),
        OffsetEntry(KEY, Change(ChangeKind.COMMIT, 5, 9), 3),
    )


# ---------------------------------------------------------------------------------- who writes it


class Scene:
    """A replica's journal beside a store, and a topic that nameservers call deleted."""

    def __init__(
        self, root: Path, log: MemoryLog | None = None, table: ConsumerOffsetTable | None = None
    ) -> None:
        self.replica = Replica(log or MemoryLog(), table)
        self.topics = TopicTable({TOPIC: TopicConfig(name=TOPIC)})
        self.store: MessageStore = open_store(root)
        self.saves = 0
        groups = self.replica.groups
        self.coordinator = GroupCoordinator(
            groups.members,
            groups.ownership,
            call_soon=lambda push: None,
            is_acting=lambda: True,
        )
        self.ends = TopicEnds(
            self.topics,
            self.replica.state,
            self.replica.journal,
            self.coordinator,
            self.store,
            SimpleNamespace(run_in_turn=self._read),  # type: ignore[arg-type]
            self.replica.clock,
            save=self._save,
        )

    async def _read(self, reader: str, size: int, read: Any) -> Any:
        return read()

    async def _save(self) -> None:
        self.saves += 1

    @property
    def is_over(self) -> bool:
        return not self.topics.ending

    @property
    def written(self) -> int:
        bodies = self.replica.log.bodies
        return sum(isinstance(e, TopicEnded) for body in bodies for e in decode_body(body))

    def announce(self, deleted_at_ms: int, *, deleted: bool = False) -> None:
        topic = AnnouncedTopic(
            name=TOPIC,
            queue_count=2,
            perm=6,
            order=False,
            revision=9,
            deleted=deleted,
            deleted_at_ms=deleted_at_ms,
        )
        apply_topics(
            self.topics,
            [topic],
            metadata_revision=9,
            is_complete=False,
            ended_at_ms=self.ends.ended_at_ms,
        )
        self.ends.wake()


@asynccontextmanager
async def working(scene: Scene) -> AsyncIterator[None]:
    task = asyncio.create_task(scene.ends.run())
    try:
        async with running(scene.replica):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_master_ends_a_deleted_topic_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    append(scene.store, TOPIC, 0, b"old")
    async with working(scene):
        await committed_everywhere(scene.replica)
        scene.announce(1_000, deleted=True)
        assert (TOPIC in scene.topics, scene.topics.ending) == (False, {TOPIC: 1_000})
        await until(lambda: scene.is_over)
        assert (scene.written, scene.saves) == (1, 1)
        # The same deletion is heard again with the topic's next life, and changes nothing.
        scene.announce(1_000)
        assert scene.is_over
        scene.announce(2_000)
        await until(lambda: scene.is_over)
        assert scene.written == 2


async def test_a_topic_that_is_here_again_is_served_once_the_former_one_has_ended(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    guard = Guard(scene.topics, broker_name="a")
    guard.check_send(TOPIC, 0)
    async with working(scene):
        await committed_everywhere(scene.replica)
        scene.replica.log.is_sync = False
        scene.announce(1_000)
        for check in (guard.check_send, guard.check_read, guard.check_queue):
            with pytest.raises(Busy, match="deleted and created again"):
                check(TOPIC, 0)
        await until(lambda: scene.written == 1)
        scene.replica.log.confirm()
        with pytest.raises(Busy):
            guard.check_send(TOPIC, 0)
        scene.replica.log.flush()
        await until(lambda: scene.is_over)
        guard.check_send(TOPIC, 0)


async def test_no_lease_of_the_former_life_commits_to_the_next_one(tmp_path: Path) -> None:
    """Its holder would set the group's offset to where it was in the former life."""
    scene = Scene(tmp_path)
    replica, coordinator = scene.replica, scene.coordinator
    guard = Guard(scene.topics, broker_name="a")
    offsets = ConsumerOffsets(
        replica.table,
        replica.journal,
        coordinator,
        guard,
        ManualClock(),
        queue_max=lambda topic, queue_id: 2_000,
    )
    async with working(scene):
        await replica.lead(1)
        join(replica, "a")
        old = coordinator.ownership.leases.acquire(KEY, "a")
        assert old is not None
        await asyncio.wait_for(_done(offsets.commit(KEY, 1_000, Claim.under(old.epoch))), 5)
        scene.announce(1_000)
        await until(lambda: scene.is_over)
        assert coordinator.ownership.leases.holder(KEY) is None
        with pytest.raises(LeaseExpired):
            offsets.commit(KEY, 1_001, Claim.under(old.epoch))
        assert offsets.is_ended(KEY, old.epoch), "nor can it be shown again to the next master"
        assert offsets.query(KEY) is None
        new = coordinator.ownership.leases.acquire(KEY, "a")
        assert new is not None
        await asyncio.wait_for(_done(offsets.commit(KEY, 1, Claim.under(new.epoch))), 5)
        assert offsets.query(KEY) == 1


async def _done(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None:
        await waiting


async def test_a_deleted_topic_that_was_never_here_leaves_no_record(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    async with working(scene):
        await scene.replica.lead(1)
        scene.announce(1_000, deleted=True)
        await until(lambda: scene.is_over)
        assert scene.written == 0


async def test_a_slave_leaves_it_to_the_master_until_it_is_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    async with working(scene):
        scene.announce(1_000)
        await asyncio.sleep(0.02)
        assert not scene.is_over
        await scene.replica.lead(1)
        scene.ends.wake()
        await until(lambda: scene.is_over)
        assert scene.written == 1


async def test_a_slave_that_waits_for_an_end_sleeps(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    async with working(scene):
        scene.announce(1_000)
        await asyncio.sleep(0.05)
        with loop_wakes() as wakes:
            await asyncio.sleep(0.5)
        assert wakes.count <= 1
        assert not scene.is_over


async def test_an_end_that_could_not_be_written_is_tried_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    append(scene.store, TOPIC, 0, b"old")
    async with working(scene):
        await committed_everywhere(scene.replica)
        scene.replica.log.refusal = NotWritable("full")
        scene.announce(1_000)
        await asyncio.sleep(0.05)
        scene.replica.log.refusal = None
        await until(lambda: scene.is_over)


async def test_an_end_that_came_in_the_log_counts_once_it_is_on_the_disk(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    append(scene.store, "other", 0, b"not flushed yet")
    async with working(scene):
        scene.announce(1_000)
        scene.replica.state.apply([TopicEnded.of(TOPIC, 1_000, 0, 1)], 0)
        scene.ends.wake()
        await asyncio.sleep(0.02)
        assert not scene.is_over
        flush(scene.store)
        scene.ends.wake()
        await until(lambda: scene.is_over)
        assert scene.written == 0


def from_elsewhere() -> ConsumerOffsetTable:
    """It does not know which topics ended before a time far ahead."""
    table = ConsumerOffsetTable()
    table.mark = JournalMark(0, 0, topic_ends_from_ms=1 << 60)
    return table


@pytest.mark.parametrize(("deleted_at_ms", "ended"), [(1, 0), (1 << 50, 1)])
async def test_where_ends_may_be_unknown_messages_after_the_deletion_are_another_life(
    tmp_path: Path, deleted_at_ms: int, ended: int
) -> None:
    """The table came from elsewhere, so that nothing tells whether the topic ended already."""
    table = from_elsewhere()
    scene = Scene(tmp_path, table=table)
    append(scene.store, TOPIC, 0, b"stored at some time")
    assert stored(table).mark == table.mark
    async with working(scene):
        await scene.replica.lead(1)
        scene.announce(deleted_at_ms)
        await until(lambda: scene.is_over)
        assert scene.written == ended


async def test_the_life_that_a_master_has_left_alone_is_ended_by_no_later_master(
    tmp_path: Path,
) -> None:
    """A slave knows all ends, but not that its master did not."""
    master = Scene(tmp_path / "m", table=from_elsewhere())
    slave = Scene(tmp_path / "s", master.replica.log)
    for scene in (master, slave):
        append(scene.store, TOPIC, 0, b"of the new life")
    async with working(master), working(slave):
        await committed_everywhere(master.replica)
        for scene in (slave, master):
            scene.announce(1)
        await until(lambda: master.is_over)
        flush(slave.store)
        slave.ends.wake()
        await until(lambda: slave.replica.state.topic_ended_at_ms(TOPIC) == 1)
        master.replica.journal.end()
        await slave.replica.lead(2)
        slave.ends.wake()
        await until(lambda: slave.is_over)
        assert slave.written == 0
        assert slave.replica.offset() == master.replica.offset() == 1


async def test_a_slave_waits_for_no_end_of_a_topic_that_it_has_nothing_of(tmp_path: Path) -> None:
    """Its master writes none, and the table would grow with every deletion."""
    scene = Scene(tmp_path)
    async with working(scene):
        scene.announce(1_000, deleted=True)
        await until(lambda: scene.is_over)
        scene.announce(1_000)
        assert scene.topics.ending == {TOPIC: 1_000}, "created again, it is another matter"


def test_what_is_to_end_survives_a_restart_and_stays_out_of_apaches_way() -> None:
    table = TopicTable()
    table.begin_ending("orders", 5)
    table.begin_ending("orders", 4)
    again = TopicTable.load(table.snapshot_bytes(1))
    assert again.ending == {"orders": 5}
    again.has_ended("orders", 4)
    assert again.ending == {"orders": 5}
    again.has_ended("orders", 5)
    assert b"orders" not in again.snapshot_bytes(2)
