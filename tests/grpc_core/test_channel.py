"""When a channel connects, waits, fails and connects again; and what becomes of its calls."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from aerobee.grpc_core import frames
from aerobee.grpc_core.answer_head import CallError
from aerobee.grpc_core.backoff import Backoff
from aerobee.grpc_core.channel import Channel, ChannelState
from aerobee.grpc_core.channel_limits import ChannelLimits, client_connection_limits
from aerobee.grpc_core.client_connection import ClientConnection
from aerobee.grpc_core.dial import by_turns, split_address
from aerobee.grpc_core.frames import ErrorCode
from aerobee.grpc_core.limits import ConnectionLimits
from aerobee.grpc_core.status import Status
from tests.support.grpc_core_channel import aio_server, channel_to
from tests.support.grpc_core_echo import echo_process
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.ports import free_port
from tests.support.raw_http2 import RawPeer
from tests.support.raw_http2_server import answer, raw_server, requested
from tests.support.waiting import until

ECHO = SERVICE + "Echo"
SWIFT = ChannelLimits(backoff_first_s=0.02, backoff_max_s=0.05, attempt_s=1.0, stagger_s=0.05)


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


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
    """Reads, and never says a word."""
    await peer.closed()


# ----------------------------------------------------------------------------------- connecting


async def test_a_channel_connects_on_first_use() -> None:
    async with serving() as running, channel_to(running.target) as channel:
        await asyncio.sleep(0.02)  # time enough to connect, if it wanted to
        assert channel.state is ChannelState.IDLE
        assert not running.server.connections
        call = channel.start(ECHO, b"x")
        assert channel.state.value == ChannelState.CONNECTING
        assert await call.answer == b"x"
        assert channel.state.value == ChannelState.READY


async def test_calls_fail_fast_where_nobody_listens_unless_they_wait_for_it() -> None:
    port = free_port()
    limits = replace(SWIFT, backoff_first_s=0.5, backoff_max_s=0.5)
    async with channel_to(f"127.0.0.1:{port}", limits=limits) as channel:
        patient = asyncio.ensure_future(channel.call(ECHO, b"x", timeout_s=60, wait_for_ready=True))
        refused = await failure(channel)
        assert refused.status is Status.UNAVAILABLE
        assert refused.is_unprocessed
        assert not refused.is_answer
        assert "refused" in refused.message
        assert channel.state is ChannelState.BACKOFF
        call = channel.start(ECHO, b"")
        assert call.answer.done(), "in a pause it fails at once"
        assert call.answer.exception() is not None
        async with echo_process(port):
            assert await patient == b"x"
            assert await channel.call(ECHO, b"y") == b"y"


async def test_a_pause_without_calls_ends_in_idleness() -> None:
    async with channel_to(f"127.0.0.1:{free_port()}", limits=SWIFT) as channel:
        await failure(channel)
        await until(lambda: channel.state is ChannelState.IDLE)
        assert not channel.connections


def test_pauses_grow_up_to_a_limit_and_differ() -> None:
    one, other = (Backoff(0.1, 2.0, random.Random(seed)) for seed in (1, 2))
    delays = [one.next_s() for _ in range(20)]
    assert delays != [other.next_s() for _ in range(20)]
    assert 0.08 <= delays[0] <= 0.12
    assert all(1.6 <= delay <= 2.0 for delay in delays[8:])
    one.reset()
    assert one.next_s() <= 0.12


async def test_a_deadline_holds_for_a_call_without_a_connection() -> None:
    async with channel_to(f"127.0.0.1:{free_port()}", limits=SWIFT) as channel:
        with pytest.raises(CallError, match="before it had a connection") as late:
            await channel.call(ECHO, b"", timeout_s=0.2, wait_for_ready=True)
        assert late.value.status is Status.DEADLINE_EXCEEDED
        assert late.value.is_unprocessed


async def test_a_call_that_waits_can_be_cancelled() -> None:
    async with channel_to(f"127.0.0.1:{free_port()}", limits=SWIFT) as channel:
        call = channel.start(ECHO, b"", wait_for_ready=True)
        stream = channel.stream(SERVICE + "Chat", wait_for_ready=True)
        writing = asyncio.ensure_future(stream.write(b"x"))
        await asyncio.sleep(0)
        call.cancel()
        stream.cancel()
        for ended in (call.answer, writing):
            with pytest.raises(CallError) as cancelled:
                await ended
            assert cancelled.value.is_unprocessed
        assert not channel.waiting


@pytest.mark.parametrize("address", ["host", "host:", ":80", "::1:80", "host:x", "host:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        split_address(address)


def test_addresses_are_tried_by_turns_of_their_families() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_address("broker-0.svc:80") == ("broker-0.svc", 80)
    six, four = [("::1", 1), ("::2", 1), ("::3", 1)], [("1.1.1.1", 1), ("1.1.1.2", 1)]
    assert by_turns([*six, *four, *six]) == [six[0], four[0], six[1], four[1], six[2]]
    assert by_turns([]) == []


@asynccontextmanager
async def mute_listener() -> AsyncIterator[int]:
    """Takes connections and says nothing, as a port whose process hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_all_addresses_of_a_name_are_tried() -> None:
    async with serving() as running, mute_listener() as mute_port:

        async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
            assert (host, port) == ("name", 1)
            return [
                ("127.0.0.1", free_port()),
                ("127.0.0.1", mute_port),
                ("127.0.0.1", running.port),
            ]

        async with channel_to("name:1", limits=SWIFT, resolve=resolve) as channel:
            assert await channel.call(ECHO, b"x") == b"x"
            assert len(channel.connections) == 1, "the others were given up"
            assert len(running.server.connections) == 1


