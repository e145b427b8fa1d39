"""Calls that a node without a store passes on to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from aerobee.broker.edge.rocketmq.known import OwnGroups
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.route import Endpoint, TopicRoute
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.request_limits import messaging_request_limits
from aerobee.rocketmq_api.services.failures import answer_errors
from aerobee.rocketmq_api.services.methods import SERVICE_NAME
from aerobee.rocketmq_api.services.service import MessagingService, add_messaging_service
from aerobee.rocketmq_api.times import duration
from aerobee.rpc.grpc_config import Engine, GrpcConfig
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.clock import ManualClock, SystemClock
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.edge.test_rocketmq_api import TOPICS
from tests.broker.edge.test_rocketmq_pulls import GROUP, queue_of, sent_to_one_queue
from tests.support.grpcio_client import build_channel
from tests.support.v2_calls import CLIENT_ID, V2
from tests.support.waiting import until


class OneBroker:
    """All topics are at one."""

    def __init__(self, port: int) -> None:
        self.endpoint = Endpoint("broker-a", 0, f"127.0.0.1:{port}", is_master=True)
        self.contradicted = 0

    async def route(self, topic: str) -> TopicRoute:
        return TopicRoute(topic, 6, False, {}, {"broker-a": 1}, (self.endpoint,))

    def known(self, topic: str) -> None: ...

    def invalidate(self, topic: str) -> None:
        self.contradicted += 1

    def telling(self, callback: Callable[[str], None]) -> AbstractContextManager[None]:
        return nullcontext()


class Gateway:
    """A node in front of a broker."""

    def __init__(self, broker: RunningBroker, engine: Engine) -> None:
        self.broker = broker
        self.clock = ManualClock()
        self.clients = ClientTable(self.clock)
        self.routes = OneBroker(broker.port)
        self.channels = Channels()
        clock = SystemClock()
        self.service = MessagingService(
            expressions=CompiledExpressions(),
            routes=self.routes,
            peers=self.channels,
            clock=clock,
            groups=OwnGroups(broker.opened.groups),
            clients=self.clients,
        )
        self.server = RpcServer(
            say_error,
            [SERVICE_NAME],
            engine=engine,
            limits=(messaging_request_limits(),),
            answer_errors=answer_errors(clock),
            clock=clock,
        )
        add_messaging_service(self.service, self.server.server)


@pytest.fixture(params=Engine)
async def gateway(
    request: pytest.FixtureRequest, start_broker: StartBroker
) -> AsyncIterator[Gateway]:
    broker = await start_broker(topics=TOPICS, grpc=GrpcConfig(engine=request.param))
    gateway = Gateway(broker, request.param)
    running = asyncio.create_task(gateway.service.run())
    yield gateway
    running.cancel()
    await asyncio.wait((running,))
    await gateway.server.stop(0)
    await gateway.channels.close()


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[V2]:
    port = await gateway.server.start("127.0.0.1:0")
    async with build_channel(f"127.0.0.1:{port}") as channel:
        yield V2(channel)


async def test_a_pull_that_its_client_cancels_ends_where_it_waits(
    gateway: Gateway, client: V2
) -> None:
    egress = gateway.broker.wiring.egress
    polling = asyncio.create_task(client.pull(queue_of(), long_polling_timeout=duration(20_000)))
    await until(lambda: egress.waiting == 1)
    polling.cancel()
    await until(lambda: egress.waiting == 0)


@pytest.mark.thorough
async def test_a_pull_that_is_passed_on_waits_as_long_as_its_client_asks(
    gateway: Gateway, client: V2
) -> None:
    """Without the deadline of the client it would be one of 3 s."""
    queue = await sent_to_one_queue(client)
    polling = asyncio.create_task(client.pull(queue, long_polling_timeout=duration(20_000)))
    await asyncio.sleep(4)  # longer than a call without a deadline
    assert not polling.done()
    await sent_to_one_queue(client, "late")
    found = await asyncio.wait_for(polling, 10)
    assert [each.body for each in found.messages] == [b"late"]


async def test_errors_and_offsets_come_back_as_the_broker_says_them(
    gateway: Gateway, client: V2
) -> None:
    assert (await client.pull(queue_of("t", 77))).code == v2.NOT_FOUND
    asked = service_pb2.GetOffsetRequest(group=GROUP, message_queue=queue_of())
    assert (await client.call("GetOffset", asked)).status.code == v2.OFFSET_NOT_FOUND
    request = service_pb2.UpdateOffsetRequest(group=GROUP, message_queue=queue_of(), offset=0)
    assert (await client.call("UpdateOffset", request)).status.code == v2.OK
    assert (await client.call("GetOffset", asked)).status.code == v2.OK
    query = service_pb2.QueryOffsetRequest(message_queue=queue_of(), query_offset_policy=v2.END)
    assert (await client.call("QueryOffset", query)).status.code == v2.OK
    assert gateway.routes.contradicted == 0


async def test_a_broker_hears_of_a_client_whose_calls_are_passed_on_to_it(
    gateway: Gateway, client: V2
) -> None:
    there = gateway.broker.clients
    beat = service_pb2.HeartbeatRequest(client_type=v2.PUSH_CONSUMER, group=GROUP)

    async def heard_after(act: Callable[[], Awaitable[object]]) -> bool:
        """Whether the broker has heard of it by this."""
        before = there.get(CLIENT_ID)
        assert before is not None
        before.heard_s -= 50
        told_s = before.heard_s
        await act()
        after = there.get(CLIENT_ID)
        assert after is not None
        return after.heard_s > told_s

    await client.call("Heartbeat", beat)
    assert there.get(CLIENT_ID) is None
    await client.pull(queue_of())
    (member,) = there.members("billing")
    assert (member.client_id, member.language) == (CLIENT_ID, "PYTHON")
    assert not await heard_after(lambda: client.call("Heartbeat", beat))
    gateway.clock.advance_ms(10_000)
    assert await heard_after(lambda: client.call("Heartbeat", beat))
    assert not await heard_after(lambda: client.call("Heartbeat", beat))
    ending = service_pb2.NotifyClientTerminationRequest(group=GROUP)
    assert (await client.call("NotifyClientTermination", ending)).status.code == v2.OK
    assert there.members("billing") == []


async def test_a_broker_that_is_gone_is_told_and_asked_for_anew(
    gateway: Gateway, client: V2
) -> None:
    await gateway.broker.stop()
    found = await client.pull(queue_of())
    assert (found.code, gateway.routes.contradicted) == (v2.INTERNAL_SERVER_ERROR, 1)
