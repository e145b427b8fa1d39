"""Bytes that are no requests, on the ports of a broker and a nameserver that go on serving."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from aerobee.rpc.server_engine import FRAME_BYTES_MAX
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2, nameserver_pb2_grpc
from tests.faults.clusters import ClusterProcess
from tests.faults.serving import MIB, Client, batch_of, refusal, resident_bytes
from tests.support.grpcio_client import build_channel

pytestmark = pytest.mark.slow

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


CHANCE = random.Random(8)
RAISED = re.compile(r"^[ |]*([\w.]+(?:Error|Exception)): ", re.MULTILINE)
GARBAGE = {
    "zeros": bytes(10_000),
    "every byte": bytes(range(256)) * 64,
    "random bytes": CHANCE.randbytes(200_000),
    "an HTTP/1.1 request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + CHANCE.randbytes(500),
    "a RocketMQ remoting command": struct.pack(">ii", 30, 26) + b'{"code":10,"version":401}',
    "half a preface": PREFACE[:10],
    "a preface and random bytes": PREFACE + CHANCE.randbytes(20_000),
    "a frame that claims 16 MiB": PREFACE + SETTINGS + b"\xff\xff\xff\0\0\0\0\0\x01" + bytes(1_000),
    "data for a stream that was never opened": PREFACE + SETTINGS + http2_frame(0, 0, 7, b"x" * 99),
    "headers that are no HPACK": PREFACE + SETTINGS + http2_frame(1, 4, 1, b"\xff" * 200),
    "a window that overflows": PREFACE + SETTINGS + http2_frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "ten thousand settings": PREFACE + SETTINGS * 10_000,
    "ten thousand pings": PREFACE + SETTINGS + http2_frame(6, 0, 0, bytes(8)) * 10_000,
    "resets of streams that are not there": PREFACE
    + SETTINGS
    + b"".join(http2_frame(3, 0, 2 * n + 1, bytes(4)) for n in range(2_000)),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """One that all tests here throw things at; it must be the same processes in the end."""
    with asyncio.Runner() as runner:
        cluster = ClusterProcess(tmp_path_factory.mktemp("garbage"))
        runner.run(cluster.start())
        try:
            pids = cluster.pids()
            yield cluster
            assert cluster.pids() == pids, "a process was restarted"
            for name in ("nameserver", "broker-a"):
                log = (cluster.data / "logs" / f"{name}.log").read_text()
                assert not RAISED.findall(log), "a stranger's bytes are no bug of the server"
                assert " ERROR " not in log
        finally:
            runner.run(cluster.close())


@pytest.fixture(params=["broker-a", "nameserver"])
def address(request: pytest.FixtureRequest, cluster: ClusterProcess) -> str:
    return cluster.addresses()[request.param]


@pytest.fixture
async def served(cluster: ClusterProcess) -> AsyncIterator[Client]:
    """A well-behaved client; before and after, both services answer it and nothing was stored."""
    async with (
        Client(cluster.addresses()["broker-a"]) as client,
        build_channel(cluster.addresses()["nameserver"]) as channel,
    ):
        nameserver = nameserver_pb2_grpc.NameserverServiceStub(channel)
        before = await client.log_end()
        topics = await nameserver.ListTopics(nameserver_pb2.ListTopicsRequest(), timeout=10)
        yield client
        assert await client.log_end() == before
        assert await nameserver.ListTopics(nameserver_pb2.ListTopicsRequest(), timeout=10) == topics
        (ack,) = await client.exchange(batch_of("unknown", 0, b"x"))
        assert ack.code == common_pb2.TOPIC_NOT_FOUND


async def throw(address: str, data: bytes) -> None:
    """Send bytes and read whatever comes until the server has had enough, or a short while."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(0.5):
            writer.write(data)
            await writer.drain()
            while await reader.read(65_536):
                pass
    writer.transport.abort()


@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_on_a_port_harms_nobody(served: Client, address: str, what: str) -> None:
    await throw(address, GARBAGE[what])
    await asyncio.gather(*(throw(address, GARBAGE[what]) for _ in range(5)))


async def test_connections_that_say_nothing_cost_little_and_block_nobody(
    served: Client, cluster: ClusterProcess, address: str
) -> None:
    host, _, port = address.rpartition(":")
    pids = cluster.pids()
    before = {name: resident_bytes(pid) for name, pid in pids.items()}
    writers = []
    for number in range(200):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(PREFACE[: number % 24])
        writers.append(writer)
    await served.stats()
    for name, pid in pids.items():
        assert resident_bytes(pid) < before[name] + 64 * MIB, name
    for writer in writers:
        writer.transport.abort()


def methods() -> list[str]:
    """The path of every method of both servers."""
    return [
        f"/{service.full_name}/{method.name}"
        for file in (broker_pb2.DESCRIPTOR, nameserver_pb2.DESCRIPTOR)
        for service in file.services_by_name.values()
        for method in service.methods
    ]


GARBAGE_MESSAGES = (
    b"\xff\xff\xff no protobuf",
    b"\x0a\x7f a length beyond the end",
    b"\x0a\xff\xff\xff\xff\x0f a length beyond everything",
    b"\x00 a field of number 0",
    b"\x0b a group that never ends",
)


async def status_of(channel: grpc.aio.Channel, path: str, message: bytes) -> grpc.StatusCode:
    """How a call ends that sends these bytes as its only message."""
    call: Any = channel.stream_stream(path)(timeout=10)  # bytes in, bytes out
    try:
        await call.write(message)
        await call.done_writing()
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as failure:
        return failure.code()
    except asyncio.InvalidStateError:
        pass  # it had ended before the end of its input
    code: grpc.StatusCode = await call.code()
    return code


@pytest.mark.parametrize("path", methods())
async def test_garbage_in_place_of_a_protobuf_fails_that_call_only(
    served: Client, cluster: ClusterProcess, path: str
) -> None:
    name = "nameserver" if "NameserverService" in path else "broker-a"
    async with build_channel(cluster.addresses()[name]) as channel:
        codes = [await status_of(channel, path, message) for message in GARBAGE_MESSAGES]
    # A membership says why it ends in its last event.
    in_event = path.endswith("/Membership")
    assert set(codes) == {grpc.StatusCode.OK if in_event else grpc.StatusCode.INVALID_ARGUMENT}


async def test_a_message_above_the_frame_limit_is_refused_and_not_kept(
    served: Client, cluster: ClusterProcess
) -> None:
    pid = cluster.pids()["broker-a"]
    before = resident_bytes(pid)
    for _ in range(3):
        code, _ = await refusal(
            served.send_service.Send(broker_pb2.SendRequest(topic="t", body=b"x"), timeout=10)
        )
        assert code is grpc.StatusCode.NOT_FOUND
        async with grpc.aio.insecure_channel(
            served.address, options=[("grpc.max_send_message_length", -1)]
        ) as channel:
            send: Any = channel.unary_unary("/aerobee.v1.SendService/Send")
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await send(bytes(FRAME_BYTES_MAX + 1), timeout=20)
            assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert resident_bytes(pid) < before + 3 * FRAME_BYTES_MAX


async def test_an_unknown_method_is_unimplemented(served: Client, address: str) -> None:
    async with build_channel(address) as channel:
        for path in ("/aerobee.v1.SendService/Sned", "/aerobee.v2.SendService/Send", "/x"):
            call: Any = channel.unary_unary(path)
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call(b"", timeout=10)
            assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
