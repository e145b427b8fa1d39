"""A broker that says nothing any more is not listened to for ever."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

from aerobee.nameserver.service import SILENCE_S_MIN
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.waiting import until


@pytest.mark.slow
async def test_the_stream_of_a_broker_that_fell_silent_is_ended_and_holds_up_no_topic(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any
) -> None:
    """Its machine is gone, and nothing ends the connection: a topic's creator would wait for it."""
    server = await start_nameserver(shared_etcd.endpoint, spread_timeout_ms=20_000)
    alive, silent = make_broker("broker-a"), make_broker("broker-b")
    call = server.stub.Register()
    await call.write(silent.heartbeat())
    await call.read()
    silent_s = time.monotonic()
    beating = asyncio.ensure_future(alive.beat_until_cancelled(server.stub))
    await until(lambda: _is_true(bool(alive.directives)))
    # Both groups have queues of it, so both should hear of it.
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=2))
    waited_s = time.monotonic() - silent_s
    assert waited_s < SILENCE_S_MIN + 3
    with pytest.raises(grpc.aio.AioRpcError, match="sent nothing") as ended:
        await read_all(call)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not beating.done(), "who goes on is heard"
    beating.cancel()


async def read_all(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def _is_true(holds: bool) -> bool:
    return holds
