"""A channel of grpc_core, and servers of grpcio for it to call."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel import Channel
from aerobee.rpc.core.channel_limits import ChannelLimits
from aerobee.rpc.core.dial import Resolve
from aerobee.rpc.core.limits import Limit
from aerobee.rpc.core.tls import FollowedTls
from tests.support.grpc_core_server import (
    DETAILS,
    SERVICE,
    WORDS,
    chat,
    count,
    sleeper,
    sum_up,
)
from tests.support.raw_http2 import RawPeer
from tests.support.raw_http2_server import answer, requested

MIB = 1 << 20
ECHO = SERVICE + "Echo"
SWIFT = ChannelLimits(backoff_first_s=0.02, backoff_max_s=0.05, attempt_s=1.0, stagger_s=0.05)
"""Short pauses."""
SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", 32 * MIB),
    ("grpc.max_send_message_length", 32 * MIB),
]


class Observed:
    """Which limits a server hit."""

    def __init__(self) -> None:
        self.met: list[Limit] = []

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        self.met.append(limit)


@asynccontextmanager
async def channel_to(
    address: str,
    *,
    observer: Observed | None = None,
    limits: ChannelLimits | None = None,
    now: Callable[[], float] = time.monotonic,
    tls: ssl.SSLContext | FollowedTls | None = None,
    server_name: str | None = None,
    resolve: Resolve | None = None,
    compress_bytes_min: int | None = None,
) -> AsyncIterator[Channel]:
    """Closed at the end; fails if it then still holds anything."""
    channel = Channel(
        address,
        now=now,
        random=random.Random(0),
        observer=observer or Observed(),
        limits=limits,
        tls=tls,
        server_name=server_name,
        resolve=resolve,
        compress_bytes_min=compress_bytes_min,
    )
    try:
        yield channel
    finally:
        await channel.close()
    assert channel.held_bytes == 0, "what a connection held was given back"
    assert not channel.waiting


class _Echo(grpc.GenericRpcHandler):
    """The methods of `grpc_core_server.echo_methods` used to test clients of all engines."""

    def __init__(self, **handlers: grpc.RpcMethodHandler[Any, Any]) -> None:
        self._handlers = handlers

    def service(self, details: Any) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._handlers.get(details.method.removeprefix(SERVICE))


def _status(context: Any) -> None:
    context.set_trailing_metadata(
        (
            ("reason", "broken"),
            ("reason-bin", b"\x00\xff"),
            ("grpc-status-details-bin", DETAILS),
        )
    )
    context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
    context.set_details(WORDS)


def _given(context: Any) -> Any:
    own = tuple(
        (pair[0], pair[1]) for pair in context.invocation_metadata() if pair[0] != "user-agent"
    )
    return own, (*own, ("count-bin", bytes((len(own),))))


async def _aio_echo(request: bytes, context: Any) -> bytes:
    return request


async def _aio_fail(request: bytes, context: Any) -> bytes:
    _status(context)
    return b""


async def _aio_metadata(request: bytes, context: Any) -> bytes:
    initial, trailing = _given(context)
    await context.send_initial_metadata(initial)
    context.set_trailing_metadata(trailing)
    return context.peer().encode()  # type: ignore[no-any-return]


def _counted(request: bytes) -> Iterator[bytes]:
    count, _, size = request.partition(b",")
    for number in range(int(count)):
        yield b"%d" % number + b"x" * int(size or b"0")


@asynccontextmanager
async def aio_server(
    cancelled: list[str], *, port: int = 0, options: Any = (), **kwargs: Any
) -> AsyncIterator[str]:
    """grpcio's asyncio server; yields its address."""
    server = grpc.aio.server(options=[*SERVER_OPTIONS, *options], **kwargs)
    echo: Any = grpc.unary_unary_rpc_method_handler(_aio_echo)
    server.add_generic_rpc_handlers(
        [
            _Echo(
                Echo=echo,
                Large=grpc.unary_unary_rpc_method_handler(_aio_large),
                Squeezed=echo,
                Fail=grpc.unary_unary_rpc_method_handler(_aio_fail),
                Metadata=grpc.unary_unary_rpc_method_handler(_aio_metadata),
                Sleep=grpc.unary_unary_rpc_method_handler(sleeper(cancelled)),
                Count=grpc.unary_stream_rpc_method_handler(count),
                Sum=grpc.stream_unary_rpc_method_handler(sum_up),
                Chat=grpc.stream_stream_rpc_method_handler(chat),
            )
        ]
    )
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(0)


async def _aio_large(request: bytes, context: Any) -> bytes:
    return b"x" * int(request)


def _sleep(cancelled: list[str]) -> Callable[[bytes, Any], bytes]:
    def sleep(request: bytes, context: Any) -> bytes:
        over = threading.Event()
        if context.add_callback(over.set):  # otherwise it is already over
            over.wait(60)
        cancelled.append("Sleep")
        return request

    return sleep


def _fail(request: bytes, context: Any) -> bytes:
    _status(context)
    return b""


def _metadata(request: bytes, context: Any) -> bytes:
    initial, trailing = _given(context)
    context.send_initial_metadata(initial)
    context.set_trailing_metadata(trailing)
    return context.peer().encode()  # type: ignore[no-any-return]


def _chat(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    # A cancelled call ends its iterator with its own error.
    with contextlib.suppress(grpc.RpcError):
        yield from requests


@asynccontextmanager
async def thread_server(cancelled: list[str]) -> AsyncIterator[str]:
    """grpcio's threaded server; yields its address."""
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, options=SERVER_OPTIONS)
        echo: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        server.add_generic_rpc_handlers(
            [
                _Echo(
                    Echo=echo,
                    Large=grpc.unary_unary_rpc_method_handler(
                        lambda request, context: b"x" * int(request)
                    ),
                    Squeezed=echo,
                    Fail=grpc.unary_unary_rpc_method_handler(_fail),
                    Metadata=grpc.unary_unary_rpc_method_handler(_metadata),
                    Sleep=grpc.unary_unary_rpc_method_handler(_sleep(cancelled)),
                    Count=grpc.unary_stream_rpc_method_handler(
                        lambda request, context: _counted(request)
                    ),
                    Sum=grpc.stream_unary_rpc_method_handler(
                        lambda requests, context: b"%d" % sum(map(len, requests))
                    ),
                    Chat=grpc.stream_stream_rpc_method_handler(_chat),
                )
            ]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await asyncio.to_thread(server.stop(0).wait)


@asynccontextmanager
async def program_server(command: list[str], cancelled: list[str]) -> AsyncIterator[str]:
    """A server in another language, which prints its port, and `cancelled NAME` for handlers;
    yields its address."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None, "it was asked for"
    output = process.stdout

    async def listen() -> None:
        while line := await output.readline():
            cancelled.append(line.decode().removeprefix("cancelled ").strip())

    port = int(await output.readline())
    listening = asyncio.ensure_future(listen())
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()
        await listening


async def failure(channel: Channel) -> CallError:
    with pytest.raises(CallError) as failed:
        await channel.call(ECHO, b"", timeout_s=20)
    return failed.value


async def echoes(peer: RawPeer) -> None:
    """Answers every call."""
    while True:
        stream_id = await requested(peer)
        await peer.send(answer(stream_id, b"answer"))


async def silence(peer: RawPeer) -> None:
    """Reads, and never answers."""
    await peer.closed()