async def test_the_first_address_gets_a_start_on_the_others() -> None:
    async with serving() as first, serving() as second:

        async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
            return [("127.0.0.1", first.port), ("127.0.0.1", second.port)]

        limits = replace(SWIFT, stagger_s=5.0)
        async with channel_to("name:1", limits=limits, resolve=resolve) as channel:
            assert await channel.call(ECHO, b"x") == b"x"
        assert not second.server.connections


async def test_an_attempt_is_bounded_in_time() -> None:
    async with mute_listener() as port:
        limits = replace(SWIFT, attempt_s=0.1)
        async with channel_to(f"127.0.0.1:{port}", limits=limits) as channel:
            assert "no answer in time" in (await failure(channel)).message


async def test_a_resolver_that_hangs_or_fails_is_an_attempt_that_failed() -> None:
    async def hang(host: str, port: int) -> Sequence[tuple[str, int]]:
        await asyncio.Event().wait()
        return []

    async def fail(host: str, port: int) -> Sequence[tuple[str, int]]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    async def nothing(host: str, port: int) -> Sequence[tuple[str, int]]:
        return []

    limits = replace(SWIFT, attempt_s=0.05)
    for resolve, words in (
        (hang, "not resolved in time"),
        (fail, "no such name"),
        (nothing, "no address"),
    ):
        async with channel_to("name:1", limits=limits, resolve=resolve) as channel:
            assert words in (await failure(channel)).message


async def test_a_name_is_resolved_anew_for_each_attempt() -> None:
    """A process that comes back may have another address behind its name."""
    ports: list[int] = []

    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        return [("127.0.0.1", ports[-1])]

    async with channel_to("name:1", limits=SWIFT, resolve=resolve) as channel:
        async with serving() as first:
            ports.append(first.port)
            assert await channel.call(ECHO, b"x") == b"x"
        await failure(channel)
        async with serving() as second:
            ports.append(second.port)
            assert await channel.call(ECHO, b"y", wait_for_ready=True, timeout_s=60) == b"y"


async def test_what_is_no_http2_is_a_failed_attempt() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with channel_to(f"127.0.0.1:{port}", limits=SWIFT) as channel:
            assert (await failure(channel)).is_unprocessed


# --------------------------------------------------------------------------- connections that end


async def test_a_killed_server_ends_calls_and_is_found_again() -> None:
    port = free_port()
    async with channel_to(f"127.0.0.1:{port}", limits=SWIFT) as channel:
        async with echo_process(port) as process:
            assert await channel.call(ECHO, b"x", wait_for_ready=True) == b"x"
            call = channel.start(SERVICE + "Never", b"")
            stream = channel.stream(SERVICE + "Chat")
            await stream.write(b"x")
            assert await stream.read() == b"x"
            process.send_signal(signal.SIGKILL)
            for ended in (call.answer, stream.read()):
                with pytest.raises(CallError) as lost:
                    await ended
                assert lost.value.status is Status.UNAVAILABLE
                assert not lost.value.is_unprocessed, "it may have been begun"
            assert not channel.connections
        async with echo_process(port):
            assert await channel.call(ECHO, b"y", wait_for_ready=True) == b"y"


