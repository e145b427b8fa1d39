"""The health port: three questions, asked over gRPC and answered at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aerobee.rpc.health_check import check_health
from aerobee.rpc.health_server import WATCHES_MAX, serve_health
from aerobee.runtime.errors import InvalidArgument, Unreachable
from aerobee.runtime.health import HealthConfig, Question

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""What a client sends first: the preface and empty settings."""


class SetHealth:
    """Answers what the test has set."""

    def __init__(self) -> None:
        self.reasons = dict.fromkeys(Question, "")

    def why_not(self, question: Question) -> str:
        return self.reasons[question]


@pytest.fixture
def health() -> SetHealth:
    return SetHealth()


@pytest.fixture
async def address(health: SetHealth) -> AsyncIterator[str]:
    async with serve_health("127.0.0.1:0", health) as port:
        yield f"127.0.0.1:{port}"


@pytest.mark.parametrize("question", Question)
async def test_each_question_has_an_answer_of_its_own(
    health: SetHealth, address: str, question: Question
) -> None:
    health.reasons[question] = "nein, größer als erlaubt"
    for asked in Question:
        answer = await check_health(address, asked)
        assert answer.is_serving is (asked is not question)
        assert answer.reason == ("nein, größer als erlaubt" if asked is question else "")
    health.reasons[question] = ""
    assert (await check_health(address, question)).is_serving, "asked anew each time"


async def test_no_name_asks_for_readiness(health: SetHealth, address: str) -> None:
    health.reasons[Question.READINESS] = "not yet"
    assert await check_health(address) == await check_health(address, "readiness")
    assert not (await check_health(address)).is_serving


async def test_an_unknown_name_is_refused_with_the_known_ones(address: str) -> None:
    with pytest.raises(InvalidArgument, match="startup, liveness, readiness"):
        await check_health(address, "aliveness")


async def test_who_watches_is_told_of_each_change(health: SetHealth, address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="liveness"), timeout=10)
        assert (await watch.read()).status == SERVING
        health.reasons[Question.LIVENESS] = "the disk failed"
        assert (await watch.read()).status == NOT_SERVING
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="x"), timeout=10)
        assert (await unknown.read()).status == UNKNOWN
        watch.cancel()
        listed = await stub.List(health_pb2.HealthListRequest(), timeout=10)
    assert {name: answer.status for name, answer in listed.statuses.items()} == {
        "startup": SERVING,
        "liveness": NOT_SERVING,
        "readiness": SERVING,
    }


async def test_it_ends_with_its_block_also_under_a_watch(health: SetHealth) -> None:
    async with serve_health("127.0.0.1:0", health) as port:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=10)
        await watch.read()
    with pytest.raises(grpc.aio.AioRpcError):
        await watch.read()
    await channel.close()
    with pytest.raises(Unreachable):
        await check_health(f"127.0.0.1:{port}")


async def test_a_port_in_use_is_refused_and_no_address_serves_nothing(
    health: SetHealth, address: str
) -> None:
    with pytest.raises(InvalidArgument, match=r"health\.listen"):
        async with serve_health(address, health):
            pass
    async with serve_health("", health) as port:
        assert port == 0


async def test_a_hundred_idle_connections_do_not_keep_probes_out(
    health: SetHealth, address: str
) -> None:
    host, _, port = address.rpartition(":")
    idle = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
    try:
        assert (await check_health(address, Question.LIVENESS)).is_serving
    finally:
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize(
    "sent", [b"", HTTP2_PREFACE], ids=["nothing was sent", "HTTP/2 without a call"]
)
async def test_a_connection_without_a_call_is_closed(health: SetHealth, sent: bytes) -> None:
    async with serve_health("127.0.0.1:0", health, idle_s=0.3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(5):
            await reader.read()  # to the end, which the server makes
        writer.close()
        assert (await check_health(f"127.0.0.1:{port}")).is_serving


async def test_who_watches_is_not_idle(health: SetHealth) -> None:
    async with (
        serve_health("127.0.0.1:0", health, idle_s=0.1) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="liveness"), timeout=10)
        assert (await watch.read()).status == SERVING
        await asyncio.sleep(0.5)
        health.reasons[Question.LIVENESS] = "the disk failed"
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()


async def test_watches_are_bounded_and_never_keep_a_probe_out(address: str) -> None:
    """Each over a connection of its own, as those who watch from elsewhere come."""
    request = health_pb2.HealthCheckRequest(service="liveness")
    channels = [
        grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(WATCHES_MAX + 1)
    ]
    try:
        watches = []
        for channel in channels[:-1]:
            watches.append(health_pb2_grpc.HealthStub(channel).Watch(request))
            assert (await watches[-1].read()).status == SERVING
        refused = health_pb2_grpc.HealthStub(channels[-1]).Watch(request)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await refused.read()
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert raised.value.details() == (
            "64 watches of this process's health exist already, which is the limit; "
            "use Check, which always answers"
        )
        assert (await check_health(address, Question.LIVENESS)).is_serving
        # A place is free again when its watch has ended.
        watches[0].cancel()
        async with asyncio.timeout(10):
            while True:
                again = health_pb2_grpc.HealthStub(channels[-1]).Watch(request)
                try:
                    assert (await again.read()).status == SERVING
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)
        again.cancel()
    finally:
        for channel in channels:
            await channel.close()


def test_the_address_is_host_and_port() -> None:
    assert HealthConfig(listen="[::]:10912").listen == "[::]:10912"
    for wrong in ("10912", "host:", "a b:1"):
        with pytest.raises(InvalidArgument, match=r"health\.listen"):
            HealthConfig(listen=wrong)
