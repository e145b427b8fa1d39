"""The proxies of the fail-over tests do what the scenarios believe of them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.failover.network import CLIENTS, HOST, Network

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echo(
    network: Network,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection through the network to a node `far` that answers what it is told."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(100):
                writer.write(data)
        writer.transport.abort()
        ended.release()

    ended = asyncio.Semaphore(0)
    server = await asyncio.start_server(answer, HOST, 0)
    port = await network.listen("far", server.sockets[0].getsockname()[1])
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await network.close()
        server.close()
        await ended.acquire()
        await asyncio.sleep(0.01)


@pytest.fixture
def network() -> Network:
    return Network(lambda: {os.getpid(): "near"})


async def test_a_dialler_is_known_by_its_process(network: Network) -> None:
    async with echo(network) as (reader, writer):
        writer.write(b"one")
        assert await reader.read(3) == b"one"
        network.part("near", ["far"])
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.read(3)


async def test_a_process_that_is_no_node_is_a_client() -> None:
    network = Network(lambda: {})
    async with echo(network) as (reader, writer):
        network.block(CLIENTS, "far")
        writer.write(b"one")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.read(3)
        network.heal()
        assert await reader.read(3) == b"one"


async def test_another_process_is_told_from_this_one() -> None:
    nodes: dict[int, str] = {}
    network = Network(lambda: nodes)
    async with echo(network) as (_, writer):
        port = writer.get_extra_info("peername")[1]
        network.block("other", "far")
        code = f"import socket; input(); s=socket.create_connection(('{HOST}',{port}));"
        code += "s.sendall(b'x'); s.settimeout(0.5); print(s.recv(1))"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        nodes[process.pid] = "other"
        # Only now does it dial.
        said, complaint = await process.communicate(b"\n")
        assert b"timed out" in complaint, said


async def test_one_direction_blocked_lets_the_other_flow_and_loses_nothing(
    network: Network,
) -> None:
    async with echo(network) as (reader, writer):
        network.block("far", "near")
        writer.write(b"one")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.read(3)
        network.heal()
        assert await reader.read(3) == b"one"


async def test_a_slow_wire_delays(network: Network) -> None:
    async with echo(network) as (reader, writer):
        network.slow("near", "far", delay_s=0.2, bytes_per_s=1_000_000)
        began = time.monotonic()
        writer.write(b"one")
        assert await reader.read(3) == b"one"
        assert time.monotonic() - began >= 0.2


async def test_a_reset_ends_the_connections_between_two_nodes(network: Network) -> None:
    async with echo(network) as (reader, writer):
        writer.write(b"one")
        assert await reader.read(3) == b"one"
        assert network.reset("near", "else") == 0
        assert network.reset("far", "near") == 1
        with suppress(ConnectionError):
            assert await reader.read(3) == b""
