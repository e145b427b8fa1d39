"""How far a group is behind: what is counted, and what is left unsaid because nobody knows it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.members import Member, Members, Subscription
from aerobee.broker.groups.membership import GroupView
from aerobee.broker.groups.ownership import Ownership
from aerobee.broker.groups.queue_leases import GroupQueue, Lease, QueueLeases
from aerobee.broker.observe.metrics.lag import GroupLag, LagReading
from aerobee.broker.observe.metrics.rocketmq import importance
from aerobee.broker.observe.metrics.store_times import StoreTimes
from aerobee.broker.reading.pull_session import PullPlace
from aerobee.broker.reading.unread import QUEUES_PER_STEP, Readers, UnreadCounts
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from tests.broker.observe.test_metrics_traffic import batch_of


class Quiet:
    """A member's stream that nobody reads."""

    def on_members(self, view: GroupView) -> None: ...

    def on_granted(self, lease: Lease) -> None: ...

    def on_revoked(self, lease: Lease, reason: str) -> None: ...

    def on_ended(self, error: AerobeeError) -> None: ...


class Stream:
    """The pull streams' side of it."""

    def __init__(self, *places: PullPlace) -> None:
        self._places = places

    def places(self) -> list[PullPlace]:
        return list(self._places)


@dataclass
class Popped:
    """A queue of which POP has finished some and handed out others."""

    finished: int
    in_flight: int

    def unfinished(self, queue_end: int) -> int:
        return queue_end - self.finished


@dataclass
class World:
    """A store with the topic `t` of two queues, ten messages in each, one every second."""

    clock: ManualClock
    store: MessageStore
    pool: ThreadPoolExecutor
    topics: TopicTable = field(default_factory=TopicTable)
    offsets: ConsumerOffsetTable = field(default_factory=ConsumerOffsetTable)
    streams: list[Stream] = field(default_factory=list)
    popped: dict[GroupQueue, Popped] = field(default_factory=dict)

    def __post_init__(self) -> None:
        members, leases = Members(), QueueLeases(run_number=1)
        self.coordinator = GroupCoordinator(
            members,
            Ownership(members, leases, on_lease_ended=lambda _: None),
            call_soon=lambda push: None,
        )
        self.topics.put(TopicConfig(name="t", read_queue_count=2, write_queue_count=2))
        delay = LoopDelay(self.clock)
        reads = ReadPool(
            self.pool, Counters(), self.clock, loop_delay=delay, threads=1, bytes_per_s=0
        )
        self.counts = UnreadCounts(
            Readers(self.store, self.topics, self.offsets, members),
            leases,
            lambda: self.streams,  # type: ignore[arg-type, return-value]
            self.popped.get,
        )
        self.reading = LagReading(self.counts, StoreTimes(self.store, reads))
        for _ in range(10):
            for queue_id in range(2):
                self.store.append(batch_of("t", 10), queue_id=queue_id)
            self.clock.advance_ms(1_000)
        self.store.confirm(self.store.appended_end)

    def join(self, group: str, *, broadcasting: bool = False) -> Member:
        member = Member(
            group, "c", "i", (Subscription("t"),), broadcasting, 1e6, self.clock.monotonic_s()
        )
        self.coordinator.join(member, (), Quiet())
        return member

    async def read(self) -> list[GroupLag]:
        return await self.reading.read(self.clock.now_ms, Slices(self.clock))

    async def one(self) -> tuple[int | None, int | None, int | None, int | None]:
        (row,) = await self.read()
        return row.lag, row.inflight, row.ready, row.latency_ms


class CountedSlices(Slices):
    """Knows how often others could have run."""

    breaths = 0

    async def breathe(self) -> None:
        self.breaths += 1


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = ManualClock()
    config = StoreConfig(segment_bytes=1 << 20, disk_free_bytes_min=0)
    store = MessageStore.open(RealDisk(tmp_path / "store"), clock, config)
    with ThreadPoolExecutor(1) as pool:
        yield World(clock, store, pool)
    store.close()


async def test_unread_is_what_is_not_committed_and_its_age_is_that_of_the_oldest(
    world: World,
) -> None:
    world.offsets.commit("g", "t", 0, 4)
    world.offsets.commit("g", "t", 1, 9)
    assert await world.one() == (7, 0, 7, 6_000)


