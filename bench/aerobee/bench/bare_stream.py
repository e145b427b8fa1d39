"""What gRPC alone can do here: an echo of the same shapes, without a message queue.

Every benchmark figure is compared with this one, measured in the same run on the same machine. The
server is a separate process, like the broker, on the same event loop and the same gRPC core. The
client is grpcio's: with large frames it is about twice as fast as the core's, so it is the harder
baseline. For one small frame at a time the core's is faster.
Methods: `Upload` takes frames and answers each with a few bytes (a send stream), `Download` sends
frames of the size and count that the first message asks for (a pull stream).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from aerobee.bench.grpcio_client import grpcio_channel
from aerobee.bench.measure import Latencies, Stopwatch, Throughput
from aerobee.rpc.core.method import Style
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.served_method import ServedMethod
from aerobee.rpc.server_engine import ServerOptions
from aerobee.rpc.serving import new_engine
from aerobee.runtime.freed_memory import keep_freed_memory

ANSWER = b"\x08\x01\x10\x01\x20\x80\x80\x80\x80\x01\x28\x80\x80\x80\x80\x80\x04"
REQUEST = struct.Struct(">II")
WARM_UP_FRAMES = 200


async def _upload(_requests: object, context: Any) -> None:
    while await context.read() is not grpc.aio.EOF:
        await context.write(ANSWER)


async def _download(_requests: object, context: Any) -> None:
    size, count = REQUEST.unpack(await context.read())
    frame = bytes(size)
    for _ in range(count):
        await context.write(frame)


async def _serve() -> None:
    server = new_engine(Engine.OWN, ServerOptions())
    for path, handler in (("/bare/Upload", _upload), ("/bare/Download", _download)):
        server.add(ServedMethod(path, handler, Style.COROUTINE, True, True, None, None))
    port = await server.listen("127.0.0.1:0")
    print(port, flush=True)
    # Ends with the parent, which closes its end of the pipe.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


@contextlib.asynccontextmanager
async def running_bare_server() -> AsyncIterator[str]:
    """A bare server process; yields its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "aerobee.bench.bare_stream",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.stdin.close()
        await process.wait()


async def upload_rate(address: str, *, frame_bytes: int, total_bytes: int) -> Throughput:
    """Frames one way, small answers back, as fast as flow control allows."""
    frame = bytes(frame_bytes)
    async with grpcio_channel(address) as channel:
        call: Any = channel.stream_stream("/bare/Upload")()

        async def exchange(count: int) -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_write(call, frame, count), name="write")
                tasks.create_task(_read(call, count), name="read")

        await exchange(WARM_UP_FRAMES)
        count = max(1, total_bytes // frame_bytes)
        watch = Stopwatch()
        await exchange(count)
        elapsed_s = watch.elapsed_s()
        await call.done_writing()
    return Throughput(messages=count, bytes=count * frame_bytes, elapsed_s=elapsed_s)


async def download_rate(address: str, *, frame_bytes: int, total_bytes: int) -> Throughput:
    """Frames pushed by the server as fast as flow control allows."""
    async with grpcio_channel(address) as channel:
        count = max(1, total_bytes // frame_bytes)
        for frames in (WARM_UP_FRAMES, count):
            call: Any = channel.stream_stream("/bare/Download")()
            watch = Stopwatch()
            await call.write(REQUEST.pack(frame_bytes, frames))
            await _read(call, frames)
            elapsed_s = watch.elapsed_s()
            await call.done_writing()
    return Throughput(messages=count, bytes=count * frame_bytes, elapsed_s=elapsed_s)


async def echo_latency(address: str, *, frame_bytes: int, count: int) -> Latencies:
    """One frame in flight: write, wait for its answer, repeat."""
    frame = bytes(frame_bytes)
    samples: list[float] = []
    async with grpcio_channel(address) as channel:
        call: Any = channel.stream_stream("/bare/Upload")()
        for turn in range(WARM_UP_FRAMES + count):
            watch = Stopwatch()
            await call.write(frame)
            await call.read()
            if turn >= WARM_UP_FRAMES:
                samples.append(watch.elapsed_s())
        await call.done_writing()
    return Latencies.of(samples)


async def _write(call: Any, frame: bytes, count: int) -> None:
    for _ in range(count):
        await call.write(frame)


async def _read(call: Any, count: int) -> None:
    for _ in range(count):
        await call.read()


if __name__ == "__main__":
    keep_freed_memory()
    uvloop.run(_serve())