async def test_a_server_that_is_killed_again_and_again_loses_no_answer() -> None:
    """Each call has its own answer or an error; none hangs, none has another's."""
    port = free_port()
    answered = 0
    lost: list[Status] = []
    is_over = False

    async def call_on(channel: Channel, caller: int) -> None:
        nonlocal answered
        number = 0
        while not is_over:
            number += 1
            request = b"%d,%d" % (caller, number)
            try:
                answer = await channel.call(ECHO, request, timeout_s=30, wait_for_ready=True)
            except CallError as error:
                lost.append(error.status)
            else:
                assert answer == request
                answered += 1

    async with channel_to(f"127.0.0.1:{port}", limits=SWIFT) as channel:
        callers = [asyncio.ensure_future(call_on(channel, caller)) for caller in range(20)]
        for _ in range(3):
            before = answered
            async with echo_process(port):
                await until(lambda before=before: answered > before + 100)
        is_over = True
        async with echo_process(port):
            await asyncio.gather(*callers)
    assert set(lost) == {Status.UNAVAILABLE}
    assert len(lost) <= 3 * len(callers)


async def test_a_half_open_connection_is_noticed_by_keepalive() -> None:
    clock = Clock()

    async def fall_silent(peer: RawPeer) -> None:
        await peer.send(answer(await requested(peer), b"answer"))
        await silence(peer)

    async with (
        raw_server(fall_silent) as raw,
        channel_to(raw.address, now=clock, limits=SWIFT) as channel,
    ):
        assert await channel.call(ECHO, b"") == b"answer"
        call = channel.start(ECHO, b"")
        channel.tick(clock.now_s)
        clock.now_s += 10.5
        channel.tick(clock.now_s)
        await until(lambda: any(frame.kind == frames.PING for frame in raw.peers[0].frames))
        assert not call.answer.done()
        clock.now_s += 5.5
        channel.tick(clock.now_s)
        with pytest.raises(CallError, match="PING was not answered") as lost:
            await call.answer
        assert lost.value.status is Status.UNAVAILABLE


async def test_an_unused_channel_sends_no_pings() -> None:
    """A server that did not allow them would end the connection."""
    clock = Clock()
    async with (
        aio_server([]) as address,
        channel_to(address, now=clock, limits=SWIFT) as channel,
    ):
        await channel.call(ECHO, b"")
        for _ in range(20):
            clock.now_s += 30
            channel.tick(clock.now_s)
            await asyncio.sleep(0)
        assert await channel.call(ECHO, b"x") == b"x"
        assert len(channel.connections) == 1


async def test_a_connection_that_ends_at_once_is_followed_by_pauses() -> None:
    async def end(peer: RawPeer) -> None:
        await peer.send(frames.goaway(0, 0))

    limits = replace(SWIFT, backoff_first_s=0.05, backoff_max_s=0.1)
    async with raw_server(end) as raw, channel_to(raw.address, limits=limits) as channel:
        with pytest.raises(CallError):
            await channel.call(ECHO, b"", timeout_s=0.5, wait_for_ready=True)
        assert len(raw.peers) < 20


async def test_a_server_that_stops_lets_calls_end_and_takes_no_new_ones() -> None:
    async with serving() as running, channel_to(running.target, limits=SWIFT) as channel:
        call = channel.stream(SERVICE + "Chat")
        await call.write(b"before")
        assert await call.read() == b"before"
        stopping = asyncio.ensure_future(running.server.stop(20))
        await until(lambda: channel.state is ChannelState.IDLE)
        await call.write(b"meanwhile")
        assert await call.read() == b"meanwhile"
        assert (await failure(channel)).is_unprocessed
        call.done_writing()
        assert await call.read() is None
        await stopping
        assert not channel.connections


async def test_no_call_is_lost_to_servers_that_end_their_connections_by_age() -> None:
    """Each GOAWAY meets calls on their way."""
    age = [("grpc.max_connection_age_ms", 30), ("grpc.max_connection_age_grace_ms", 5_000)]
    async with aio_server([], options=age) as address, channel_to(address) as channel:
        await _call_until_renewed(channel, times=5)


async def test_no_call_is_lost_to_our_server_when_it_drains_connections() -> None:
    async with serving() as running, channel_to(running.target) as channel:

        async def drain() -> None:
            while True:
                await asyncio.sleep(0.02)
                for connection in running.server.connections:
                    connection.drain()

        draining = asyncio.ensure_future(drain())
        await _call_until_renewed(channel, times=5)
        draining.cancel()


