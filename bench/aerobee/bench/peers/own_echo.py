"""A server of Aerobee's gRPC with one method, which answers with the request; prints its port."""

from __future__ import annotations

import asyncio
import random
import time

import uvloop

from aerobee.grpc_core.limits import Limit
from aerobee.grpc_core.method import synchronous
from aerobee.grpc_core.server import Server
from aerobee.grpc_core.server_call import ServerCall


class _Observer:
    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        raise AssertionError(f"{peer} met {limit}: {reason}")


def _bug(call: ServerCall, error: Exception) -> None:
    raise error


async def serve() -> None:
    """Until it is ended."""
    server = Server(now=time.monotonic, random=random.Random(0), observer=_Observer(), on_bug=_bug)
    server.add(synchronous("/echo.Echo/Echo", lambda request, call: request))
    print(await server.listen("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
