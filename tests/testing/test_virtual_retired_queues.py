"""A FIFO topic leaves a broker group: an ordered group of official clients keeps its order."""

from __future__ import annotations

from aerobee.client_core.admin_client import AdminClient
from aerobee.testing import VirtualCluster
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.support.v2_calls import V2, sent_message
from tests.testing.test_virtual_pop import client_of

OLD, NEW = [("broker-a", 0), ("broker-a", 1)], [("broker-b", 2), ("broker-b", 3)]
KEPT = [("broker-b", 0), ("broker-b", 1)]


async def polled(client: V2) -> list[tuple[str, int]]:
    """The queues that a member of group `billing` is to poll."""
    request = service_pb2.QueryAssignmentRequest(
        topic=v2.Resource(name="orders"), group=v2.Resource(name="billing")
    )
    answer = await client.call("QueryAssignment", request)
    return [(a.message_queue.broker.name, a.message_queue.id) for a in answer.assignments]


async def test_successors_are_polled_once_the_old_queues_are_finished_and_take_no_more() -> None:
    async with (
        VirtualCluster(groups=2) as cluster,
        AdminClient(cluster.nameservers, clock=cluster.clock) as admin,
        client_of(cluster, "broker-b") as client,
        client_of(cluster, "broker-a") as old_client,
    ):
        await cluster.create_topic("orders", queues=4, attributes={"message.type": "FIFO"})
        await admin.groups.configure("billing", ordered=True)
        groups = [f"group-{number}" for number in range(20)]
        for name in groups:
            await client.send(sent_message("orders", message_id=name, message_group=name))
        await admin.topics.spread("orders", retire=["broker-a"])
        await cluster.advance(seconds=5)
        assert await polled(client) == OLD + KEPT
        received = await old_client.receive("orders", "billing", broker="broker-a")
        assert received.messages
        await cluster.advance(minutes=2)
        assert await polled(client) == OLD + KEPT  # not acknowledged yet
        received = await old_client.receive("orders", "billing", broker="broker-a")
        await old_client.acknowledge("billing", *received.messages)
        await cluster.advance(seconds=5)
        assert await polled(client) == OLD + KEPT + NEW
        # The same groups' messages go there now.
        for name in groups:
            await client.send(sent_message("orders", message_id=f"{name}-2", message_group=name))
        moved = {each.system_properties.message_group for each in received.messages}
        old = (
            await client.receive("orders", "billing", broker="broker-b", invisible_s=300)
        ).messages
        places = {
            each.system_properties.message_group: each.system_properties.queue_id
            for each in old
            if each.system_properties.message_id.endswith("-2")
        }
        assert moved
        assert all(places[name] in (2, 3) for name in moved & places.keys())
