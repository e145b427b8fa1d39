"""Groups that nobody uses expire, by a clock that the test moves; and a broker has a limit of them.

Over a journal in memory, whose records are confirmed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.known_groups import KnownGroups
from aerobee.broker.groups.members import Member, Subscription
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.group_expiry import DAY_MS, GroupExpiry
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.runtime.errors import LimitReached
from aerobee.store.engine.tables.config_tables import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicTable,
)
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from tests.support.journal_log import MemoryLog
from tests.support.journal_replica import Replica, nothing, running

EXPIRE_DAYS = 30


@dataclass
class Scene:
    """A master and what expires on it. `ends`: the queues' ends by (topic, queue id)."""

    master: Replica
    configs: SubscriptionGroupTable = field(default_factory=SubscriptionGroupTable)
    topics: TopicTable = field(default_factory=TopicTable)
    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = self.master.clock
        self.coordinator = GroupCoordinator(
            self.master.groups.members,
            self.master.groups.ownership,
            call_soon=lambda push: None,
        )
        self.start()

    def start(self, *, days: int = EXPIRE_DAYS) -> None:
        """A process begins with the tables as they are."""
        removal = GroupRemoval(
            self.master.table,
            self.configs,
            self.master.journal,
            self.coordinator,
            self.clock,
            save_configs=nothing,
        )
        self.expiry = GroupExpiry(
            self.configs,
            self.master.table,
            self.topics,
            self.coordinator,
            self.master.journal,
            removal,
            self.clock,
            expire_after_ms=days * DAY_MS,
            bounds=lambda topic, queue_id: self.ends.get((topic, queue_id), (0, 0)),
        )

    async def commit(self, group: str, offset: int, topic: str = "t") -> None:
        await self.master.commit(offset, key=GroupQueue(group, topic, 0))

    async def pass_days(self, days: float, *, step_days: float = 1.0) -> None:
        """Time passes, and the expiry looks again and again."""
        for _ in range(round(days / step_days)):
            self.clock.advance_ms(round(step_days * DAY_MS))
            await self.expiry.look()

    def groups(self) -> set[str]:
        return {*self.configs.names(), *self.master.table.groups()}


def with_scene(test: Callable[[Scene], object]) -> Callable[[], object]:
    async def run() -> None:
        master = Replica(MemoryLog())
        async with running(master):
            await master.lead(1)
            await test(Scene(master))  # type: ignore[misc]

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@with_scene
async def test_a_group_expires_when_it_has_not_been_used_for_the_time(scene: Scene) -> None:
    await scene.commit("g", 5)
    scene.configs.put(SubscriptionGroupConfig(name="g"))
    await scene.pass_days(EXPIRE_DAYS - 1)
    assert scene.groups() == {"g"}
    await scene.commit("g", 6)
    await scene.pass_days(EXPIRE_DAYS - 1)
    assert (scene.groups(), scene.expiry.expired) == ({"g"}, 0)
    await scene.pass_days(2)
    assert (scene.groups(), scene.expiry.expired) == (set(), 1)
    assert b'"expired"' in scene.master.log.bodies[-1]


@with_scene
async def test_a_group_that_only_joined_is_forgotten_and_one_with_members_is_not(
    scene: Scene,
) -> None:
    KnownGroups(scene.configs, scene.master.table, groups_max=9).admit("joined")
    scene.configs.put(SubscriptionGroupConfig(name="lives"))
    scene.master.groups.members.join(
        Member("lives", "m", "1", (Subscription("t"),), False, 1e9, scene.clock.monotonic_s())
    )
    await scene.pass_days(EXPIRE_DAYS + 2)
    assert scene.groups() == {"lives"}
    scene.master.groups.members.leave("lives", "m", "1")
    await scene.pass_days(EXPIRE_DAYS - 2)
    assert scene.groups() == {"lives"}
    await scene.pass_days(4)
    assert scene.groups() == set()
    assert scene.master.groups.members.generation("lives") == 0


@with_scene
async def test_a_group_for_which_unread_messages_lie_in_the_log_does_not_expire(
    scene: Scene,
) -> None:
    scene.topics.put(TopicConfig(name="t"))
    scene.topics.put(TopicConfig(name="free", attributes={"keep_unread_max_bytes": "0"}))
    scene.ends = {("t", 0): (0, 8), ("t", 1): (0, 0), ("free", 0): (0, 8), ("gone", 0): (0, 8)}
    for group, offset, topic in (
        ("behind", 7, "t"),
        ("read", 8, "t"),
        ("not-kept", 7, "free"),
        ("topic-gone", 7, "gone"),
    ):
        await scene.commit(group, offset, topic)
    await scene.pass_days(3 * EXPIRE_DAYS)
    assert scene.groups() == {"behind"}
    scene.ends["t", 0] = (8, 8)
    await scene.pass_days(1)
    assert scene.groups() == set(), "retention has taken what it waited for"


