"""The gRPC server of Aerobee's services with a method that returns its request.

Calls pass through everything that calls of a real service do. Prints its port.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import uvloop

from aerobee.rpc.own_protocol import say_error
from aerobee.rpc.served_method import answered_at_once
from aerobee.rpc.serving import RpcServer
from aerobee.runtime.freed_memory import keep_freed_memory


@answered_at_once
def echo(request: bytes, _context: object) -> bytes:
    """Return the bytes unchanged."""
    return request


async def serve() -> None:
    """Until it is terminated."""
    server = RpcServer(say_error, ())
    methods: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.server.add_registered_method_handlers("echo.Echo", methods)
    print(await server.start("127.0.0.1:0"), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    keep_freed_memory()
    uvloop.run(serve())
