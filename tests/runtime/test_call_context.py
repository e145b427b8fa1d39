"""Log lines of one request can be joined across the processes that it went through."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import Method
from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.runtime import errors
from aerobee.runtime.call_context import (
    REQUEST_ID_KEY,
    TRACEPARENT_KEY,
    RequestNames,
    current_fields,
    current_ids,
    ids_from,
    outgoing_ids,
    request_scope,
)
from aerobee.runtime.log import LogConfig, LogFormat, LogLevel, configure_logging, log_event
from aerobee.v1 import broker_pb2

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
log = logging.getLogger("aerobee.test")
SERVICE = "aerobee.test.Echo"
Request = broker_pb2.SendRequest
CALL = Method(f"/{SERVICE}/Call", Request, Request)
WATCH = Method(f"/{SERVICE}/Watch", Request, Request)


class Echo:
    """Logs a line of its own for each call; hands `hop` calls on to itself."""

    def __init__(self) -> None:
        self.channels = Channels(chance=random.Random(1))
        self.address = ""

    async def Call(self, request: Request, context: grpc.aio.ServicerContext[Any, Any]) -> Request:
        log_event(log, "served", topic=request.topic)
        if request.topic == "refused":
            raise errors.TopicNotFound("there is no such topic")
        if request.topic == "hop":
            await self.channels.call(self.address, CALL, Request(topic="last"))
        return request

    async def Watch(
        self, request: Request, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Request]:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._inside())
        yield request

    async def _inside(self) -> None:
        log_event(log, "inside")


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    servicer = Echo()
    server = rpc.RpcServer(own_protocol.say_error, [SERVICE])
    handlers = {
        "Call": grpc.unary_unary_rpc_method_handler(
            servicer.Call, Request.FromString, Request.SerializeToString
        ),
        "Watch": grpc.unary_stream_rpc_method_handler(
            servicer.Watch, Request.FromString, Request.SerializeToString
        ),
    }
    server.server.add_registered_method_handlers(SERVICE, handlers)
    servicer.address = f"127.0.0.1:{await server.start('127.0.0.1:0')}"
    yield servicer
    await servicer.channels.close()
    await server.stop(0)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(LogConfig(format=LogFormat.JSON, level=LogLevel.DEBUG), stream=stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


def lines(stream: io.StringIO, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if line["event"] == event]


async def test_a_request_keeps_its_id_through_all_services(echo: Echo, stream: io.StringIO) -> None:
    channels = Channels(chance=random.Random(2))
    with request_scope("order-77", traceparent=TRACE):
        await channels.call(echo.address, CALL, Request(topic="hop"))
    first, last = lines(stream, "served")
    for line in (first, last):
        assert line["request_id"] == "order-77"
        assert line["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
        assert line["span_id"] == "b7ad6b7169203331"
        assert line["call"] == "Call"
        assert line["peer"].startswith("ipv4:127.0.0.1:")
    await channels.close()


async def test_requests_without_an_id_get_one_each_with_their_clients_prefix(
    echo: Echo, stream: io.StringIO
) -> None:
    channels = Channels(chance=random.Random(2))
    await asyncio.gather(
        *(channels.call(echo.address, CALL, Request(topic=str(n))) for n in range(5))
    )
    ids = [line["request_id"] for line in lines(stream, "served")]
    assert len(set(ids)) == 5
    assert len({name.partition("-")[0] for name in ids}) == 1
    await channels.close()


async def test_an_error_names_the_call_as_the_services_log_does(
    echo: Echo, stream: io.StringIO
) -> None:
    channels = Channels(chance=random.Random(2))
    with pytest.raises(errors.TopicNotFound) as caught:
        await channels.call(echo.address, CALL, Request(topic="refused"))
    (refused,) = lines(stream, "call refused")
    assert caught.value.request_id == refused["request_id"] != ""
    assert refused["code"] == "TopicNotFound"
    log_event(log, "given up", reason=caught.value)
    assert lines(stream, "given up")[0]["request_id"] == refused["request_id"]
    await channels.close()


async def test_tasks_of_a_call_log_its_id_and_nothing_is_left_behind(
    echo: Echo, stream: io.StringIO
) -> None:
    channels = Channels(chance=random.Random(2))
    answers = channels.open_server_stream(echo.address, WATCH, Request(topic="x"))
    assert await answers.read() is not None
    (inside,) = lines(stream, "inside")
    assert inside["request_id"] == answers.request_id
    assert current_fields() == {}
    await channels.close()


@pytest.mark.parametrize(
    "hostile",
    ["", "x" * 129, "two words", "line\nbreak", 'quote"', "\x1b[31m", "schlüssel"],
)
def test_what_does_not_look_like_an_id_counts_as_none(hostile: str) -> None:
    ids = ids_from([(REQUEST_ID_KEY, hostile), (TRACEPARENT_KEY, hostile)])
    assert (ids.request_id, ids.traceparent) == ("", "")
    assert ids.fields() == {}
    with request_scope(hostile):
        assert current_ids().request_id == ""


def test_a_call_inside_a_request_carries_its_id_and_others_their_own() -> None:
    names = RequestNames("client")
    assert outgoing_ids(names).request_id == "client-1"
    with request_scope("outer"):
        assert outgoing_ids(names).request_id == "outer"
    with request_scope("", traceparent=TRACE):
        ids = outgoing_ids(names)
        assert (ids.request_id, ids.traceparent) == ("client-2", TRACE)
    assert dict(ids.metadata()) == {REQUEST_ID_KEY: "client-2", TRACEPARENT_KEY: TRACE}