async def test_all_messages_of_a_wide_topic_are_counted_a_few_queues_at_a_time(
    world: World,
) -> None:
    wide = 10 * QUEUES_PER_STEP
    world.topics.put(TopicConfig(name="t", read_queue_count=wide, write_queue_count=wide))
    slices = CountedSlices(world.clock)
    assert await world.counts.stored("t", slices) == 20
    assert slices.breaths == 10


async def test_a_group_that_has_everything_is_not_behind(world: World) -> None:
    world.offsets.commit("g", "t", 0, 10)
    world.offsets.commit("g", "t", 1, 10)
    assert await world.one() == (0, 0, 0, 0)


async def test_a_queue_without_a_commit_counts_from_its_beginning_once_the_group_has_others(
    world: World,
) -> None:
    world.offsets.commit("g", "t", 0, 10)
    assert await world.one() == (10, 0, 10, 10_000)


async def test_of_a_group_that_never_committed_nobody_knows_where_it_begins(world: World) -> None:
    world.join("new")
    assert await world.one() == (None, None, None, None)


async def test_a_member_that_reads_shows_where_its_group_began(world: World) -> None:
    member = world.join("new")
    for queue_id in range(2):
        world.coordinator.acquire(
            member, GroupQueue(member.group, "t", queue_id), world.clock.monotonic_s()
        )
    world.streams.append(
        Stream(
            PullPlace(GroupQueue("new", "t", 0), 6, 8),
            PullPlace(GroupQueue("new", "t", 1), 10, 10),
        )
    )
    assert await world.one() == (4, 2, 2, 4_000)


async def test_of_a_queue_that_pop_has_every_message_is_counted_that_is_not_finished(
    world: World,
) -> None:
    world.offsets.commit("g", "t", 0, 2)
    world.offsets.commit("g", "t", 1, 10)
    world.popped[GroupQueue("g", "t", 0)] = Popped(finished=5, in_flight=3)
    world.popped[GroupQueue("g", "t", 1)] = Popped(finished=10, in_flight=0)
    assert await world.one() == (5, 3, 2, 8_000)


async def test_what_was_sent_and_not_committed_is_in_flight(world: World) -> None:
    member = world.join("g")
    world.offsets.commit("g", "t", 0, 2)
    world.offsets.commit("g", "t", 1, 10)
    for queue_id in range(2):
        world.coordinator.acquire(
            member, GroupQueue(member.group, "t", queue_id), world.clock.monotonic_s()
        )
    world.streams.append(Stream(PullPlace(GroupQueue("g", "t", 0), 0, 7)))
    lag, inflight, ready, _ = await world.one()
    # Of the other queue its holder has everything, wherever it read that.
    assert (lag, inflight, ready) == (8, 5, 3)


async def test_what_a_member_reads_elsewhere_is_not_guessed(world: World) -> None:
    member = world.join("g")
    world.offsets.commit("g", "t", 0, 2)
    world.offsets.commit("g", "t", 1, 2)
    world.coordinator.acquire(member, GroupQueue("g", "t", 0), world.clock.monotonic_s())
    assert (await world.one())[:3] == (16, None, None)


async def test_members_that_share_nothing_have_no_lag(world: World) -> None:
    world.join("all", broadcasting=True)
    assert await world.read() == []


async def test_topics_that_are_gone_are_left_out(world: World) -> None:
    world.offsets.commit("g", "gone", 0, 4)
    assert await world.read() == []


async def test_groups_with_members_come_before_those_that_only_committed_once(
    world: World,
) -> None:
    """What a bound cuts off comes last."""
    for group in ("gone-a", "gone-b"):
        world.offsets.commit(group, "t", 0, 2)
    world.join("present")
    assert [row.group for row in await world.read()] == ["present", "gone-a", "gone-b"]


def test_the_groups_with_the_most_lag_come_first_and_unknown_ones_before_those_without() -> None:
    rows = [GroupLag(name, "t", lag) for name, lag in (("a", 0), ("b", 7), ("c", None), ("d", 9))]
    assert [each.group for each in sorted(rows, key=importance)] == ["d", "b", "c", "a"]
