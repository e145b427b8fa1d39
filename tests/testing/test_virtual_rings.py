"""A poll at any node finds any message of its topic, wherever its queue lives: in virtual time, in
which a message is late only if something waits for a timer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from aerobee.access.meter import passed_on
from aerobee.broker.edge.own.ring_service import RingService
from aerobee.broker.popping.bells import FarWaiter
from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.producer import Producer
from aerobee.rocketmq_api.services.receives import Receives
from aerobee.rocketmq_api.services.rings import Line
from aerobee.rpc.core.status import RpcError, Status
from aerobee.testing import VirtualCluster, faults
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.support.v2_calls import V2, Received, sent_message
from tests.support.v2_own_channel import OwnChannel

START = datetime(2030, 1, 1, tzinfo=UTC)
AT_ONCE = timedelta(milliseconds=200)
POLL_S = 20.0


@dataclass
class Scene:
    cluster: VirtualCluster
    producer: Producer
    nodes: dict[str, V2]
    """The nameserver, and the brokers by name."""
    connect: Callable[[str], V2]

    async def send(self, broker: str, body: bytes, **fields: Any) -> None:
        message = Message("t", body, **fields)
        await self.producer.send(message, queue=MessageQueue("t", broker, 0))

    async def later(self, node: str, **fields: Any) -> Poll:
        """A poll that waits at a node."""
        poll = Poll(self, node, fields)
        await self.cluster.advance(seconds=1)
        assert not poll.task.done()
        return poll


class Poll:
    def __init__(self, scene: Scene, node: str, fields: dict[str, Any]) -> None:
        self._scene = scene
        fields = {"wait_s": POLL_S, **fields}
        # Clients name the broker that they ask.
        broker = "" if node == "nameserver" else node
        group = fields.pop("group", "g")
        receive = scene.nodes[node].receive("t", group, broker=broker, **fields)
        self.task = asyncio.create_task(receive)

    async def got(self, within: timedelta = AT_ONCE) -> Received:
        began = self._scene.cluster.now
        received = await self.task
        assert self._scene.cluster.now - began <= within
        return received

    async def bodies(self, within: timedelta = AT_ONCE) -> list[bytes]:
        return [each.body for each in (await self.got(within)).messages]


@asynccontextmanager
async def scene_of(
    groups: int = 2, replicas: int = 1, *, queues: int = 0, kind: str = "NORMAL"
) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            VirtualCluster(groups=groups, replicas=replicas, starts_at=START)
        )
        await cluster.create_topic("t", queues=queues or groups, attributes={"message.type": kind})

        def connect(address: str) -> V2:
            channel = OwnChannel(address)
            stack.push_async_callback(channel.close)
            return V2(cast(Any, channel))

        names = {f"broker-{chr(ord('a') + each)}" for each in range(groups)}
        nodes = {name: connect(cluster.broker(name).address) for name in names}
        nodes["nameserver"] = connect(cluster.nameservers)
        producer = await stack.enter_async_context(Producer(cluster.nameservers))
        yield Scene(cluster, producer, nodes, connect)


@pytest.mark.parametrize("node", ["broker-a", "broker-b", "broker-c", "nameserver"])
async def test_a_poll_gets_what_comes_to_any_broker_at_once(node: str) -> None:
    async with scene_of(3) as scene:
        for broker in ("broker-a", "broker-b", "broker-c", "broker-b"):
            poll = await scene.later(node)
            await scene.send(broker, broker.encode())
            assert await poll.bodies() == [broker.encode()]


async def test_a_poll_at_a_broker_without_a_queue_of_the_topic_gets_what_comes() -> None:
    async with scene_of(queues=1) as scene:
        for node in scene.nodes:
            poll = await scene.later(node)
            await scene.send("broker-a", b"x")
            assert await poll.bodies() == [b"x"]


async def test_a_first_poll_gets_what_is_already_there_wherever_it_is() -> None:
    async with scene_of() as scene:
        await scene.send("broker-b", b"x")
        for number, node in enumerate(scene.nodes):
            assert await Poll(scene, node, {"group": f"g{number}"}).bodies() == [b"x"]


async def test_a_delayed_message_of_another_broker_comes_when_it_is_due() -> None:
    async with scene_of(kind="MIXED") as scene:
        await scene.send("broker-b", b"x", delay=timedelta(seconds=10))
        sent = scene.cluster.now
        poll = await scene.later("broker-a")
        assert await poll.bodies(timedelta(seconds=11)) == [b"x"]
        assert timedelta(seconds=10) <= scene.cluster.now - sent < timedelta(seconds=11)


async def test_what_another_broker_handed_out_comes_again_when_its_time_is_over() -> None:
    async with scene_of() as scene:
        await scene.send("broker-b", b"x")
        received = await Poll(scene, "broker-a", {}).got()
        taken = scene.cluster.now
        [again] = (await Poll(scene, "broker-a", {}).got(timedelta(seconds=11))).messages
        assert again.system_properties.delivery_attempt == 2
        assert timedelta(seconds=10) <= scene.cluster.now - taken < timedelta(seconds=10.3)
        client = scene.nodes["broker-a"]
        assert await client.acknowledge("g", *received.messages) == [v2.INVALID_RECEIPT_HANDLE]
        # Changed to 3 s, and acknowledged in the end, at a node that does not have it.
        assert (await client.change("g", again, 3)).status.code == v2.OK
        [third] = (await Poll(scene, "nameserver", {}).got(timedelta(seconds=3.3))).messages
        assert await scene.nodes["nameserver"].acknowledge("g", third) == [v2.OK]


async def test_a_message_group_goes_on_at_another_broker_in_its_order() -> None:
    async with scene_of(kind="FIFO") as scene:
        for number in range(3):
            message = sent_message("t", b"%d" % number, f"ID-{number}", message_group="m")
            await scene.nodes["broker-a"].send(message)
        async with AdminClient(scene.cluster.nameservers) as admin:
            await admin.groups.configure("g", ordered=True)
        [first] = (await Poll(scene, "broker-a", {"count": 1}).got()).messages
        waiting = {node: await scene.later(node, count=1) for node in ("broker-a", "broker-b")}
        for number in (1, 2):
            assert await scene.nodes["broker-a"].acknowledge("g", first) == [v2.OK]
            await scene.cluster.advance(seconds=0.2)
            [node] = [node for node, poll in waiting.items() if poll.task.done()]
            [first] = (await waiting.pop(node).got()).messages
            assert first.body == b"%d" % number


async def test_only_what_passes_a_filter_ends_a_poll_elsewhere() -> None:
    async with scene_of() as scene:
        for asked in ({"tags": "paid"}, {"sql": "a BETWEEN 5 AND 7 AND b IN ('x', 'y')"}):
            poll = await scene.later("broker-a", **asked)
            await scene.send("broker-b", b"no", tag="new", properties={"a": "5", "b": "z"})
            await scene.cluster.advance(seconds=1)
            assert not poll.task.done()
            await scene.send("broker-b", b"yes", tag="paid", properties={"a": "6", "b": "y"})
            assert await poll.bodies() == [b"yes"]


async def test_pollers_of_two_nodes_share_all_messages_and_none_comes_twice() -> None:
    async with scene_of(queues=4) as scene:
        bodies: list[bytes] = []

        async def consume(node: str) -> None:
            while len(bodies) < 60:
                got = await scene.nodes[node].receive("t", "g", wait_s=5, count=4)
                bodies.extend(each.body for each in got.messages)
                if got.messages:
                    codes = await scene.nodes[node].acknowledge("g", *got.messages)
                    assert set(codes) == {v2.OK}

        consumers = [asyncio.create_task(consume(each)) for each in ("broker-a", "broker-b")]
        await scene.cluster.advance(seconds=1)
        began = scene.cluster.now
        for number in range(60):
            await scene.send(("broker-a", "broker-b")[number % 2], b"%d" % number)
        await asyncio.wait(consumers, return_when=asyncio.FIRST_COMPLETED)
        assert scene.cluster.now - began < timedelta(seconds=1)
        assert sorted(bodies) == sorted(b"%d" % number for number in range(60))
        await asyncio.gather(*consumers)


async def test_a_message_that_comes_in_its_clients_absence_goes_to_another_at_once() -> None:
    async with scene_of() as scene:
        gone = await scene.later("broker-a")
        gone.task.cancel()
        await asyncio.wait((gone.task,))
        await scene.cluster.settle()
        await scene.send("broker-b", b"x")
        [message] = (await Poll(scene, "broker-b", {}).got()).messages
        assert message.system_properties.delivery_attempt == 1


async def test_the_polls_of_a_client_that_leaves_end_and_swallow_nothing() -> None:
    async with scene_of() as scene:
        polls = [await scene.later("broker-a"), await scene.later("broker-a", group="h")]
        left = service_pb2.NotifyClientTerminationRequest(group=v2.Resource(name="g"))
        await scene.nodes["broker-a"].call("NotifyClientTermination", left)
        for poll in polls:
            assert await poll.bodies() == []
        await scene.send("broker-b", b"x")
        assert await Poll(scene, "broker-b", {}).bodies() == [b"x"]


async def test_a_client_that_goes_while_it_is_answered_gives_back_what_is_of_another_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other broker has written its whole answer, and knows nothing of the client."""
    is_gone = asyncio.Event()

    def goes(group: str, part: Any) -> None:
        passed_on(group, part)
        if part.HasField("delivery_timestamp") and not is_gone.is_set():
            is_gone.set()
            raise asyncio.CancelledError

    monkeypatch.setattr("aerobee.rocketmq_api.services.receives.passed_on", goes)
    async with scene_of() as scene:
        poll = await scene.later("broker-a")
        await scene.send("broker-b", b"x")
        await is_gone.wait()
        poll.task.cancel()
        [message] = (await Poll(scene, "broker-b", {}).got()).messages
        assert message.body == b"x"
        assert message.system_properties.delivery_attempt == 1


