"""Metrics, an audit, retention and the question what would be lost say the same of one broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aerobee.broker.observe.metrics.lag import GroupLag, LagReading
from aerobee.broker.observe.metrics.rocketmq import LagFamilies
from aerobee.broker.observe.metrics.store_times import StoreTimes
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.tables.config_tables import SubscriptionGroupConfig, TopicConfig
from aerobee.v1 import broker_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.observe.test_audit_service import Taken, commit, join, take
from tests.support.v2_calls import V2
from tests.support.waiting import until

TOPICS = {
    name: TopicConfig(name=name, read_queue_count=2, write_queue_count=2) for name in ("t", "fifo")
}
BODIES = [b"x"] * 10
ALL = 2 * len(BODIES)
FINISHED = 1
"""Messages that a group which uses POP has finished, of those that it took."""


@dataclass
class Said:
    """What each of the four says."""

    metrics: dict[tuple[str, str], GroupLag]
    remaining: dict[tuple[str, str], int]
    remaining_in_flight: int
    kept: dict[tuple[str, str, int], int]
    """The offset from which retention keeps a queue for a group that has not read all of it, or
    for one beside such a group."""
    audit: Taken

    def unread_for_retention(self, group: str, topic: str) -> int:
        """How many messages it keeps."""
        found = 0
        for (name, kept_topic, queue_id), offset in self.kept.items():
            if (name, kept_topic) == (group, topic):
                first, end, _ = self.audit.queues[topic, queue_id]
                found += max(0, end - max(first, offset))
        return found

    def unread_for_audit(self, group: str, topic: str) -> int:
        """As an auditor adds it up: commits, and ends read after them."""
        found = 0
        for queue_id in range(TOPICS[topic].read_queue_count):
            first, end, _ = self.audit.queues[topic, queue_id]
            row = self.audit.commits.get((group, topic, queue_id))
            found += end - (first if row is None else max(first, row["offset"]))
        return found


async def said(broker: RunningBroker) -> Said:
    wiring = broker.wiring
    slices = Slices(wiring.clock)
    lag = LagReading(wiring.unread, StoreTimes(wiring.store, wiring.reads))
    metrics = await lag.read(wiring.clock.now_ms, slices)
    remaining = await wiring.remaining.read()
    readers = UnreadReaders(wiring.readers)
    kept = {
        (group, each.topic, each.queue_id): offset
        async for some in readers.collect()
        for each in some
        for group, offset in each.offsets.items()
    }
    return Said(
        {(row.group, row.topic): row for row in metrics},
        {(group, topic): unread for group, topic, unread in remaining.readers},
        remaining.in_flight,
        kept,
        await take(broker, with_first_unread=True),
    )


@dataclass
class Scene:
    """A broker with groups."""

    broker: RunningBroker
    in_flight: dict[tuple[str, str], int]
    """How much of a group and topic is handed out."""
    members: list[Any]
    """They are members as long as somebody has them."""


async def scene(start_broker: StartBroker) -> Scene:
    """Ten messages in each of two queues of two topics, and groups of every kind."""
    broker = await start_broker(topics=TOPICS)
    for topic in TOPICS:
        for queue_id in range(2):
            await broker.send_bodies(topic, queue_id, *BODIES)
    await commit(broker, "lagging", 0, 4)
    await commit(broker, "lagging", 1, 9)
    for queue_id in range(2):
        await commit(broker, "done", queue_id, 10)
    await commit(broker, "partly", 0, 10)  # it never committed on the other queue
    broker.opened.groups.put(SubscriptionGroupConfig(name="ordered", consume_orderly=True))
    client = V2(broker.channel)
    in_flight: dict[tuple[str, str], int] = {}
    for group, topic in (("popped", "t"), ("ordered", "fifo")):
        for queue_id in range(2):
            await commit(broker, group, queue_id, 0, topic=topic)
        taken = await client.receive(topic, group, count=4, invisible_s=60)
        assert len(taken.messages) > FINISHED
        await client.acknowledge(group, *taken.messages[:FINISHED])
        in_flight[group, topic] = len(taken.messages) - FINISHED
    offsets = broker.opened.offsets
    for group, topic in in_flight:
        # POP commits a moment later.
        await until(lambda of=(group, topic): sum(offsets.of_topic(*of).values()) == FINISHED)
    members = [await join(broker, "new", "c1"), await broadcaster(broker)]
    return Scene(broker, in_flight, members)


async def broadcaster(broker: RunningBroker) -> Any:
    call = broker.groups.Membership()
    subscriptions = [broker_pb2.Subscription(topic="t")]
    joining = broker_pb2.Join(
        group="radio", client_id="c1", instance="1", subscriptions=subscriptions, broadcasting=True
    )
    await call.write(broker_pb2.MemberEvent(join=joining))
    while not (await call.read()).HasField("joined"):
        pass
    return call


async def test_all_four_say_the_same_of_groups_whose_beginning_is_known(
    start_broker: StartBroker,
) -> None:
    world = await scene(start_broker)
    found = await said(world.broker)
    expected = {
        ("lagging", "t"): 7,
        ("done", "t"): 0,
        ("partly", "t"): 10,
        ("popped", "t"): ALL - FINISHED,
        ("ordered", "fifo"): ALL - FINISHED,
    }
    for (group, topic), unread in expected.items():
        assert found.metrics[group, topic].lag == unread, group
        assert found.remaining.get((group, topic), 0) == unread, group
        assert found.unread_for_retention(group, topic) == unread, group
        assert found.unread_for_audit(group, topic) == unread, group


async def test_each_first_unread_message_is_the_same_for_retention_and_an_audit(
    start_broker: StartBroker,
) -> None:
    world = await scene(start_broker)
    found = await said(world.broker)
    for (group, topic, queue_id), row in found.audit.commits.items():
        if topic in TOPICS:
            _, end, _ = found.audit.queues[topic, queue_id]
            assert found.kept[group, topic, queue_id] == row["offset"]
            assert (row["first_unread_ms"] == -1) == (row["offset"] == end)


async def test_what_is_in_flight_is_the_same_for_metrics_and_for_what_would_be_lost(
    start_broker: StartBroker,
) -> None:
    world = await scene(start_broker)
    found = await said(world.broker)
    in_flight = {pair: row.inflight for pair, row in found.metrics.items() if row.inflight}
    assert in_flight == world.in_flight
    assert found.remaining_in_flight == sum(world.in_flight.values())


async def test_an_unknown_beginning_is_said_to_be_unknown_or_taken_for_the_first_message(
    start_broker: StartBroker,
) -> None:
    world = await scene(start_broker)
    found = await said(world.broker)
    row = found.metrics["new", "t"]
    assert (row.lag, row.inflight, row.ready, row.latency_ms) == (None, None, None, None)
    assert found.remaining["new", "t"] == ALL
    assert found.unread_for_retention("new", "t") == ALL
    assert "new" not in {group for group, _, _ in found.audit.commits}


async def test_a_group_that_keeps_its_offsets_itself_is_nobodys_reader(
    start_broker: StartBroker,
) -> None:
    world = await scene(start_broker)
    found = await said(world.broker)
    assert "radio" not in {group for group, _ in found.metrics}
    assert "radio" not in {group for group, _ in found.remaining}
    assert "radio" not in {group for group, _, _ in found.kept}
    assert "radio" not in {group for group, _, _ in found.audit.commits}


def test_a_sum_of_unknown_lags_only_is_no_zero() -> None:
    families = LagFamilies(1)
    families.add(GroupLag("known", "t", 7, 0, 7, 5))
    families.add(GroupLag("a", "t", None, None, None))
    families.add(GroupLag("b", "t", None, None, None))
    assert [len(family.rows) for family in families.families()] == [1, 1, 1, 1]
