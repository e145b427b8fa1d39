"""Calls that are repeated, that wait, and what a channel may hold."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from aerobee.rpc.core import frames
from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel_limits import client_connection_limits
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import ConnectionLimits
from aerobee.rpc.core.status import Status
from aerobee.runtime.clock import ManualClock
from tests.support.grpc_core_channel import (
    ECHO,
    SWIFT,
    channel_to,
    echoes,
    failure,
    silence,
)
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.raw_http2 import RawPeer
from tests.support.raw_http2_server import answer, raw_server, requested
from tests.support.waiting import until

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
    clock = ManualClock()
    limits = replace(SWIFT, connection=replace(client_connection_limits(), idle_s=5.0))
    async with (
        serving() as running,
        channel_to(running.target, now=clock.monotonic_s, limits=limits) as channel,
    ):
        for number in (b"1", b"2"):
            assert await channel.call(ECHO, number) == number
            channel.tick(clock.monotonic_s())
            clock.advance_ms(4_000)
            channel.tick(clock.monotonic_s())
            assert channel.connections
            clock.advance_ms(2_000)
            channel.tick(clock.monotonic_s())
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
            assert "hold" in call.error.message
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
