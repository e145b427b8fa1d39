"""A call that a node passes on ends at its broker when its client cancels it or goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import pytest
from google.protobuf.message import Message

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.route import Endpoint, TopicRoute
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.request_limits import messaging_request_limits
from aerobee.rocketmq_api.rules.group_rules import GroupRules
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.rocketmq_api.services.failures import answer_errors
from aerobee.rocketmq_api.services.methods import SERVICE_NAME
from aerobee.rocketmq_api.services.service import MessagingService, add_messaging_service
from aerobee.rocketmq_api.times import duration
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.clock import SystemClock
from aerobee.store.format.recall_handle import RecallHandle
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2, service_pb2_grpc
from tests.support.grpcio_client import build_channel
from tests.support.v2_calls import V2, sent_message

TOPIC, GROUP = v2.Resource(name="t"), v2.Resource(name="billing")
QUEUE = v2.MessageQueue(topic=TOPIC, id=0, broker=v2.Broker(name="broker-a"))
HANDLE = ReceiptHandle("broker-a", "t", "billing", 0, 0, 1, 0).encode()
RECALL = RecallHandle("t", "broker-a", 4_000_000_000_000, "ID-1").encode()
OF_MESSAGE: dict[str, Any] = {
    "group": GROUP,
    "topic": TOPIC,
    "message_id": "ID-1",
    "receipt_handle": HANDLE,
}
PASSED_ON: dict[str, Message] = {
    "SendMessage": service_pb2.SendMessageRequest(messages=[sent_message("t")]),
    "AckMessage": service_pb2.AckMessageRequest(
        group=GROUP,
        topic=TOPIC,
        entries=[service_pb2.AckMessageEntry(message_id="ID-1", receipt_handle=HANDLE)],
    ),
    "ChangeInvisibleDuration": service_pb2.ChangeInvisibleDurationRequest(
        **OF_MESSAGE, invisible_duration=duration(10_000)
    ),
    "ForwardMessageToDeadLetterQueue": service_pb2.ForwardMessageToDeadLetterQueueRequest(
        **OF_MESSAGE
    ),
    "RecallMessage": service_pb2.RecallMessageRequest(topic=TOPIC, recall_handle=RECALL),
    "UpdateOffset": service_pb2.UpdateOffsetRequest(group=GROUP, message_queue=QUEUE),
    "GetOffset": service_pb2.GetOffsetRequest(group=GROUP, message_queue=QUEUE),
    "QueryOffset": service_pb2.QueryOffsetRequest(message_queue=QUEUE),
}
STREAMED = ("PullMessage", "ReceiveMessage")
"""Held by tests of their own, with a broker that has messages."""
ANSWERED_HERE = (
    *("QueryRoute", "QueryAssignment", "Heartbeat", "NotifyClientTermination", "Telemetry"),
    *("EndTransaction", "SyncLiteSubscription"),
)


class StuckBroker(service_pb2_grpc.MessagingServiceServicer):
    """Never answers a call; it knows which have begun, and which of them were cancelled."""

    def __init__(self, engine: Engine) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.server = RpcServer(say_error, [SERVICE_NAME], engine=engine)
        for name in PASSED_ON:
            setattr(self, name, self._stays)
        add = service_pb2_grpc.add_MessagingServiceServicer_to_server
        add(self, self.server.server)  # type: ignore[no-untyped-call]

    async def _stays(self, request: Any, context: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class OneBroker:
    """All topics are at one, and groups have no rules of their own."""

    def __init__(self, port: int) -> None:
        self._endpoint = Endpoint("broker-a", 0, f"127.0.0.1:{port}", is_master=True)

    async def route(self, topic: str) -> TopicRoute:
        attributes = MappingProxyType({"message.type": "MIXED"})
        return TopicRoute(topic, 6, False, attributes, {"broker-a": 1}, (self._endpoint,))

    def known(self, topic: str) -> None: ...

    def invalidate(self, topic: str) -> None: ...

    def telling(self, callback: Callable[[str], None]) -> AbstractContextManager[None]:
        return nullcontext()

    async def rules(self, group: str) -> GroupRules:
        return GroupRules()


@pytest.fixture(params=Engine)
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[StuckBroker]:
    broker = StuckBroker(request.param)
    yield broker
    await broker.server.stop(0)


@pytest.fixture
async def address(request: pytest.FixtureRequest, broker: StuckBroker) -> AsyncIterator[str]:
    """Of a node without a store, which passes everything on to the broker."""
    engine: Engine = request.node.callspec.params["broker"]
    brokers = OneBroker(await broker.server.start("127.0.0.1:0"))
    channels, clock = Channels(), SystemClock()
    server = RpcServer(
        say_error,
        [SERVICE_NAME],
        engine=engine,
        limits=(messaging_request_limits(),),
        answer_errors=answer_errors(clock),
        clock=clock,
    )
    service = MessagingService(
        expressions=CompiledExpressions(),
        routes=brokers,
        peers=channels,
        clock=clock,
        groups=brokers,
        clients=ClientTable(clock),
    )
    add_messaging_service(service, server.server)
    yield f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    await server.stop(0)
    await channels.close()


def test_every_call_that_is_passed_on_is_tried() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
    names = {method.name for method in service.methods}
    assert names == {*PASSED_ON, *STREAMED, *ANSWERED_HERE}


@pytest.mark.parametrize("name", PASSED_ON)
async def test_a_call_that_its_client_cancels_is_cancelled_at_the_broker(
    broker: StuckBroker, address: str, name: str
) -> None:
    async with build_channel(address) as channel:
        calling = asyncio.create_task(V2(channel).call(name, PASSED_ON[name], timeout=60))
        async with asyncio.timeout(5):
            await broker.begun.wait()
            assert not broker.cancelled.is_set()
            calling.cancel()
            await broker.cancelled.wait()


async def test_the_calls_of_a_client_that_goes_away_are_cancelled_at_the_broker(
    broker: StuckBroker, address: str
) -> None:
    async with build_channel(address) as channel:
        request = PASSED_ON["AckMessage"]
        calling = asyncio.create_task(V2(channel).call("AckMessage", request, timeout=60))
        async with asyncio.timeout(5):
            await broker.begun.wait()
    async with asyncio.timeout(5):
        await broker.cancelled.wait()
    await asyncio.wait((calling,))
