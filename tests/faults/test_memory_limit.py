"""Nodes in containers of a quarter, half and whole GiB, and strangers who fill their memory: these
are refused or ended, and the kernel ends no process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aerobee.rpc.core import frames
from aerobee.rpc.memory_budget import (
    BROKER_MEMORY,
    MIB,
    NAMESERVER_MEMORY,
    Division,
    MemoryBudget,
)
from aerobee.runtime.machine import UsableMemory
from aerobee.runtime.supervise import ExitCode
from tests.support.etcd import EtcdProcess
from tests.support.memory_cgroup import Limited, limited
from tests.support.ports import free_ports
from tests.support.raw_http2 import RawPeer, call, headers, message, raw_peer, request_block
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(300)]

GZIP = (b"grpc-encoding", b"gzip")
CHECK = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
SEND_MESSAGE = "/apache.rocketmq.v2.MessagingService/SendMessage"
SEND_STREAM = "/aerobee.v1.SendService/SendStream"
CHUNK = 16_384


async def push(peer: RawPeer, stream: int, payload: bytes) -> None:
    """Send as much of it as the windows allow, and wait for more, until the connection ends."""
    windows = {0: 65_535, stream: 65_535}
    at = 0

    async def follow() -> None:
        while (received := await peer.receive()) is not None:
            if received.kind == frames.WINDOW_UPDATE and received.stream_id in windows:
                windows[received.stream_id] += int.from_bytes(received.payload, "big")
            elif received.kind == frames.SETTINGS and received.payload:
                pairs = received.payload
                for begin in range(0, len(pairs), 6):
                    if int.from_bytes(pairs[begin : begin + 2], "big") == 4:
                        windows[stream] += int.from_bytes(pairs[begin + 2 : begin + 6], "big")
                        windows[stream] -= 65_535
            elif received.kind == frames.GOAWAY:
                return

    following = asyncio.ensure_future(follow())
    while at < len(payload) and not following.done():
        size = min(CHUNK, len(payload) - at, *windows.values())
        if size <= 0:
            await asyncio.sleep(0.01)
            continue
        windows[0] -= size
        windows[stream] -= size
        await peer.send(frames.frame(frames.DATA, 0, stream, payload[at : at + size]))
        at += size
    await asyncio.wait((following,), timeout=HELD_S)
    following.cancel()


HELD_S = 2.0
"""How long the strangers hold what they have sent."""


async def parts_of_large_requests(port: int, path: str, connections: int, size: int) -> None:
    """Each connection sends all of a request but its last bytes."""
    payload = b"\0" + size.to_bytes(4, "big") + bytes(size - 100)

    async def one() -> None:
        with contextlib.suppress(OSError, AssertionError, TimeoutError):
            async with raw_peer(port) as peer:
                await peer.send(headers(1, request_block(path)))
                await push(peer, 1, payload)

    await asyncio.gather(*(one() for _ in range(connections)))


async def messages_that_inflate(port: int, connections: int) -> None:
    """Answers are not read, so messages wait; each of 4 KiB is 4 MiB when decompressed."""
    packed = message(zlib.compress(bytes(4 * MIB), 9, wbits=31), compressed=1)

    async def one() -> None:
        with contextlib.suppress(OSError, AssertionError, TimeoutError):
            async with raw_peer(port) as peer:
                await peer.send(headers(1, request_block(REFLECTION, GZIP)))
                await push(peer, 1, packed * 200)

    await asyncio.gather(*(one() for _ in range(connections)))


@contextmanager
def node(kind: str, mib: int, folder: Path) -> Iterator[tuple[Limited, int]]:
    port, *_ = free_ports(1)
    program = [sys.executable, "-m", "aerobee.cli", kind, "--listen", f"127.0.0.1:{port}"]
    (folder / "etcd").mkdir()
    etcd = EtcdProcess(folder / "etcd")
    if kind == "nameserver":
        etcd.start()
        program += ["--etcd-endpoints", etcd.endpoint]
    else:
        program += ["--store-root", str(folder / "store")]
    try:
        with limited(program, mib * MIB, folder / "log", kind) as running:
            if running is None:
                pytest.skip("there are no cgroups that this process may make")
            yield running, port
    finally:
        if kind == "nameserver":
            etcd.stop()


async def serves(port: int) -> bool:
    try:
        async with asyncio.timeout(20), raw_peer(port) as peer:
            await peer.send(call(1, CHECK))
            return await peer.status(1) == b"0"
    except (OSError, AssertionError, TimeoutError):
        return False


ATTACKS: dict[str, Callable[[int], object]] = {
    "parts": lambda port: parts_of_large_requests(port, SEND_MESSAGE, 60, 15 * MIB),
    "frames": lambda port: parts_of_large_requests(port, SEND_STREAM, 24, 30 * MIB),
    "gzip": lambda port: messages_that_inflate(port, 24),
}


@pytest.mark.parametrize("mib", [256, 512, 1_024])
@pytest.mark.parametrize(
    ("kind", "division"),
    [("nameserver", NAMESERVER_MEMORY), ("broker", BROKER_MEMORY)],
    ids=["nameserver", "broker"],
)
async def test_strangers_meet_refusals_and_never_the_kernel(
    tmp_path: Path, kind: str, division: Division, mib: int
) -> None:
    budget = MemoryBudget(division, UsableMemory(mib * MIB, "the test"))
    with node(kind, mib, tmp_path) as (running, port):
        await until(lambda: serves(port))
        for attack in ATTACKS.values():
            await attack(port)  # type: ignore[misc]
            assert running.process.poll() is None, (tmp_path / "log").read_text()[-2_000:]
            assert await serves(port)
        assert running.oom_kills() == 0
        peak = running.resident_max_bytes()
        print(f"{kind} {mib} MiB: peak {peak / MIB:.0f} MiB, {budget}")
        assert peak < mib * MIB
        said = (tmp_path / "log").read_text()
        assert "limit=process_memory" in said or "limit=message" in said


@pytest.mark.parametrize("kind", ["nameserver", "broker"])
def test_a_node_does_not_start_with_less_than_it_needs(tmp_path: Path, kind: str) -> None:
    with node(kind, 160, tmp_path) as (running, _):
        assert running.process.wait(60) == ExitCode.REFUSED
        said = (tmp_path / "log").read_text()
    assert "may use 160 MiB of memory, by /sys/fs/cgroup" in said
    assert "resources.limits.memory" in said
    assert "Traceback" not in said
