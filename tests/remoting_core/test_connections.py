"""Real sockets: requests both ways, and peers that are slow, silent or greedy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from aerobee.remoting_core.client import RemotingClient
from aerobee.remoting_core.command import Command, Encoding
from aerobee.remoting_core.connection import Connection
from aerobee.remoting_core.errors import ConnectionEnded
from aerobee.remoting_core.frames import FrameLimits, FrameParser, encode_frame
from aerobee.remoting_core.limits import Limit, RemotingLimits
from aerobee.remoting_core.server import RemotingServer
from tests.support.waiting import until

ECHO, LATER, FAIL, NEVER, LARGE, ASK_BACK = 1, 2, 3, 4, 5, 6
LARGE_BYTES = 1 << 20


class Handler:
    """Answers by the request's code, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[Command] = []
        self.closed_peers: list[str] = []
        self.limits: list[Limit] = []
        self.bugs: list[Exception] = []
        self.release = asyncio.Event()
        self.running_most = self.running = 0

    def handle(self, connection: Connection, request: Command) -> object:
        self.seen.append(request)
        match request.code:
            case 1:
                return request.answer(0, request.fields, request.body)
            case 2:
                return self._later(request)
            case 3:
                raise RuntimeError("secret")
            case 4:
                return None
            case 5:
                return request.answer(0, body=bytes(LARGE_BYTES))
            case _:
                return self._ask_back(connection, request)

    async def _later(self, request: Command) -> Command:
        self.running += 1
        self.running_most = max(self.running, self.running_most)
        await self.release.wait()
        self.running -= 1
        return request.answer(0, body=request.body)

    async def _ask_back(self, connection: Connection, request: Command) -> Command:
        found = await connection.ask(Command(77, body=request.body))
        connection.tell(Command(40, {"group": "g"}))
        return request.answer(0, body=found.body)

    def closed(self, connection: Connection) -> None:
        self.closed_peers.append(connection.peer)

    def limit_met(self, limit: Limit, peer: str, reason: str) -> None:
        self.limits.append(limit)


def now() -> float:
    return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def serving(
    limits: RemotingLimits | None = None, **options: int
) -> AsyncIterator[tuple[Handler, int]]:
    handler = Handler()
    server = RemotingServer(
        handler,  # type: ignore[arg-type]
        handler,
        now=now,
        on_bug=lambda _, error: handler.bugs.append(error),
        limits=limits,
        **options,
    )
    port = await server.listen("127.0.0.1", 0)
    try:
        yield handler, port
    finally:
        handler.release.set()
        await server.stop(1)
        assert len(server) == 0
        assert server.held_bytes == 0


async def connected(
    port: int, serve: Callable[[Command], Command | None] | None = None
) -> RemotingClient:
    return await RemotingClient.connect("127.0.0.1", port, now=now, serve=serve)


@pytest.mark.parametrize("encoding", Encoding)
async def test_an_answer_has_the_encoding_and_number_of_its_request(encoding: Encoding) -> None:
    async with serving() as (_, port), await connected(port) as client:
        asked = [
            client.ask(Command(ECHO, {"n": str(n)}, b"x" * n, encoding=encoding)) for n in range(9)
        ]
        answers = await asyncio.gather(*asked)
    assert [each.fields["n"] for each in answers] == [str(n) for n in range(9)]
    assert {each.encoding for each in answers} == {encoding}
    assert all(each.is_answer for each in answers)


async def test_a_slow_request_holds_up_no_other() -> None:
    async with serving() as (handler, port), await connected(port) as client:
        slow = asyncio.ensure_future(client.ask(Command(LATER, body=b"slow")))
        assert (await client.ask(Command(ECHO, body=b"quick"))).body == b"quick"
        assert not slow.done()
        handler.release.set()
        assert (await slow).body == b"slow"


async def test_one_connection_carries_requests_of_both_ends() -> None:
    told: list[Command] = []

    def serve(request: Command) -> Command | None:
        told.append(request)
        return request.answer(0, body=request.body[::-1])

    async with serving() as (_, port), await connected(port, serve) as client:
        assert (await client.ask(Command(ASK_BACK, body=b"abc"))).body == b"cba"
        assert [(each.code, each.is_one_way) for each in told] == [(77, False), (40, True)]