@with_scene
async def test_a_queue_on_which_the_group_never_committed_is_unread_from_its_beginning(
    scene: Scene,
) -> None:
    scene.topics.put(TopicConfig(name="t", read_queue_count=2))
    scene.ends = {("t", 0): (0, 8), ("t", 1): (3, 4)}
    await scene.commit("g", 8)
    await scene.pass_days(2 * EXPIRE_DAYS)
    assert scene.groups() == {"g"}


@with_scene
async def test_groups_of_a_store_that_was_taken_over_count_from_the_take_over(scene: Scene) -> None:
    scene.master.table.commit("apache", "t", 0, 9)
    scene.configs.put(SubscriptionGroupConfig(name="apache-idle"))
    scene.configs.put(SubscriptionGroupConfig(name="TOOLS_CONSUMER"))
    await scene.expiry.look()
    await scene.pass_days(EXPIRE_DAYS - 1)
    assert {"apache", "apache-idle"} <= scene.groups()
    # A restart does not begin to count anew: the tables know.
    scene.configs = SubscriptionGroupTable.load(scene.configs.snapshot_bytes(1))
    scene.start()
    await scene.pass_days(2)
    assert scene.groups() == {"TOOLS_CONSUMER"}


@with_scene
async def test_a_clock_that_is_set_forward_ends_no_group(scene: Scene) -> None:
    await scene.commit("g", 5)
    await scene.expiry.look()
    scene.clock.step_wall_ms(400 * DAY_MS)
    await scene.pass_days(0.9, step_days=0.1)
    assert scene.groups() == {"g"}
    scene.clock.step_wall_ms(-400 * DAY_MS)
    await scene.pass_days(2)
    assert scene.groups() == {"g"}
    scene.clock.step_wall_ms(400 * DAY_MS)
    scene.start()
    await scene.pass_days(0.9, step_days=0.1)
    assert scene.groups() == {"g"}, "a process that starts with a wrong clock believes it no more"


@with_scene
async def test_a_commit_on_its_way_keeps_its_group(scene: Scene) -> None:
    await scene.commit("g", 5)
    scene.clock.advance_ms(2 * EXPIRE_DAYS * DAY_MS)
    scene.master.log.is_sync = False
    done = scene.master.commit(6, key=GroupQueue("g", "t", 0))
    await scene.expiry.look()
    while not scene.master.log.records_end > 1:
        await asyncio.sleep(0)
    scene.master.log.confirm()
    await done
    await scene.expiry.look()
    assert scene.groups() == {"g"}


@with_scene
async def test_a_group_that_cannot_be_deleted_now_keeps_none_of_the_others(
    scene: Scene,
) -> None:
    for group in ("a", "b"):
        await scene.commit(group, 5)
    leases = scene.coordinator.ownership.leases
    believed = leases.acquire(GroupQueue("a", "t", 0), "gone")
    assert believed is not None
    leases.revoke(believed.key, 1e12)
    await scene.pass_days(2 * EXPIRE_DAYS, step_days=2 * EXPIRE_DAYS)
    assert scene.groups() == {"a"}
    leases.end_blocks(2e12)
    await scene.expiry.look()
    assert (scene.groups(), scene.expiry.expired) == (set(), 2)


@with_scene
async def test_a_slave_and_a_setting_of_0_end_none(scene: Scene) -> None:
    await scene.commit("g", 5)
    scene.start(days=0)
    await scene.expiry.run()
    scene.start()
    scene.master.journal.end()
    await scene.pass_days(2 * EXPIRE_DAYS, step_days=EXPIRE_DAYS)
    assert scene.groups() == {"g"}


def test_a_broker_takes_no_more_groups_than_its_limit_and_keeps_those_it_has() -> None:
    configs, offsets = SubscriptionGroupTable(), ConsumerOffsetTable()
    offsets.commit("apache", "t", 0, 1)
    known = KnownGroups(configs, offsets, groups_max=2)
    known.admit("one")
    known.admit("two")
    known.admit("one")
    known.admit("apache")
    with pytest.raises(LimitReached, match=r"with 3 of 2 \(groups\.max.*delete"):
        known.admit("three")
    configs.remove("one")
    configs.remove("two")
    known.admit("three")
