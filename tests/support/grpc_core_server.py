"""A server of grpc_core with small services of every shape, and what its observers saw."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aerobee.rpc.core.first_bytes import Beside
from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.method import Method, Style, completion, coroutine, synchronous
from aerobee.rpc.core.server import Interceptor, Server
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.status import RpcError, Status
from aerobee.rpc.core.tls import FollowedTls

SERVICE = "/test.Echo/"
WORDS = "nicht möglich: 100 %\n"
"""The message with which `Fail` fails: not ASCII, and with what percent-encoding must escape."""


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


DETAILS = (
    b"\x08\x09"
    + _field(2, WORDS.encode())
    + _field(
        3,
        _field(1, b"type.googleapis.com/google.rpc.ErrorInfo") + _field(2, _field(1, b"BROKEN")),
    )
)
"""A matching google.rpc.Status, with one google.rpc.ErrorInfo; grpc-go reads all of it."""


@dataclass
class Serving:
    """What is running, and what was observed."""

    server: Server
    port: int = 0
    met: list[tuple[Limit, str]] = field(default_factory=list)
    bugs: list[Exception] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """Names of cancelled handlers."""

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def limits_met(self) -> list[Limit]:
        return [limit for limit, _ in self.met]


class Told:
    """Both observers of a server."""

    def __init__(self) -> None:
        self.met: list[tuple[Limit, str]] = []
        self.bugs: list[Exception] = []

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        assert peer.startswith("ipv4:127.0.0.1:"), peer
        self.met.append((limit, reason))

    def bug(self, call: ServerCall, error: Exception) -> None:
        self.bugs.append(error)


@asynccontextmanager
async def serving(
    *methods: Method,
    limits: ConnectionLimits | None = None,
    tls: ssl.SSLContext | FollowedTls | None = None,
    accepts_plain_text: bool = False,
    now: Callable[[], float] = time.monotonic,
    connections_max: int = 1_000,
    memory_bytes_max: int = 512 << 20,
    interceptor: Interceptor | None = None,
    beside: Beside | None = None,
) -> AsyncIterator[Serving]:
    """A server on its own port, stopped at the end; fails for any bug that was not checked."""
    told = Told()
    server = Server(
        now=now,
        random=random.Random(0),
        observer=told,
        on_bug=told.bug,
        limits=limits,
        connections_max=connections_max,
        memory_bytes_max=memory_bytes_max,
        interceptor=interceptor,
        beside=beside,
    )
    running = Serving(server, met=told.met, bugs=told.bugs)
    server.add(*(methods or echo_methods(running.cancelled)))
    running.port = await server.listen(
        "127.0.0.1", 0, tls=tls, accepts_plain_text=accepts_plain_text
    )
    try:
        yield running
    finally:
        await server.stop(0)
    assert server.memory.used == 0, "what a connection held was given back"
    assert not server.tasks
    assert running.bugs == [], running.bugs
    assert Limit.BUG not in running.limits_met, running.met


def echo_methods(cancelled: list[str]) -> list[Method]:
    """`Echo` in each style, and a method of each shape."""
    return [
        synchronous(SERVICE + "Echo", lambda request, call: request),
        completion(SERVICE + "Later", _later),
        coroutine(SERVICE + "Task", _task),
        synchronous(SERVICE + "Fail", _fail),
        synchronous(SERVICE + "Metadata", _metadata),
        coroutine(SERVICE + "Sleep", sleeper(cancelled)),
        completion(SERVICE + "Never", lambda request, call: None),
        coroutine(SERVICE + "Count", count, streams_answers=True),
        coroutine(SERVICE + "CountBySend", _count_by_send, streams_answers=True),
        coroutine(SERVICE + "CountAndCancel", _count_and_cancel, streams_answers=True),
        coroutine(SERVICE + "Forever", _forever(cancelled), streams_answers=True),
        coroutine(SERVICE + "Sum", sum_up, streams_requests=True),
        coroutine(SERVICE + "Chat", chat, streams_requests=True, streams_answers=True),
        synchronous(SERVICE + "Large", lambda request, call: b"x" * int(request)),
        Method(
            SERVICE + "Squeezed",
            lambda request, call: request,
            Style.SYNCHRONOUS,
            compress_bytes_min=1_000,
        ),
    ]


def _later(request: bytes, call: ServerCall) -> None:
    call.connection.loop.call_soon(call.finish, request)


async def _task(request: bytes, call: ServerCall) -> bytes:
    await asyncio.sleep(0)
    return request


def _fail(request: bytes, call: ServerCall) -> bytes:
    raise RpcError(
        Status.FAILED_PRECONDITION,
        WORDS,
        details=DETAILS,
        trailers=(("reason", "broken"), ("reason-bin", b"\x00\xff")),
    )


def _metadata(request: bytes, call: ServerCall) -> bytes:
    """Returns everything that the client sent, as trailers and as initial metadata."""
    given = tuple(pair for pair in call.metadata if pair[0] != "user-agent")
    call.send_initial_metadata(given)
    call.add_trailers((*given, ("count-bin", bytes((len(given),)))))
    return call.peer.encode()


# These four also serve grpcio's servers: they use nothing of their call.


def sleeper(cancelled: list[str]) -> Callable[..., Any]:
    async def sleep(request: bytes, call: object) -> bytes:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled.append("Sleep")
            raise
        return request

    return sleep


async def count(request: bytes, call: object) -> AsyncIterator[bytes]:
    """`count,size`: this many answers of this size."""
    number_of, _, size = request.partition(b",")
    for number in range(int(number_of)):
        yield b"%d" % number + b"x" * int(size or b"0")


async def sum_up(requests: AsyncIterator[bytes], call: object) -> bytes:
    return b"%d" % sum([len(request) async for request in requests])


async def chat(requests: AsyncIterator[bytes], call: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def _count_by_send(request: bytes, call: ServerCall) -> None:
    async for answer in count(request, call):
        await call.send(answer)


async def _count_and_cancel(request: bytes, call: ServerCall) -> AsyncIterator[bytes]:
    """`count` answers, then the server cancels the call."""
    async for answer in count(request, call):
        yield answer
    raise asyncio.CancelledError


def _forever(cancelled: list[str]) -> Callable[..., Any]:
    async def forever(request: bytes, call: ServerCall) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 10_000
        finally:
            cancelled.append("Forever")

    return forever
