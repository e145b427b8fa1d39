"""What the transport costs by itself: `python -m aerobee.bench.transport [MESSAGE_BYTES]`.

Both ends in one process, messages one way and short answers back. Prints the processor time per
MiB, of both ends and the kernel together: the least of several rounds, since other work on the
machine only adds to it.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from typing import Any

import uvloop

from aerobee.rpc.client_channel import open_channel
from aerobee.rpc.core.channel import Channel
from aerobee.rpc.core.method import Style
from aerobee.rpc.grpc_config import Engine
from aerobee.rpc.served_method import ServedMethod
from aerobee.rpc.server_engine import ServerOptions
from aerobee.rpc.serving import new_engine
from aerobee.runtime.freed_memory import keep_freed_memory

MESSAGE_BYTES = 512 << 10
ROUND_BYTES = 32 << 20
ROUNDS = 15
_PATH = "/bench/Upload"


async def _upload(_requests: object, context: Any) -> None:
    while isinstance(request := await context.read(), bytes | memoryview):
        await context.write(len(request).to_bytes(4, "big"))


async def _exchange(channel: Channel, message: bytes, count: int) -> float:
    """Seconds of processor time."""
    call = channel.stream(_PATH)
    began_s = time.process_time()

    async def read() -> None:
        for _ in range(count):
            assert await call.read() == len(message).to_bytes(4, "big")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read(), name="read")
        for _ in range(count):
            await call.write(message)
    elapsed_s = time.process_time() - began_s
    call.cancel()
    return elapsed_s


async def cost_per_mib_us(
    message_bytes: int, *, rounds: int = ROUNDS, round_bytes: int = ROUND_BYTES
) -> float:
    """The least of `rounds`."""
    server = new_engine(Engine.OWN, ServerOptions())
    server.add(
        ServedMethod(_PATH, _upload, Style.COROUTINE, True, True, None, None, takes_views=True)
    )
    port = await server.listen("127.0.0.1:0")
    channel = open_channel(f"127.0.0.1:{port}", random.Random(1))
    message = os.urandom(message_bytes)
    count = max(1, round_bytes // message_bytes)
    try:
        least_s = min([await _exchange(channel, message, count) for _ in range(rounds)])
    finally:
        await channel.close()
        await server.stop(0)
    return least_s * 1e6 / (count * message_bytes / (1 << 20))


if __name__ == "__main__":
    keep_freed_memory()
    size = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGE_BYTES
    print(f"{uvloop.run(cost_per_mib_us(size)):.0f} us per MiB in messages of {size} bytes")
