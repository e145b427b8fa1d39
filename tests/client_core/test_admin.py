"""What operators ask, against a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.client_core import (
    BrokerAdmin,
    ClusterConnection,
    GroupAdmin,
    MessageQueue,
    Offsets,
    TopicAdmin,
)
from aerobee.client_core.master_search import Masters
from aerobee.cluster_view.methods import SEND
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeNameserver

QUEUES = (MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1))


async def store(connection: ClusterConnection, queue: MessageQueue, count: int) -> list[int]:
    """Sends `count` messages and gives their store times."""
    route = await connection.routes.route(queue.topic)
    times = []
    for _ in range(count):
        response = await connection.channels.call(
            route.master_address(queue.broker_name),
            SEND,
            broker_pb2.SendRequest(topic=queue.topic, queue_id=queue.queue_id, body=b"1"),
        )
        times.append(response.ack.store_timestamp_ms)
    return times


async def test_bounds_and_times_of_queues(served: ClusterConnection) -> None:
    offsets = Offsets(served)
    times = await store(served, QUEUES[1], 3)
    bounds = await offsets.bounds(QUEUES)
    assert (bounds[QUEUES[0]].count, bounds[QUEUES[1]].count) == (0, 3)
    assert bounds[QUEUES[1]].max_offset_end == 3
    assert bounds[QUEUES[1]].last_store_timestamp_ms == times[-1]
    at_start = await offsets.by_timestamp([QUEUES[1]], times[0])
    assert at_start == {QUEUES[1]: 0}
    with pytest.raises(errors.QueueNotFound):
        await offsets.bounds([MessageQueue("orders", "broker-a", 2)])
    with pytest.raises(errors.QueueNotFound):
        await offsets.by_timestamp([MessageQueue("orders", "broker-a", 2)], 0)
    with pytest.raises(errors.NoBrokerAvailable):
        await offsets.bounds([MessageQueue("orders", "broker-b", 0)])
    with pytest.raises(errors.TopicNotFound):
        await offsets.bounds([MessageQueue("other", "broker-a", 0)])


async def test_offsets_of_a_group_are_set_and_described(served: ClusterConnection) -> None:
    offsets = Offsets(served)
    groups = GroupAdmin(served)
    await store(served, QUEUES[0], 5)
    with pytest.raises(errors.GroupNotFound, match="billing"):
        await groups.describe("billing")
    assert await offsets.committed("billing", QUEUES) == dict.fromkeys(QUEUES)
    await offsets.reset("billing", {QUEUES[0]: 2})
    assert await offsets.committed("billing", QUEUES) == {QUEUES[0]: 2, QUEUES[1]: None}
    assert await groups.list() == ["billing"]
    group = await groups.describe("billing")
    assert group.lag == 3
    assert group.members == ()
    (state,) = [state for state in group.queues if state.queue == QUEUES[0]]
    assert (state.committed_offset, state.max_offset_end, state.lease_holder) == (2, 5, None)
    with pytest.raises(errors.AerobeeError):
        await offsets.reset("billing", {MessageQueue("orders", "broker-a", 2): 0})


async def test_brokers_that_are_down_are_left_out(
    nameserver: FakeNameserver, served: ClusterConnection
) -> None:
    groups = GroupAdmin(served)
    await Offsets(served).reset("billing", {QUEUES[0]: 0})
    nameserver.brokers["broker-b"] = type(nameserver.brokers["broker-a"])("127.0.0.1:1")  # type: ignore[call-arg]
    assert await groups.list() == ["billing"]
    assert (await groups.describe("billing")).name == "billing"
    masters = await Masters(served).all()
    assert [master.broker_name for master in masters] == ["broker-a", "broker-b"]
    stats = await BrokerAdmin(served).statistics(masters[0].address)
    assert stats.everything["identity"]["brokerName"] == "broker-a"


async def test_topics_are_created_changed_listed_and_deleted(
    connection: ClusterConnection,
) -> None:
    topics = TopicAdmin(connection)
    created = await topics.create("fresh", queues=3)
    assert created.queues_by_broker == {"broker-a": 3}
    with pytest.raises(errors.TopicExists):
        await topics.create("fresh")
    assert (await topics.update("fresh", permission="r")).permission == "r"
    assert [topic.name for topic in await topics.list()] == ["fresh", "orders"]
    await topics.delete("fresh")
    with pytest.raises(errors.TopicNotFound):
        await topics.delete("fresh")
    with pytest.raises(errors.TopicNotFound):
        await topics.update("fresh", permission="rw")
    with pytest.raises(errors.IllegalName):
        await topics.create("no/slash")
