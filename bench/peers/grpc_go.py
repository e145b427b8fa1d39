"""A gRPC echo: grpc-go's server, and ours, under the same load from grpc-go's client."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from peers.go_programs import GRPC, GoPrograms, version_of
from peers.processes import Server, ended
from peers.system import ECHO_STAGES


class GrpcGo:
    """grpc-go's server with default settings; bytes in, the same bytes out."""

    stages = ECHO_STAGES
    title = f"grpc-go {version_of(GRPC)}"
    programs = (GoPrograms(),)

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        load = GoPrograms().folder / "load"
        async with _echo((str(load), "grpc-server"), load, folder, body_bytes) as server:
            yield server


class OwnEcho:
    """The gRPC server of Aerobee with the same method."""

    stages = ECHO_STAGES
    title = "Aerobee"

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        argv = (sys.executable, "-m", "peers.own_echo")
        async with _echo(argv, GoPrograms().folder / "load", folder, body_bytes) as server:
            yield server


@contextlib.asynccontextmanager
async def _echo(
    argv: Sequence[str], load: Path, folder: Path, body_bytes: int
) -> AsyncIterator[Server]:
    """A server that prints its port and ends with its standard input."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=folder
    )
    assert process.stdout is not None, "it was asked for"
    try:
        port = int(await process.stdout.readline())
        yield Server(process.pid, (str(load), "grpc", f"127.0.0.1:{port}", str(body_bytes)))
    finally:
        await ended(process)