async def _call_until_renewed(channel: Channel, times: int) -> None:
    """Calls without a pause, over so many connections, of which every one is answered."""
    seen: set[ClientConnection] = set()

    async def call() -> None:
        while len(seen) <= times:
            assert await channel.call(ECHO, b"x", timeout_s=20) == b"x"
            seen.update(channel.connections)

    await asyncio.gather(*[call() for _ in range(20)])


async def test_a_server_that_leaves_at_once_is_a_failed_attempt() -> None:
    async def leave(peer: RawPeer) -> None:
        await silence(peer)

    settings_and_goaway = frames.settings_frame([]) + frames.goaway(0, 0, "full")
    async with (
        raw_server(leave, opening=settings_and_goaway) as raw,
        channel_to(raw.address, limits=SWIFT) as channel,
    ):
        assert "full" in (await failure(channel)).message


# -------------------------------------------------------------------------- calls that are repeated


async def test_calls_after_the_last_stream_of_a_goaway_are_repeated() -> None:
    async def leave(peer: RawPeer) -> None:
        first = await requested(peer)
        second = await requested(peer)
        await peer.send(frames.goaway(first, 0))
        await peer.send(answer(first, b"old"))
        assert second > first
        await peer.closed()

    async with raw_server(leave, echoes) as raw, channel_to(raw.address, limits=SWIFT) as channel:
        answers = await asyncio.gather(*[channel.call(ECHO, b"") for _ in range(2)])
        assert answers == [b"old", b"answer"]
        assert len(raw.peers) == 2


async def test_a_call_is_repeated_only_once() -> None:
    async def leave(peer: RawPeer) -> None:
        await requested(peer)
        await peer.send(frames.goaway(0, 0))

    async with raw_server(leave) as raw, channel_to(raw.address, limits=SWIFT) as channel:
        refused = await failure(channel)
        assert refused.status is Status.UNAVAILABLE
        assert refused.is_unprocessed
        assert len(raw.peers) == 2


async def test_a_refused_stream_is_repeated_and_its_deadline_has_not_moved() -> None:
    async def refuse(peer: RawPeer) -> None:
        await peer.send(frames.rst_stream(await requested(peer), ErrorCode.REFUSED_STREAM))
        await echoes(peer)

    async with raw_server(refuse) as raw, channel_to(raw.address, limits=SWIFT) as channel:
        assert await channel.call(ECHO, b"", timeout_s=20) == b"answer"
        assert len(raw.peers) == 1


async def test_a_stream_is_repeated_only_while_nothing_was_written() -> None:
    async def refuse(peer: RawPeer) -> None:
        for _ in range(2):
            head = await peer.expect(frames.HEADERS)
            if head.stream_id == 3:
                await peer.expect(frames.DATA)
            await peer.send(frames.rst_stream(head.stream_id, ErrorCode.REFUSED_STREAM))
        await silence(peer)

    async with raw_server(refuse) as raw, channel_to(raw.address, limits=SWIFT) as channel:
        call = channel.stream(SERVICE + "Chat")
        await until(lambda: len(raw.peers) == 1 and call.is_retried and call.is_begun)
        await call.write(b"x")
        with pytest.raises(CallError) as refused:
            await call.read()
        assert refused.value.status is Status.UNAVAILABLE
        assert refused.value.is_unprocessed


# ------------------------------------------------------------------------------ calls that wait


async def test_no_more_streams_are_begun_than_the_server_takes() -> None:
    async with (
        serving(limits=ConnectionLimits(streams_max=3)) as running,
        channel_to(running.target) as channel,
    ):
        answers = await asyncio.gather(
            *[channel.call(SERVICE + "Task", b"%d" % number) for number in range(200)]
        )
        assert answers == [b"%d" % number for number in range(200)]
        assert running.met == []


async def test_calls_that_wait_are_bounded() -> None:
    limits = replace(SWIFT, waiting_max=2, waiting_bytes_max=100)
    async with (
        serving(limits=ConnectionLimits(streams_max=1)) as running,
        channel_to(running.target, limits=limits) as channel,
    ):
        await channel.call(ECHO, b"")
        sleeping = channel.start(SERVICE + "Sleep", b"")
        waiting = channel.start(ECHO, b"x" * 90)

        async def is_refused(request: bytes) -> None:
            with pytest.raises(CallError, match="wait already") as refused:
                await channel.call(ECHO, request)
            assert refused.value.status is Status.RESOURCE_EXHAUSTED

        await is_refused(b"x" * 11)
        small = channel.start(ECHO, b"")
        await is_refused(b"")
        sleeping.cancel()
        assert await waiting.answer == b"x" * 90
        assert await small.answer == b""


