"""The gRPC server of Aerobee's services with a method that answers with the request.

All that is around a call of a service is around this one. Prints its port.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import uvloop

from aerobee.runtime.freed_memory import keep_freed_memory
from aerobee.runtime.own_protocol import say_error
from aerobee.runtime.rpc import RpcServer
from aerobee.runtime.served_method import answered_at_once


@answered_at_once
def echo(request: bytes, _context: object) -> bytes:
    """The bytes as they came."""
    return request


async def serve() -> None:
    """Until it is ended."""
    server = RpcServer(say_error, ())
    methods: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.server.add_registered_method_handlers("echo.Echo", methods)
    print(await server.start("127.0.0.1:0"), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    keep_freed_memory()
    uvloop.run(serve())