async def test_a_dead_letter_topic_without_a_message_reads_as_empty_at_every_node() -> None:
    async with scene_of() as scene:
        for node in scene.nodes.values():
            found = await node.receive("%DLQ%g", "readers", wait_s=5)
            assert (found.code, found.messages) == (v2.MESSAGE_NOT_FOUND, [])
        poll = asyncio.create_task(scene.nodes["broker-a"].receive("%DLQ%g", "readers", wait_s=20))
        client = scene.nodes["broker-b"]
        await scene.send("broker-b", b"x")
        [message] = (await client.receive("t", "g")).messages
        began = scene.cluster.now
        assert await client.forward("g", message) == v2.OK
        assert [each.body for each in (await poll).messages] == [b"x"]
        assert scene.cluster.now - began <= AT_ONCE


async def test_polls_that_wait_cause_no_traffic_between_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def counted(self: Any, *args: Any, **options: Any) -> Any:
            counts[name] += 1
            return method(self, *args, **options)

        monkeypatch.setattr(owner, name, counted)

    count(Line, "say")
    count(FarWaiter, "_tell")
    count(Receives, "_take")
    async with scene_of(3) as scene:
        polls = [
            Poll(scene, node, {"group": f"g{number}"})
            for number in range(10)
            for node in scene.nodes
            for _ in range(3)
        ]
        await scene.cluster.advance(seconds=2)
        # One for each group of a node at each other broker, although three polls share it.
        assert 0 < counts["_tell"] <= 10 * (3 * 2 + 3)
        counts.clear()
        await scene.cluster.advance(seconds=15)
        assert not any(poll.task.done() for poll in polls)
        assert counts == {}
        await scene.send("broker-b", b"x")
        await scene.cluster.advance(seconds=1)
        assert sum(poll.task.done() for poll in polls) == 10
        # A poll that waits where the message is, or one ring for another, and what that one says.
        assert counts["_take"] <= 3 * 10


