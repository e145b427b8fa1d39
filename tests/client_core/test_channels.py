"""Failures leave the channels as typed errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client_core import ClusterConnection
from aerobee.cluster_view import channels
from aerobee.cluster_view.channels import Stream
from aerobee.cluster_view.methods import QUERY_ROUTE, SEND_STREAM, WATCH_ROUTES
from aerobee.runtime import errors, rpc
from aerobee.runtime.own_protocol import say_error
from aerobee.v1 import broker_pb2, nameserver_pb2, nameserver_pb2_grpc
from tests.support.silent_peer import silent_peer

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeNameserver

WATCH = nameserver_pb2.WatchRoutesRequest(topics=["orders"])


async def test_a_refused_call_raises_the_servers_error(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    nameserver.refuse = errors.InvalidArgument("this nameserver serves another cluster")
    with pytest.raises(errors.InvalidArgument, match="another cluster"):
        await connection.channels.call(
            nameserver.address, QUERY_ROUTE, nameserver_pb2.QueryRouteRequest()
        )


async def test_a_call_or_stream_to_nowhere_is_unreachable(connection: ClusterConnection) -> None:
    with pytest.raises(errors.Unreachable, match=r"127\.0\.0\.1:1"):
        await connection.channels.call(
            "127.0.0.1:1", QUERY_ROUTE, nameserver_pb2.QueryRouteRequest()
        )
    stream = connection.channels.open_stream("127.0.0.1:1", SEND_STREAM)
    with pytest.raises(errors.Unreachable, match=r"127\.0\.0\.1:1"):
        await stream.wait_connected()
    with pytest.raises(errors.Unreachable):
        await stream.write(broker_pb2.SendFrame())
    with pytest.raises(errors.Unreachable):
        await stream.read()


async def test_a_stream_that_is_cancelled_wakes_its_reader_with_an_error(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    stream = connection.channels.open_server_stream(nameserver.address, WATCH_ROUTES, WATCH)
    assert await stream.read() is not None
    reader = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0.01)
    stream.cancel()
    with pytest.raises(errors.Unreachable):
        await reader


Send = Stream[broker_pb2.SendFrame, broker_pb2.SendAckFrame]


@pytest.mark.parametrize(
    "wait",
    [Send.wait_connected, lambda stream: stream.write(broker_pb2.SendFrame())],
    ids=["connection", "write"],
)
@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_a_stream_that_ends_before_it_has_a_connection_wakes_who_waits_for_one(
    wait: Callable[[Send], Coroutine[Any, Any, None]], end: str
) -> None:
    calls = channels.Channels()
    async with silent_peer() as address:
        stream = calls.open_stream(address, SEND_STREAM)
        waiter = asyncio.ensure_future(wait(stream))
        await asyncio.sleep(0.05)
        assert not waiter.done()
        if end == "cancel":
            stream.cancel()
        else:
            await calls.close()
        async with asyncio.timeout(5):
            with pytest.raises(errors.Unreachable):
                await waiter
        await calls.close()


async def test_who_is_cancelled_while_a_stream_connects_is_cancelled() -> None:
    calls = channels.Channels()
    async with silent_peer() as address:
        waiter = asyncio.ensure_future(calls.open_stream(address, SEND_STREAM).wait_connected())
        await asyncio.sleep(0.05)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        await calls.close()


async def test_a_cancelled_reader_is_cancelled(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    stream = connection.channels.open_server_stream(nameserver.address, WATCH_ROUTES, WATCH)
    assert await stream.read() is not None
    reader = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0.01)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_a_server_that_goes_away_ends_its_streams(
    nameserver: FakeNameserver, connection: ClusterConnection
) -> None:
    stream = connection.channels.open_server_stream(nameserver.address, WATCH_ROUTES, WATCH)
    assert await stream.read() is not None
    await nameserver.stop()
    with pytest.raises(errors.MqError):
        await stream.read()


async def test_closing_ends_open_streams(nameserver: FakeNameserver) -> None:
    async with ClusterConnection(nameserver.address) as connection:
        stream = connection.channels.open_server_stream(nameserver.address, WATCH_ROUTES, WATCH)
        assert await stream.read() is not None
        reader = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0.01)
    with pytest.raises(errors.Unreachable):
        await reader


class SlowNameserver(nameserver_pb2_grpc.NameserverServiceServicer):
    """Answers with its version, when it may."""

    def __init__(self, version: int) -> None:
        self.answer = nameserver_pb2.QueryRouteResponse(version=version)
        self.may_answer = asyncio.Event()
        self.asked = asyncio.Event()
        self.server = rpc.RpcServer(say_error, ["aerobee.v1.NameserverService"])
        nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(self, self.server.server)

    async def QueryRoute(
        self, request: nameserver_pb2.QueryRouteRequest, context: Any
    ) -> nameserver_pb2.QueryRouteResponse:
        self.asked.set()
        await self.may_answer.wait()
        return self.answer

    async def WatchRoutes(self, request: nameserver_pb2.WatchRoutesRequest, context: Any) -> None:
        await context.write(self.answer)
        await self.may_answer.wait()
        await context.write(self.answer)


async def test_a_server_that_stops_answers_what_it_has_taken_while_its_successor_is_called(
    nameserver: FakeNameserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "RENEW_AFTER_S", 0.0)
    old, new = SlowNameserver(1), SlowNameserver(2)
    new.may_answer.set()
    port = await old.server.start("127.0.0.1:0")
    address, request = f"127.0.0.1:{port}", nameserver_pb2.QueryRouteRequest()
    async with ClusterConnection(nameserver.address) as connection:
        calls = connection.channels
        stream = calls.open_server_stream(address, WATCH_ROUTES, WATCH)
        assert await stream.read() is not None
        first = asyncio.create_task(calls.call(address, QUERY_ROUTE, request))
        await old.asked.wait()
        stopping = asyncio.create_task(old.server.stop(5.0))
        await asyncio.sleep(0.1)
        await new.server.start(address)
        second = await calls.call(address, QUERY_ROUTE, request)
        assert calls._retired, "it was replaced, and did not only reconnect"
        assert not first.done()
        old.may_answer.set()
        assert ((await first).version, second.version) == (1, 2)
        assert await stream.read() is not None
        assert await stream.read() is None
        await stopping
        async with asyncio.timeout(5):
            while calls._retired:
                await asyncio.sleep(0.01)
    await new.server.stop(0)
