"""A server of grpc_core in a separate process, which can be killed.

python -m tests.support.grpc_core_echo PORT
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aerobee.rpc.core.server import Server
from tests.support.grpc_core_server import Told, echo_methods


@asynccontextmanager
async def echo_process(port: int) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Already listening when it is yielded; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.grpc_core_echo", str(port)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None, "it was asked for"
        await asyncio.to_thread(process.stdout.readline)
        yield process
    finally:
        process.kill()
        process.communicate()


async def _serve(port: int) -> None:
    told = Told()
    server = Server(now=time.monotonic, random=random.Random(0), observer=told, on_bug=told.bug)
    server.add(*echo_methods([]))
    await server.listen("127.0.0.1", port)
    print("listens", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
