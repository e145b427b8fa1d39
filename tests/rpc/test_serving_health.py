"""gRPC health on the main port of a node: anybody may ask, and nobody's watches stop others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aerobee.rpc import serving_health
from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.rpc.serving_health import WATCHES_PER_CONNECTION_MAX
from tests.support.waiting import until

REQUEST = health_pb2.HealthCheckRequest()
SERVING = health_pb2.HealthCheckResponse.SERVING
REFUSED = grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
async def server() -> AsyncIterator[RpcServer]:
    server = RpcServer(say_error, ())
    await server.start("127.0.0.1:0")
    try:
        yield server
    finally:
        await server.stop(0)


async def client(server: RpcServer, stack: AsyncExitStack) -> health_pb2_grpc.HealthStub:
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options)
    return health_pb2_grpc.HealthStub(await stack.enter_async_context(channel))


async def code_of(watch: grpc.aio.UnaryStreamCall[Any, Any]) -> grpc.StatusCode:
    """OK: the watch has begun."""
    try:
        answer: Any = await watch.read()
        assert answer.status == SERVING
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_connection_has_a_few_watches_and_always_its_check(server: RpcServer) -> None:
    async with AsyncExitStack() as stack:
        greedy, other = [await client(server, stack) for _ in range(2)]
        watches = [greedy.Watch(REQUEST) for _ in range(WATCHES_PER_CONNECTION_MAX)]
        assert {await code_of(watch) for watch in watches} == {grpc.StatusCode.OK}
        assert await code_of(greedy.Watch(REQUEST)) is REFUSED
        assert (await greedy.Check(REQUEST)).status == SERVING
        assert await code_of(other.Watch(REQUEST)) is grpc.StatusCode.OK
        watches[0].cancel()

        async def has_room() -> bool:
            return await code_of(greedy.Watch(REQUEST)) is grpc.StatusCode.OK

        await until(has_room)


async def test_all_connections_together_have_so_many_watches(
    server: RpcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_health, "WATCHES_MAX", 3)
    async with AsyncExitStack() as stack:
        clients = [await client(server, stack) for _ in range(4)]
        codes = [await code_of(each.Watch(REQUEST)) for each in clients]
        assert codes == [grpc.StatusCode.OK] * 3 + [REFUSED]
        assert (await clients[3].Check(REQUEST)).status == SERVING
        await server.set_serving(False)
