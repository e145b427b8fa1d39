"""What a server refuses for gRPC's own limits is counted, and said in one line."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.rpc.core.limits import Limit
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.peer_limits import PeerLimits
from aerobee.rpc.serving import RpcServer
from tests.support.waiting import until


async def test_a_peer_that_meets_a_limit_is_counted_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    met = PeerLimits()
    server = RpcServer(say_error, [], connections_max=1, observer=met)
    port = await server.start("127.0.0.1:0")
    reader, first = await asyncio.open_connection("127.0.0.1", port)
    await reader.read(1)
    _, second = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: met.counts[Limit.CONNECTIONS] == 1)
    (line,) = [line for line in caplog.records if line.levelname == "WARNING"]
    host, own_port = second.get_extra_info("sockname")
    told = line.getMessage()
    assert f"limit=connections peer=ipv4:{host}:{own_port}" in told
    assert "more than 1 connections" in told
    assert {labels: count for labels, count in met.family().rows if count} == {("connections",): 1}
    assert len(met.family().rows) == len(Limit), "what nobody has met is 0, not absent"
    for writer in (first, second):
        writer.close()
    await server.stop(0)