async def test_a_client_that_names_one_broker_gets_the_messages_of_all() -> None:
    """Although there is always one at the broker that it names."""
    async with scene_of() as scene:
        for number in range(20):
            await scene.send("broker-a", b"a%d" % number)
            await scene.send("broker-b", b"b%d" % number)
        got = [await Poll(scene, "broker-a", {"count": 1}).bodies() for _ in range(16)]
        assert any(body.startswith(b"b") for [body] in got)


async def test_a_broker_without_rings_is_polled_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a cluster is upgraded."""

    async def unimplemented(*_: object) -> None:
        raise RpcError(Status.UNIMPLEMENTED, "unknown service aerobee.v1.RingService")

    monkeypatch.setattr(RingService, "Rings", unimplemented)
    async with scene_of() as scene:
        await scene.send("broker-b", b"x")
        found = await scene.nodes["nameserver"].receive("t", "g", broker="broker-b", wait_s=5)
        assert [each.body for each in found.messages] == [b"x"]
        poll = await scene.later("broker-a")
        await scene.send("broker-a", b"y")
        assert await poll.bodies() == [b"y"]


async def test_a_poll_goes_on_while_another_broker_is_away_and_when_it_is_back() -> None:
    async with scene_of() as scene:
        await (await scene.later("broker-a")).task
        faults.kill(scene.cluster, "broker-b")
        poll = await scene.later("broker-a")
        await scene.send("broker-a", b"here")
        assert await poll.bodies() == [b"here"]
        poll = await scene.later("broker-a")
        await scene.cluster.start_broker("broker-b")
        await scene.cluster.advance(seconds=5)
        assert not poll.task.done()
        await scene.send("broker-b", b"there")
        assert await poll.bodies() == [b"there"]


async def test_a_poll_follows_a_broker_group_to_its_new_master() -> None:
    async with scene_of(2, 2) as scene:
        here = await scene.cluster.master("broker-a")
        master = await scene.cluster.master("broker-b")
        other = "broker-b" if master == "broker-b-1" else "broker-b-1"
        await scene.later(here)  # its wish is at the first master
        faults.kill(scene.cluster, master)
        while await scene.cluster.master("broker-b") != other:
            await scene.cluster.advance(seconds=1)
        await scene.cluster.advance(seconds=20)  # the dead replica leaves the in-sync set
        poll = await scene.later(here)
        await scene.send("broker-b", b"x")
        assert await poll.bodies() == [b"x"]


async def test_a_poll_sees_queues_that_are_made_while_it_waits() -> None:
    async with scene_of(queues=2) as scene:
        poll = await scene.later("broker-a")
        async with AdminClient(scene.cluster.nameservers) as admin:
            await admin.topics.update("t", queues=8)
        await scene.cluster.advance(seconds=1)
        assert not poll.task.done()
        message = Message("t", b"new")
        await scene.producer.send(message, queue=MessageQueue("t", "broker-b", 3))
        assert await poll.bodies() == [b"new"]
