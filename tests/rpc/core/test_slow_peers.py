"""Peers that say nothing, too little or too slowly, and those that are gone without a word."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from aerobee.rpc.core import frames
from aerobee.rpc.core import server as server_module
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.method import coroutine, synchronous
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.tls import TlsFiles, server_context
from aerobee.runtime.clock import ManualClock
from tests.support.certificates import issue
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.raw_http2 import (
    call,
    data,
    headers,
    message,
    raw_peer,
    request_block,
)
from tests.support.waiting import until

LIMITS = ConnectionLimits()
KIB = 1 << 10
MIB = 1 << 20


async def test_a_peer_that_reads_nothing_costs_little_memory_and_is_cut_off() -> None:
    clock = ManualClock()
    async with (
        serving(now=clock.monotonic_s) as running,
        raw_peer(running.port, settings=[(frames.INITIAL_WINDOW_SIZE, frames.WINDOW_MAX)]) as peer,
    ):
        await peer.send(frames.window_update(0, frames.WINDOW_MAX - 65_535))
        await peer.send(*[call(stream, SERVICE + "Forever") for stream in range(1, 41, 2)])
        (connection,) = await until(lambda: running.server.connections)
        await until(lambda: connection.is_paused)
        await asyncio.sleep(0.1)
        assert running.server.memory.used < 6 * MIB
        running.server.tick(clock.monotonic_s())
        clock.advance_ms(20_000)
        running.server.tick(clock.monotonic_s())
        assert running.met == []
        clock.advance_ms(11_000)
        running.server.tick(clock.monotonic_s())
        assert running.limits_met == [Limit.SLOW_READER]
        await until(lambda: len(running.cancelled) == 20)
        assert running.server.memory.used == 0


@pytest.mark.parametrize("opening", [b"", frames.PREFACE[:10], frames.PREFACE])
async def test_a_peer_that_says_nothing_is_cut_off(opening: bytes) -> None:
    clock = ManualClock()
    async with (
        serving(now=clock.monotonic_s) as running,
        raw_peer(running.port, opening=opening) as peer,
    ):
        await until(lambda: running.server.connections)
        clock.advance_ms(9_000)
        running.server.tick(clock.monotonic_s())
        assert running.server.connections
        clock.advance_ms(2_000)
        running.server.tick(clock.monotonic_s())
        await peer.closed()
        assert running.limits_met == [Limit.PREFACE]


async def test_what_is_no_http2_is_closed() -> None:
    async with (
        serving() as running,
        raw_peer(running.port, opening=b"GET / HTTP/1.1\r\n\r\n") as peer,
    ):
        assert (await peer.goaway()).code == ErrorCode.PROTOCOL_ERROR
        await peer.closed()
        assert running.limits_met == [Limit.PREFACE]


async def test_a_silent_peer_is_asked_and_then_given_up() -> None:
    clock = ManualClock()
    limits = replace(LIMITS, keepalive_s=60, keepalive_timeout_s=20)

    async def ticks(seconds: int) -> None:
        for _ in range(seconds):
            clock.advance_ms(1_000)
            running.server.tick(clock.monotonic_s())

    async with (
        serving(limits=limits, now=clock.monotonic_s) as running,
        raw_peer(running.port) as peer,
    ):
        await peer.ping()
        await ticks(70)
        asked = await peer.expect(frames.PING)
        assert asked.flags == 0
        await peer.send(frames.frame(frames.PING, frames.ACK, 0, asked.payload))
        await peer.ping()
        await ticks(70)
        await peer.expect(frames.PING)
        assert running.met == []
        await ticks(20)
        await peer.closed()
        assert running.limits_met == [Limit.KEEPALIVE]


DRIBBLES = {
    "header block": (headers(1, request_block(SERVICE + "Echo"), flags=0), b""),
    "HEADERS": (b"", headers(1, request_block(SERVICE + "Echo"))),
    "PING": (b"", frames.frame(frames.PING, 0, 0, b"12345678")),
}


@pytest.mark.parametrize("name", DRIBBLES)
async def test_a_frame_that_does_not_end_ends_the_connection(name: str) -> None:
    """Slow loris: a byte from time to time keeps no connection."""
    whole, dribbled = DRIBBLES[name]
    clock = ManualClock()
    async with serving(now=clock.monotonic_s) as running, raw_peer(running.port) as peer:
        await peer.ping()
        (connection,) = running.server.connections
        await peer.send(whole)
        await until(lambda: connection.is_mid_frame == bool(whole))
        for position in range(8):
            running.server.tick(clock.monotonic_s())
            assert running.met == []
            clock.advance_ms(4_000)
            await peer.send(dribbled[position : position + 1])
            await until(lambda: connection.is_mid_frame)
        running.server.tick(clock.monotonic_s())
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.SLOW_SENDER]
        await peer.closed()


async def test_a_client_may_stream_as_slowly_as_it_likes() -> None:
    """A byte of a message a minute, each in a frame of its own."""
    clock = ManualClock()
    async with serving(now=clock.monotonic_s) as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Chat")))
        for byte in message(b"a slow word"):
            await peer.send(data(1, bytes((byte,))))
            await peer.ping()
            for _ in range(6):
                clock.advance_ms(10_000)
                running.server.tick(clock.monotonic_s())
        assert (await peer.expect(frames.DATA)).payload == message(b"a slow word")
        assert running.met == []


async def test_connections_that_say_nothing_make_room_for_others() -> None:
    clock = ManualClock()
    async with serving(now=clock.monotonic_s, connections_max=20) as running:
        mute = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(20)]
        await until(lambda: len(running.server.connections) == 20)
        async with raw_peer(running.port) as refused:
            await refused.closed()
        clock.advance_ms(11_000)
        running.server.tick(clock.monotonic_s())
        await until(lambda: not running.server.connections)
        async with raw_peer(running.port) as peer:
            await peer.ping()
        assert running.limits_met == [Limit.CONNECTIONS] + [Limit.PREFACE] * 20
        for _, writer in mute:
            writer.close()


async def test_a_handshake_that_does_not_end_is_cut_off(tmp_path: Path) -> None:
    """Half a connection by TLS: the server hears of it when the handshake is done."""
    made = issue(trustme.CA(), tmp_path / "server", "localhost")
    tls = server_context(TlsFiles(certificate=made.certificate, key=made.key))
    async with serving(tls=tls, limits=replace(LIMITS, preface_s=0.2)) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        assert await reader.read() == b""
        assert not running.server.connections
        writer.close()


async def test_a_thousand_streams_that_nobody_reads_hold_little() -> None:
    """All begin to answer at once, and no window is given: beyond 8 MiB each holds one answer of
    10 kB, not 64 KiB, which would end the connection."""
    begin = asyncio.Event()

    async def answer(request: bytes, call: ServerCall) -> AsyncIterator[bytes]:
        await begin.wait()
        while True:
            yield b"x" * 10_000

    async with (
        serving(coroutine(SERVICE + "Answers", answer, streams_answers=True)) as running,
        raw_peer(running.port, settings=[(frames.INITIAL_WINDOW_SIZE, 0)]) as peer,
    ):
        streams = range(1, 2_001, 2)
        await peer.send(*[call(stream, SERVICE + "Answers") for stream in streams])
        await until(lambda: len(running.server.tasks) == 1_000)
        begin.set()
        await until(lambda: running.server.memory.used > LIMITS.queued_bytes_soft)
        await peer.ping()
        assert running.server.memory.used < 20 * MIB
        await peer.send(frames.window_update(1, MIB), frames.window_update(0, MIB))
        received = 0
        while received < 300_000:
            received += len((await peer.expect(frames.DATA, 1)).payload)
        assert running.met == []


async def test_streams_that_nobody_reads_keep_no_other_call_waiting() -> None:
    """Eleven streams hold 1 MiB each, most of it beyond their windows, and more than 8 MiB
    together: other calls are answered, but no more streams begin until some of it is read."""

    async def answer(request: bytes, call: ServerCall) -> AsyncIterator[bytes]:
        yield b"x" * MIB

    async with (
        serving(
            coroutine(SERVICE + "Answers", answer, streams_answers=True),
            synchronous(SERVICE + "Echo", lambda request, call: request),
            synchronous(SERVICE + "Large", lambda request, call: b"x" * int(request)),
        ) as running,
        raw_peer(running.port) as peer,
    ):
        await peer.send(frames.window_update(0, 64 * MIB))
        for stream in range(1, 23, 2):
            await peer.send(call(stream, SERVICE + "Answers"))
            await peer.ping()
        (connection,) = running.server.connections
        assert 8 * MIB < connection.queued_bytes < 10 * MIB
        await peer.send(call(23, SERVICE + "Answers"))
        await peer.send(call(25, SERVICE + "Echo", b"alive"))
        assert await peer.status(25) == b"0"
        assert connection.queued_bytes < 10 * MIB
        for stream in range(1, 9, 2):
            await peer.send(frames.window_update(stream, 2 * MIB))
        while (await peer.expect(frames.DATA)).stream_id != 23:
            pass
        # A single answer that waits for its window is not apart: its client must want it.
        await peer.send(
            *[call(stream, SERVICE + "Large", b"%d" % MIB) for stream in range(27, 67, 2)]
        )
        await peer.ping()
        assert connection.queued_bytes < 18 * MIB
        assert running.met == []


async def test_a_client_that_is_killed_leaves_nothing() -> None:
    async with serving() as running:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.grpc_core_visitor", running.target]
        )
        try:
            await until(lambda: len(running.server.tasks) == 300)
            process.send_signal(signal.SIGKILL)
            await until(lambda: not running.server.connections and not running.server.tasks)
            assert len(running.cancelled) == 200
            assert running.server.memory.used == 0
        finally:
            process.kill()
            process.wait()


async def test_a_server_looks_at_its_connections_by_itself() -> None:
    async with serving(limits=replace(LIMITS, preface_s=0.01)) as running:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        await until(lambda: running.server.connections)
        await until(lambda: not running.server.connections)
        writer.close()


async def test_a_client_that_does_not_leave_holds_a_stop_up_for_the_grace_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a master that steps down, whose folder is opened again: others wait for it."""
    monkeypatch.setattr(server_module, "FAREWELL_S", 3_600.0)
    stopped = ManualClock().monotonic_s  # no tick cuts it off
    async with serving(now=stopped) as running, raw_peer(running.port) as peer:
        await peer.ping()
        async with asyncio.timeout(20):
            await running.server.stop(0.05)


async def test_a_stop_waits_for_calls_and_not_for_answers_to_its_goaway() -> None:
    stopped = ManualClock().monotonic_s
    async with serving(now=stopped) as running, raw_peer(running.port) as peer:
        await peer.ping()
        async with asyncio.timeout(20):
            await running.server.stop(3_600)
        goaway = await peer.expect(frames.GOAWAY)
        assert goaway.payload[:4] == bytes(4), "a call on its way is known not to have begun"
