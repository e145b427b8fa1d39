"""Failures leave the channels as typed errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aerobee.client_core import ClusterConnection
from aerobee.client_core.methods import QUERY_ROUTE, SEND_STREAM, WATCH_ROUTES
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, nameserver_pb2

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