async def test_a_one_way_request_is_not_answered() -> None:
    async with serving() as (handler, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(encode_frame(Command(ECHO, opaque=1, flag=2)))
        writer.write(encode_frame(Command(FAIL, opaque=2, flag=2)))
        writer.write(encode_frame(Command(ECHO, opaque=3)))
        parser = FrameParser(FrameLimits())
        while (answer := parser.next_command()) is None:
            parser.feed(await reader.read(1_000))
        assert answer.opaque == 3
        assert len(handler.seen) == 3
        writer.close()


async def test_a_bug_is_answered_without_its_words() -> None:
    async with serving() as (handler, port), await connected(port) as client:
        answer = await client.ask(Command(FAIL))
        assert answer.code == 1
        assert "secret" not in answer.remark
        assert [str(error) for error in handler.bugs] == ["secret"]
        assert (await client.ask(Command(ECHO))).code == 0


async def test_what_is_no_frame_ends_only_its_connection() -> None:
    async with serving() as (handler, port), await connected(port) as other:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert handler.limits == [Limit.FRAME]
        assert (await other.ask(Command(ECHO))).code == 0


async def test_whoever_waits_learns_that_the_connection_has_ended() -> None:
    async with serving() as (handler, port):
        client = await connected(port)
        asked = asyncio.ensure_future(client.ask(Command(NEVER)))
        await until(lambda: bool(handler.seen))
        client.close()
        with pytest.raises(ConnectionEnded):
            await asked
        with pytest.raises(ConnectionEnded):
            await client.ask(Command(ECHO))
        await until(lambda: len(handler.closed_peers) == 1)


async def test_a_connection_has_a_bounded_number_of_requests_at_work() -> None:
    limits = RemotingLimits(running_max=4)
    async with serving(limits) as (handler, port), await connected(port) as client:
        asked = [asyncio.ensure_future(client.ask(Command(LATER))) for _ in range(20)]
        await until(lambda: handler.running == 4)
        await asyncio.sleep(0.05)
        assert len(handler.seen) == 4
        handler.release.set()
        await asyncio.gather(*asked)
        assert handler.running_most == 4


async def test_a_flood_leaves_turns_to_others() -> None:
    """Ten thousand requests in one write: others are answered before they are through."""
    async with serving() as (handler, port), await connected(port) as other:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        count = 10_000
        writer.write(encode_frame(Command(NEVER)) * count)
        await until(lambda: len(handler.seen) > 100)
        await other.ask(Command(ECHO))
        assert len(handler.seen) < count
        await until(lambda: len(handler.seen) == count + 1)
        writer.close()


async def test_a_peer_that_reads_nothing_is_not_read_and_then_ended() -> None:
    limits = RemotingLimits(stall_s=0.3, write_high_bytes=64 << 10)
    async with serving(limits) as (handler, port):
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", port))
            slow.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                slow.send(encode_frame(Command(LARGE)) * 500)
            await until(lambda: Limit.SLOW_READER in handler.limits)
            # It was held back long before: each answer has a megabyte.
            assert len(handler.seen) < 20


async def test_a_peer_that_reads_slowly_gets_everything() -> None:
    limits = RemotingLimits(write_high_bytes=64 << 10)
    async with serving(limits) as (handler, port), await connected(port) as client:
        asked = [client.ask(Command(LARGE)) for _ in range(30)]
        assert {len((await each).body) for each in asked} == {LARGE_BYTES}
        assert handler.limits == []


async def test_a_peer_that_leaves_a_frame_incomplete_is_ended() -> None:
    async with serving(RemotingLimits(stall_s=0.2)) as (handler, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">iI", 1_000, 9) + b"begun")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert handler.limits == [Limit.SLOW_SENDER]
        writer.close()


async def test_a_silent_peer_is_let_go_and_one_that_speaks_stays() -> None:
    async with serving(RemotingLimits(stall_s=0.05, idle_s=2)) as (_, port):
        reader, silent = await asyncio.open_connection("127.0.0.1", port)
        async with await connected(port) as client:
            ended = asyncio.ensure_future(reader.read())
            while not ended.done():
                await client.ask(Command(ECHO))
                await asyncio.sleep(0.05)
            assert await ended == b""
            assert client.is_open
        silent.close()


async def test_one_connection_too_many_is_closed() -> None:
    async with serving(connections_max=1) as (handler, port), await connected(port) as client:
        await client.ask(Command(ECHO))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert handler.limits == [Limit.CONNECTIONS]
        assert (await client.ask(Command(ECHO))).code == 0


async def test_of_all_connections_the_heaviest_makes_room() -> None:
    async with serving(memory_bytes_max=1 << 20) as (handler, port):
        client = await connected(port)
        await client.ask(Command(ECHO))
        _, greedy = await asyncio.open_connection("127.0.0.1", port)
        greedy.write(struct.pack(">iI", 8 << 20, 10) + bytes(4 << 20))
        await until(lambda: handler.limits == [Limit.MEMORY])
        assert (await client.ask(Command(ECHO))).code == 0
        greedy.close()
        client.close()


async def test_a_stop_lets_running_requests_end() -> None:
    async with serving() as (handler, port):
        client = await connected(port)
        asked = asyncio.ensure_future(client.ask(Command(LATER, body=b"ends")))
        await until(lambda: handler.running == 1)
        asyncio.get_running_loop().call_later(0.05, handler.release.set)
    assert (await asked).body == b"ends"


async def test_requests_of_one_client_have_numbers_of_their_own() -> None:
    """Whatever number the caller gave them."""
    async with serving() as (handler, port), await connected(port) as client:
        request = Command(ECHO, opaque=5)
        await asyncio.gather(client.ask(request), client.ask(replace(request, body=b"x")))
        assert len({each.opaque for each in handler.seen}) == 2