async def test_a_server_that_takes_fewer_streams_later_is_heeded() -> None:
    async def narrow(peer: RawPeer) -> None:
        await peer.send(answer(await requested(peer), b"answer"))
        await peer.send(frames.settings_frame([(frames.MAX_CONCURRENT_STREAMS, 1)]))
        await peer.ping()
        first = await requested(peer)
        await peer.ping()
        assert not any(frame.stream_id > first for frame in peer.frames)
        await peer.send(answer(first, b"first"))
        await echoes(peer)

    async with raw_server(narrow) as raw, channel_to(raw.address) as channel:
        assert await channel.call(ECHO, b"") == b"answer"
        connection = channel.connections[0]
        await until(lambda: connection.peer_streams_max == 1)
        answers = await asyncio.gather(*[channel.call(ECHO, b"") for _ in range(3)])
        assert answers == [b"first", b"answer", b"answer"]


async def test_requests_wait_for_windows_and_not_without_bound() -> None:
    """Calls whose requests fit no window wait here, and further ones are not even begun."""

    async def open_late(peer: RawPeer) -> None:
        for stream_id in (1, 3):
            await peer.expect(frames.HEADERS, stream_id)
        await peer.ping()
        assert not any(frame.kind == frames.DATA for frame in peer.frames)
        assert not any(frame.stream_id > 3 for frame in peer.frames)
        await peer.send(frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 1 << 20)]))
        await echoes(peer)

    limits = replace(
        SWIFT, connection=replace(client_connection_limits(), queued_bytes_soft=15_000)
    )
    async with (
        raw_server(open_late, settings=[(frames.INITIAL_WINDOW_SIZE, 0)]) as raw,
        channel_to(raw.address, limits=limits) as channel,
    ):
        calls = [channel.call(ECHO, b"x" * 10_000) for _ in range(5)]
        assert await asyncio.gather(*calls) == [b"answer"] * 5


# ------------------------------------------------------------------------------------- limits


async def test_a_connection_that_nobody_uses_ends_after_its_time_and_comes_back() -> None:
    clock = Clock()
    limits = replace(SWIFT, connection=replace(client_connection_limits(), idle_s=5.0))
    async with (
        serving() as running,
        channel_to(running.target, now=clock, limits=limits) as channel,
    ):
        for number in (b"1", b"2"):
            assert await channel.call(ECHO, number) == number
            channel.tick(clock.now_s)
            clock.now_s += 4
            channel.tick(clock.now_s)
            assert channel.connections
            clock.now_s += 2
            channel.tick(clock.now_s)
            await until(lambda: not channel.connections and not running.server.connections)


async def test_answers_that_nobody_reads_are_held_within_a_bound() -> None:
    """First by the windows of their streams, and in the end by the channel's own limit."""
    limits = replace(SWIFT, memory_bytes_max=3_500_000)
    async with serving() as running, channel_to(running.target, limits=limits) as channel:
        calls = [channel.stream(SERVICE + "Forever", b"") for _ in range(2)]
        await until(lambda: channel.held_bytes > 1_900_000)
        await channel.call(ECHO, b"goes on")
        assert channel.held_bytes < 2_500_000
        calls += [channel.stream(SERVICE + "Forever", b"") for _ in range(4)]
        await until(lambda: all(call.is_over for call in calls))
        for call in calls:
            assert call.error is not None
            assert "holds" in call.error.message
        assert channel.held_bytes == 0
        await channel.call(ECHO, b"and on", timeout_s=20)
    assert running.cancelled == ["Forever"] * len(running.cancelled)


async def test_a_server_that_does_not_read_holds_its_writer_and_nobody_else() -> None:
    """Its windows are shut: what waits here is bounded by each writer's backlog."""

    async def shut(peer: RawPeer) -> None:
        await silence(peer)

    async with (
        raw_server(shut, settings=[(frames.INITIAL_WINDOW_SIZE, 0)]) as raw,
        channel_to(raw.address, limits=SWIFT) as channel,
    ):
        call = channel.stream(SERVICE + "Chat")
        written = 0

        async def write() -> None:
            nonlocal written
            while True:
                await call.write(b"x" * 10_000)
                written += 1

        writing = asyncio.ensure_future(write())
        await until(lambda: written >= 6)
        await asyncio.sleep(0.05)  # it would go on, if it could
        assert written < 9
        assert channel.held_bytes < 100_000
        writing.cancel()
        call.cancel()
