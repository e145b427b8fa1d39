"""Servicers written for grpcio run unchanged: grpcio's own health service, and one of ours with a
stream in each direction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from aerobee.grpc_core.generated import GeneratedServices
from aerobee.v1 import nameserver_pb2, nameserver_pb2_grpc
from tests.support.grpc_core_server import Serving, serving
from tests.support.waiting import until

HEALTH = health_pb2.HealthCheckResponse


class Names(nameserver_pb2_grpc.NameserverServiceServicer):
    """Answers what shows that it was asked."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def QueryRoute(self, request: Any, context: Any) -> Any:
        assert context.peer().startswith("ipv4:127.0.0.1:")
        assert ("key", "value") in context.invocation_metadata()
        assert 0 < context.time_remaining() < 21  # clients round up
        context.set_trailing_metadata((("first", "1"),))
        if request.cluster == "refused":
            await context.abort(
                grpc.StatusCode.NOT_FOUND, "no such topic", trailing_metadata=(("second", "2"),)
            )
        return nameserver_pb2.QueryRouteResponse()

    async def WatchRoutes(self, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            yield nameserver_pb2.QueryRouteResponse()
            await asyncio.Event().wait()
        finally:
            self.events.append("watch ended")

    async def Register(self, request_iterator: Any, context: Any) -> None:
        await context.send_initial_metadata(())
        while (await context.read()) is not grpc.aio.EOF:
            await context.write(nameserver_pb2.BrokerDirective())
        self.events.append("register ended")


@asynccontextmanager
async def generated(add: Any, servicer: Any) -> AsyncIterator[tuple[Serving, grpc.aio.Channel]]:
    async with serving() as running:
        add(servicer, GeneratedServices(running.server, end_of_stream=grpc.aio.EOF))
        async with grpc.aio.insecure_channel(running.target) as channel:
            yield running, channel


async def test_one_answer_with_metadata_and_errors() -> None:
    add = nameserver_pb2_grpc.add_NameserverServiceServicer_to_server
    async with generated(add, Names()) as (_, channel):
        query = nameserver_pb2_grpc.NameserverServiceStub(channel).QueryRoute
        asked = query(nameserver_pb2.QueryRouteRequest(), timeout=20, metadata=(("key", "value"),))
        assert isinstance(await asked, nameserver_pb2.QueryRouteResponse)
        assert tuple(await asked.trailing_metadata()) == (("first", "1"),)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await query(
                nameserver_pb2.QueryRouteRequest(cluster="refused"),
                timeout=20,
                metadata=(("key", "value"),),
            )
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert refused.value.details() == "no such topic"
        assert tuple(refused.value.trailing_metadata()) == (("first", "1"), ("second", "2"))


async def test_streams_by_generators_and_by_reading_and_writing() -> None:
    names = Names()
    add = nameserver_pb2_grpc.add_NameserverServiceServicer_to_server
    async with generated(add, names) as (_, channel):
        stub = nameserver_pb2_grpc.NameserverServiceStub(channel)
        watch = stub.WatchRoutes(nameserver_pb2.WatchRoutesRequest())
        assert isinstance(await watch.read(), nameserver_pb2.QueryRouteResponse)
        watch.cancel()
        await until(lambda: names.events == ["watch ended"])
        register = stub.Register()
        for _ in range(3):
            await register.write(nameserver_pb2.BrokerHeartbeat())
            assert isinstance(await register.read(), nameserver_pb2.BrokerDirective)
        await register.done_writing()
        assert await register.read() is grpc.aio.EOF
        assert names.events == ["watch ended", "register ended"]


async def test_grpcios_own_health_service() -> None:
    servicer = health.aio.HealthServicer()
    async with generated(health_pb2_grpc.add_HealthServicer_to_server, servicer) as (_, channel):
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="a"))
        assert (await watch.read()).status == HEALTH.SERVICE_UNKNOWN
        await servicer.set("a", HEALTH.SERVING)
        assert (await watch.read()).status == HEALTH.SERVING
        assert (await stub.Check(health_pb2.HealthCheckRequest(service="a"))).status == (
            HEALTH.SERVING
        )
        watch.cancel()


async def test_a_method_may_be_wrapped_when_it_is_added() -> None:
    seen: list[str] = []

    def wrap(path: str, handler: Any) -> Any:
        seen.append(path)
        return handler

    async with serving() as running:
        health_pb2_grpc.add_HealthServicer_to_server(
            health.aio.HealthServicer(),
            GeneratedServices(running.server, end_of_stream=grpc.aio.EOF, wrap=wrap),
        )
    assert "/grpc.health.v1.Health/Check" in seen
