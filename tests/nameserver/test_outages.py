"""etcd goes away and comes back; nameservers start, stop and are asked in between."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aerobee.nameserver.app import serve_nameserver
from aerobee.nameserver.config import NameserverConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Delete, Put
from aerobee.nameserver.stored import Keys, Topic, encode_topic
from aerobee.rpc.own_protocol import CODE_METADATA_KEY
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.supervise import Lifecycle
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.etcd import compact
from tests.support.waiting import until


def code_of(error: grpc.aio.AioRpcError) -> int:
    return int(str(dict(error.trailing_metadata() or ())[CODE_METADATA_KEY]))


async def is_stale(server: Any) -> bool:
    return bool((await server.stub.ListTopics(pb.ListTopicsRequest())).stale)


async def is_fresh(server: Any) -> bool:
    return not await is_stale(server)


async def health_of(server: Any) -> int:
    stub = health_pb2_grpc.HealthStub(server.channel)
    status: int = (await stub.Check(health_pb2.HealthCheckRequest())).status
    return status


async def names(server: Any) -> list[str]:
    return [t.name for t in (await server.stub.ListTopics(pb.ListTopicsRequest())).topics]


async def test_routes_are_served_stale_while_etcd_is_dead_and_all_resumes_after_it(
    own_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    own_etcd.start()
    server = await start_nameserver(own_etcd.endpoint)
    broker = make_broker("broker-a")
    task = await running(broker, server)
    topic = await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders"))
    watch = server.stub.WatchRoutes(pb.WatchRoutesRequest(topics=["orders"]))
    assert not (await watch.read()).stale

    await asyncio.to_thread(own_etcd.kill)
    stale = await watch.read()
    assert stale.stale
    assert stale.routes[0].topic == topic
    assert [b.address for b in stale.routes[0].brokers] == [broker.address]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.CreateTopic(pb.CreateTopicRequest(name="later"))
    assert code_of(refused.value) == common_pb2.REGISTRY_UNAVAILABLE
    query = pb.QueryRouteRequest(topics=["later"], create_missing=True)
    answer = await server.stub.QueryRoute(query)
    assert answer.stale
    assert answer.routes[0].status.code == common_pb2.REGISTRY_UNAVAILABLE

    async def told_stale() -> bool:
        return bool(broker.directives[-1].stale)

    await until(told_stale)
    assert broker.directives[-1].role == common_pb2.MASTER
    assert await health_of(server) == health_pb2.HealthCheckResponse.SERVING

    await asyncio.to_thread(own_etcd.start)
    await until(lambda: is_fresh(server))
    assert not (await watch.read()).stale

    async def told_fresh() -> bool:
        return not broker.directives[-1].stale

    await until(told_fresh)
    assert not task.done(), "the stream outlived the outage"
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="later"))
    watch.cancel()


async def test_a_nameserver_that_starts_before_etcd_waits_for_it(
    own_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(own_etcd.endpoint, known=False)
    assert await health_of(server) == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await server.stub.QueryRoute(pb.QueryRouteRequest(topics=["orders"]))
    assert code_of(refused.value) == common_pb2.REGISTRY_UNAVAILABLE
    assert own_etcd.endpoint in (refused.value.details() or "")
    broker = make_broker("broker-a")
    await running(broker, server)
    assert broker.directives[-1].stale
    assert broker.directives[-1].role == common_pb2.BROKER_ROLE_UNSPECIFIED

    await asyncio.to_thread(own_etcd.start)

    async def serving() -> bool:
        return bool(await health_of(server) == health_pb2.HealthCheckResponse.SERVING)

    await until(serving)

    async def registered() -> bool:
        last = broker.directives[-1]
        return bool(not last.stale and last.role == common_pb2.MASTER)

    await until(registered)


async def test_what_happened_behind_a_cut_and_a_compaction_is_caught_up(
    link: Any,
    etcd: Etcd,
    cluster: str,
    start_nameserver: Any,
    make_broker: Any,
    running: Any,
) -> None:
    keys = Keys(cluster)
    server = await start_nameserver(link.endpoint)
    broker = make_broker("broker-a", lease_ms=60_000)
    await running(broker, server)
    for name in ("kept", "doomed"):
        await server.stub.CreateTopic(pb.CreateTopicRequest(name=name))
    before = len(broker.directives)

    await link.cut()
    await until(lambda: is_stale(server))
    await etcd.transaction({}, [Delete(keys.topic("doomed"))])
    fresh = encode_topic(Topic("fresh", queues_by_broker={"broker-a": 1}))
    done = await etcd.transaction({}, [Put(keys.topic("fresh"), fresh)])
    await compact(etcd.endpoint, done.revision)
    assert await names(server) == ["doomed", "kept"]

    await link.heal()
    await until(lambda: is_fresh(server))
    assert await names(server) == ["fresh", "kept"]

    async def told() -> bool:
        complete = [d for d in broker.directives[before:] if d.topics_complete]
        return bool(complete) and {t.name for t in complete[-1].topics} == {"fresh", "kept"}

    await until(told)


async def test_heartbeats_are_answered_while_etcd_hangs(
    link: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(link.endpoint)
    broker = make_broker("broker-a", lease_ms=60_000)
    await running(broker, server)
    link.silence()

    async def told_stale() -> bool:
        return bool(broker.directives[-1].stale)

    await until(told_stale, timeout_s=5)
    await link.heal()

    async def told_fresh() -> bool:
        return not broker.directives[-1].stale

    await until(told_fresh)


async def test_a_stopping_nameserver_ends_its_streams_so_that_others_are_used(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    call = server.stub.Register()
    await call.write(make_broker("broker-a").heartbeat())
    await call.read()
    watch = server.stub.WatchRoutes(pb.WatchRoutesRequest(topics=["orders"]))
    await watch.read()
    reads = asyncio.gather(call.read(), watch.read(), return_exceptions=True)
    async with asyncio.timeout(3):
        await server.stop()
    for error in await reads:
        assert isinstance(error, grpc.aio.AioRpcError)
        assert code_of(error) == common_pb2.SHUTTING_DOWN
    watches = [t for t in threading.enumerate() if t.name.startswith("etcd-watch")]
    assert watches == []


async def test_a_nameserver_refuses_a_port_that_is_taken(
    shared_etcd: Any, start_nameserver: Any
) -> None:
    first = await start_nameserver(shared_etcd.endpoint)
    with pytest.raises(AerobeeError, match=first.address):
        await serve_nameserver(
            NameserverConfig(listen=first.address),
            Lifecycle(),
            clock=SystemClock(),
            chance=system_random(),
        )


async def test_garbage_on_the_port_harms_nobody(shared_etcd: Any, start_nameserver: Any) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    for garbage in (b"\0" * 1_000, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        # The server may hang up before it was told everything.
        with contextlib.suppress(OSError):
            writer.write(garbage)
            await writer.drain()
            writer.write_eof()
            await reader.read()
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    assert await names(server) == []
