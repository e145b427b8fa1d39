"""A servicer that answers with what it was asked, in every style, behind either engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from aerobee.rpc.call_border import Reply
from aerobee.rpc.core.status import RpcError, Status
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.request_limits import Limit, RequestLimits
from aerobee.rpc.served_method import answered_at_once, answered_later
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.call_context import current_fields
from aerobee.runtime.errors import LimitReached, TopicNotFound
from aerobee.v1 import broker_pb2

SERVICE = "aerobee.v1.AdminService"
Request = broker_pb2.GetMessageRequest
Answer = broker_pb2.StoredMessage
MIB = 1 << 20
ASKED_ID_MAX = 100
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


def asking(words: str) -> Request:
    return Request(offset_message_id=words)


class Servicer:
    """Answers with what it was asked, in each style and shape; `words` may ask for more."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fields: list[dict[str, object]] = []

    @answered_at_once
    def AtOnce(self, request: Any, context: Any) -> Any:
        return self._answer(request)

    @answered_later
    def Later(self, request: Any, context: Any, reply: Reply) -> None:
        asyncio.get_running_loop().call_soon(self._reply, request, reply)

    def _reply(self, request: Any, reply: Reply) -> None:
        try:
            reply.answer(self._answer(request))
        except Exception as error:
            reply.refuse(error)

    async def Task(self, request: Any, context: Any) -> Any:
        await asyncio.sleep(0)
        return self._answer(request)

    @answered_later
    def Rest(self, request: Any, context: Any, reply: Reply) -> Any:
        return lambda: self.Task(request, context)

    def _answer(self, request: Any) -> Any:
        words = request.offset_message_id
        self.fields.append(dict(current_fields()))
        if words == "typed":
            raise TopicNotFound("no such topic: ärger")
        if words == "bug":
            raise ZeroDivisionError("secret")
        if words == "status":
            raise RpcError(Status.ALREADY_EXISTS, "there", trailers=(("raw-bin", b"\x00\xff"),))
        if words.startswith("large:"):
            return Answer(record=bytes(int(words.removeprefix("large:"))))
        return Answer(record=words.encode())

    async def Asks(self, request: Any, context: Any) -> Any:
        """Answers with what the context says of the call."""
        context.set_trailing_metadata((("asked", "once"), ("asked-bin", b"\x00\xff")))
        assert 0 < context.time_remaining() < 21  # clients round up
        family, _, address = context.peer().partition(":")
        assert (family, address.rpartition(":")[0]) == ("ipv4", "127.0.0.1")
        if request.offset_message_id == "status":
            raise RpcError(Status.ALREADY_EXISTS, "there")
        given = dict(context.invocation_metadata())
        return Answer(record=b"%s %s" % (given["word"].encode(), given["word-bin"]))

    async def Sleep(self, request: Any, context: Any) -> Any:
        self.events.append("sleeps")
        try:
            await asyncio.sleep(3_600)
        finally:
            self.events.append("woken")

    @answered_later
    def SleepRest(self, request: Any, context: Any, reply: Reply) -> Any:
        return lambda: self.Sleep(request, context)

    @answered_later
    def Never(self, request: Any, context: Any, reply: Reply) -> None:
        self.events.append("never")

    async def Briefly(self, request: Any, context: Any) -> Any:
        self.events.append("begun")
        await asyncio.sleep(0.3)
        return self._answer(request)

    async def Count(self, request: Any, context: Any) -> AsyncIterator[Any]:
        count, _, words = request.offset_message_id.partition(":")
        for number in range(int(count)):
            yield Answer(record=b"%d" % number)
        if words == "typed":
            raise LimitReached("enough")

    async def Forever(self, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            while True:
                yield Answer(record=bytes(10_000))
        finally:
            self.events.append("ended")

    async def Join(self, requests: Any, context: Any) -> Any:
        return Answer(record=b",".join([r.offset_message_id.encode() async for r in requests]))

    async def Converse(self, requests: Any, context: Any) -> None:
        """By reading and writing, as most of our streams are."""
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(self._answer(request))
        self.events.append("left")

    async def Chat(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield self._answer(request)


def missing(request: Any, context: Any) -> Any:
    """As protoc generates what a servicer does not have."""
    raise NotImplementedError


class ReadLimits:
    """Limits of GetMessage for all methods of this test."""

    def __init__(self) -> None:
        (admin,) = (
            one
            for one in broker_pb2.DESCRIPTOR.services_by_name.values()
            if one.full_name == SERVICE
        )
        fields = {"GetMessageRequest.offset_message_id": Limit(length=ASKED_ID_MAX)}
        sizes = {method.input_type.name: 4_096 for method in admin.methods}
        others = {
            f"{method.input_type.name}.{field.name}": Limit(count=10, length=ASKED_ID_MAX)
            for method in admin.methods
            for field in method.input_type.fields
        }
        self._reader = RequestLimits(
            [admin], sizes, {**others, **fields}, package="aerobee.v1"
        ).reader(f"/{SERVICE}/GetMessage")

    def reader(self, method: str) -> Any:
        return self._reader if method.startswith(f"/{SERVICE}/") else None


class Observed:
    def __init__(self) -> None:
        self.answers: list[tuple[str, str]] = []

    def answered(self, method: str, outcome: str, elapsed_s: float) -> None:
        assert 0 <= elapsed_s < 60
        self.answers.append((method, outcome))


class Running:
    """A server and a client of it."""

    def __init__(self, server: RpcServer, servicer: Servicer, observed: Observed) -> None:
        self.server = server
        self.servicer = servicer
        self.observed = observed
        self.channel: Any = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def connect(self, **arguments: Any) -> Any:
        return grpc.aio.insecure_channel(self.target, options=CHANNEL_OPTIONS, **arguments)

    def stub(self, name: str, channel: Any = None) -> Any:
        handler = _handler(self.servicer, name)
        channel = channel or self.channel
        shape = {
            (False, False): channel.unary_unary,
            (False, True): channel.unary_stream,
            (True, False): channel.stream_unary,
            (True, True): channel.stream_stream,
        }[handler.request_streaming, handler.response_streaming]
        return shape(f"/{SERVICE}/{name}", Request.SerializeToString, Answer.FromString)


_SHAPES: dict[str, Callable[..., Any]] = {
    "Count": grpc.unary_stream_rpc_method_handler,
    "Forever": grpc.unary_stream_rpc_method_handler,
    "Join": grpc.stream_unary_rpc_method_handler,
    "Converse": grpc.stream_stream_rpc_method_handler,
    "Chat": grpc.stream_stream_rpc_method_handler,
}
_METHODS = (
    *("AtOnce", "Later", "Rest", "Task", "Asks", "Sleep", "SleepRest", "Never", "Briefly"),
    *_SHAPES,
)


def _handler(servicer: Servicer, name: str) -> Any:
    make = _SHAPES.get(name, grpc.unary_unary_rpc_method_handler)
    return make(getattr(servicer, name, missing), Request.FromString, Answer.SerializeToString)


@asynccontextmanager
async def serving(engine: Engine, **options: Any) -> AsyncIterator[Running]:
    servicer, observed = Servicer(), Observed()
    limits: Any = ReadLimits()
    server = RpcServer(
        say_error, [SERVICE], engine=engine, limits=(limits,), latencies=observed, **options
    )
    server.server.add_registered_method_handlers(
        SERVICE, {name: _handler(servicer, name) for name in (*_METHODS, "Missing")}
    )
    running = Running(server, servicer, observed)
    await server.start("127.0.0.1:0")
    try:
        async with running.connect() as channel:
            running.channel = channel
            yield running
    finally:
        await server.stop(0)
