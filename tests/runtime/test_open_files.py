"""How many clients may be connected, and what is set aside for the service itself."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys

import pytest

from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.machine import CONNECTIONS_MIN, connections_max


def test_what_the_service_needs_is_set_aside() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert connections_max(10) == soft - 10
    assert connections_max(soft - CONNECTIONS_MIN) == CONNECTIONS_MIN
    with pytest.raises(InvalidArgument, match="raise the limit of file descriptors"):
        connections_max(soft - CONNECTIONS_MIN + 1)


def test_the_limit_is_raised_to_what_is_allowed() -> None:
    program = (
        "import resource as r; from aerobee.runtime.machine import raise_limit;"
        "r.setrlimit(r.RLIMIT_NOFILE, (100, 200)); raise_limit();"
        "print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert said.stdout == b"(200, 200)\n"


async def test_a_server_takes_no_more_connections_than_it_may_and_new_ones_when_others_go() -> None:
    server = RpcServer(say_error, [], connections_max=5)
    port = await server.start("127.0.0.1:0")
    try:
        taken = [await _connect(port) for _ in range(8)]
        assert sum(greeted for _, greeted in taken) == 5
        for writer, _ in taken:
            writer.close()
        async with asyncio.timeout(10):
            while True:
                writer, greeted = await _connect(port)
                writer.close()
                if greeted:
                    break
    finally:
        await server.stop(0)


async def _connect(port: int) -> tuple[asyncio.StreamWriter, bool]:
    """A connection, and whether the server began to speak."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return writer, bool(await reader.read(1))
    except OSError:
        return writer, False
