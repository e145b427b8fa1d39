"""When answers leave: each write is a system call, and each turn of the event loop a poll."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from unittest.mock import Mock

import pytest

from aerobee.rpc.core import frames
from aerobee.rpc.core.method import coroutine
from aerobee.rpc.core.server_call import ServerCall
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.raw_http2 import RawPeer, data, headers, message, raw_peer, request_block


class Writes:
    """What a server gave to its transport, and how much of it when each answer was sent."""

    def __init__(self) -> None:
        self.count = 0
        self.after_each: list[int] = []

    async def chat(self, requests: AsyncIterator[bytes], call: ServerCall) -> None:
        transport = call.connection.transport
        assert transport is not None

        def write(parts: bytes) -> None:
            self.count += 1
            transport.write(parts)

        call.connection.transport = Mock(wraps=transport, write=write)
        async for request in requests:
            call.send_now(request)
            if self.count:
                self.after_each.append(self.count)


@pytest.fixture
async def chatting() -> AsyncIterator[tuple[Writes, RawPeer]]:
    """A call that sends every request back; its head was answered."""
    writes = Writes()
    method = coroutine(SERVICE + "Chat", writes.chat, streams_requests=True, streams_answers=True)
    async with serving(method) as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Chat")), data(1, message(b"head")))
        assert (await peer.expect(frames.DATA)).payload == message(b"head")
        writes.count = 0
        writes.after_each.clear()
        yield writes, peer


async def test_an_answer_to_one_request_leaves_before_anything_else_runs(
    chatting: tuple[Writes, RawPeer],
) -> None:
    writes, peer = chatting
    await peer.send(data(1, message(b"alone")))
    assert (await peer.expect(frames.DATA)).payload == message(b"alone")
    assert writes.after_each == [1]


async def test_answers_to_requests_that_came_together_leave_together(
    chatting: tuple[Writes, RawPeer],
) -> None:
    writes, peer = chatting
    await peer.send(data(1, b"".join(message(b"%d" % number) for number in range(5))))
    for number in range(5):
        assert (await peer.expect(frames.DATA)).payload == message(b"%d" % number)
    assert writes.count == 1


async def test_small_answers_leave_at_once_on_every_event_loop() -> None:
    """Or each waits up to 40 ms for an acknowledgement of the one before."""
    async with serving() as running, raw_peer(running.port) as peer:
        await peer.ping()
        (connection,) = running.server.connections
        assert connection.transport is not None
        theirs = connection.transport.get_extra_info("socket")
        assert theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
