"""A producer is asked on the stream that it has, also where that ends at a node that does not store
its messages."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import pytest

from aerobee.access.node import NodeAccess
from aerobee.broker.config import TransactionsConfig
from aerobee.broker.edge.rocketmq.known import OwnGroups
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.route import Endpoint, TopicRoute
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.needs import messaging_needs
from aerobee.rocketmq_api.services.failures import answer_errors
from aerobee.rocketmq_api.services.methods import SERVICE_NAME
from aerobee.rocketmq_api.services.service import MessagingService, add_messaging_service
from aerobee.rpc.grpc_config import Engine, GrpcConfig
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.clock import SystemClock
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.transactions.test_checks import Commits
from tests.support.grpcio_client import build_channel
from tests.support.transactions import ORDERS, Asked, half_message, seen, transactional
from tests.support.v2_calls import V2, codes
from tests.support.waiting import until

STORED = f"shop%{ORDERS}"
TOPICS = {name: transactional(name) for name in (ORDERS, STORED)}
SOON = TransactionsConfig(timeout_ms=1, check_interval_ms=50, checks_max=100_000)


class Node:
    """Without a store, in front of one broker."""

    def __init__(
        self, name: str, port: int, engine: Engine, access: NodeAccess | None = None
    ) -> None:
        self.port = port
        self.is_routed = True
        self.channels = Channels(credentials=None if access is None else access.credentials)
        clock = SystemClock()
        self.service = MessagingService(
            routes=self,
            peers=self.channels,
            clock=clock,
            groups=OwnGroups({}),  # type: ignore[arg-type]
            expressions=CompiledExpressions(),
            clients=ClientTable(clock),
            node=name,
        )
        guard = None
        if access is not None:
            guard = access.guard(messaging_needs("aerobee"), counts_connections=False)
        self.server = RpcServer(
            say_error,
            [SERVICE_NAME],
            engine=engine,
            answer_errors=answer_errors(clock),
            clock=clock,
            guard=guard,
        )
        add_messaging_service(self.service, self.server.server)
        self.running = asyncio.create_task(self.service.run())

    async def route(self, topic: str) -> TopicRoute:
        master = Endpoint("broker-a", 0, f"127.0.0.1:{self.port}", is_master=True)
        attributes = {"message.type": "TRANSACTION"}
        return TopicRoute(topic, 6, False, attributes, {"broker-a": 4}, (master,))

    def known(self, topic: str) -> None: ...

    def invalidate(self, topic: str) -> None: ...

    def telling(self, callback: Callable[[str], None]) -> AbstractContextManager[None]:
        return nullcontext()

    async def stop(self) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running
        self.service.end_streams()
        await self.server.stop(0)
        await self.channels.close()


@pytest.fixture(params=Engine)
async def broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> RunningBroker:
    grpc = GrpcConfig(engine=request.param)
    return await start_broker(topics=TOPICS, transactions=SOON, grpc=grpc)


@pytest.fixture
async def nodes(broker: RunningBroker) -> AsyncIterator[list[Node]]:
    nodes = [Node(f"node-{each}", broker.port, broker.config.grpc.engine) for each in range(2)]
    yield nodes
    for node in nodes:
        await node.stop()


def asked_at(broker: RunningBroker) -> set[str]:
    """Topics that other nodes have named."""
    return broker.wiring.rocketmq.service.questions.nodes.topics


async def test_a_producer_that_knows_one_node_only_is_asked_there(
    broker: RunningBroker, nodes: list[Node]
) -> None:
    port = await nodes[0].server.start("127.0.0.1:0")
    async with build_channel(f"127.0.0.1:{port}") as channel:
        client = V2(channel, {"x-mq-client-id": "p"})
        producer = await Commits(client).open()
        # It names no topic: that it sends to one is enough.
        assert codes((await client.send(half_message("T-1", b"paid"))).entries) == [v2.OK]
        await until(lambda: producer.asked)
        assert producer.asked[0].body == b"paid"

        async def is_visible() -> bool:
            return await seen(broker) == [b"paid"]

        await until(is_visible)
        await producer.close()
        await until(lambda: not asked_at(broker), "the node has no producer any more")


async def test_each_client_is_asked_in_the_words_and_the_bytes_that_it_knows(
    broker: RunningBroker, nodes: list[Node]
) -> None:
    port = await nodes[0].server.start("127.0.0.1:0")
    message = half_message("T-1", gzip.compress(b"paid"))
    message.topic.resource_namespace = "shop"
    message.system_properties.body_encoding = v2.GZIP
    await V2(broker.channel, {"x-mq-client-id": "dead"}).send(message)
    async with build_channel(f"127.0.0.1:{port}") as channel:
        client = V2(
            channel,
            {"x-mq-client-id": "p", "x-mq-language": "CPP", "x-mq-namespace": "shop"},
        )
        producer = await Asked(client, ORDERS).open()
        await until(lambda: producer.asked)
        asked = producer.asked[0]
        assert (asked.topic.name, asked.topic.resource_namespace) == (ORDERS, "")
        assert (asked.body, asked.system_properties.body_encoding) == (b"paid", v2.IDENTITY)
        await producer.close()


async def test_nodes_do_not_ask_each_other_about_producers_that_neither_has(
    broker: RunningBroker, nodes: list[Node]
) -> None:
    """A question that went from node to node would go round."""
    first, second = nodes
    port = await first.server.start("127.0.0.1:0")
    second.port = port  # takes the first node for the broker
    second_port = await second.server.start("127.0.0.1:0")
    async with (
        build_channel(f"127.0.0.1:{port}") as channel,
        build_channel(f"127.0.0.1:{second_port}") as second_channel,
    ):
        near = await Asked(V2(channel, {"x-mq-client-id": "near"}), ORDERS).open()
        far = await Asked(V2(second_channel, {"x-mq-client-id": "far"}), ORDERS).open()
        await until(lambda: first.service.questions.nodes.topics == {ORDERS})
        await V2(broker.channel, {"x-mq-client-id": "dead"}).send(half_message("T-1"))
        await until(lambda: near.asked)
        await near.close()
        await until(lambda: not asked_at(broker))
        assert not far.asked
        await far.close()


async def test_a_broker_that_comes_again_is_told_again(
    start_broker: StartBroker, broker: RunningBroker, nodes: list[Node]
) -> None:
    port = await nodes[0].server.start("127.0.0.1:0")
    async with build_channel(f"127.0.0.1:{port}") as channel:
        client = V2(channel, {"x-mq-client-id": "p"})
        producer = await Asked(client, ORDERS).open()
        await client.send(half_message("T-1"))
        await until(lambda: producer.asked)
        await broker.stop()
        again = await start_broker(
            transactions=SOON, listen=f"127.0.0.1:{broker.port}", grpc=broker.config.grpc
        )
        await until(lambda: asked_at(again) == {ORDERS})
        count = len(producer.asked)
        await until(lambda: len(producer.asked) > count)
        await producer.close()
