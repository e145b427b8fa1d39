"""Connections that end, are killed or fall silent: what becomes of calls, and of the next ones."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import pytest

from aerobee.rpc.core import channel as channel_module
from aerobee.rpc.core import frames
from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel import Channel, ChannelState
from aerobee.rpc.core.client_connection import ClientConnection
from aerobee.rpc.core.server import Server
from aerobee.rpc.core.server_connection import ServerConnection
from aerobee.rpc.core.status import Status
from aerobee.runtime.clock import ManualClock
from tests.support.compiled_form import replaces_what_is_compiled
from tests.support.grpc_core_channel import (
    ECHO,
    SWIFT,
    aio_server,
    channel_to,
    failure,
    silence,
)
from tests.support.grpc_core_echo import echo_process
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.ports import free_port
from tests.support.raw_http2 import RawPeer
from tests.support.raw_http2_server import answer, raw_server, requested
from tests.support.waiting import until


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
    clock = ManualClock()

    async def fall_silent(peer: RawPeer) -> None:
        await peer.send(answer(await requested(peer), b"answer"))
        await silence(peer)

    async with (
        raw_server(fall_silent) as raw,
        channel_to(raw.address, now=clock.monotonic_s, limits=SWIFT) as channel,
    ):
        assert await channel.call(ECHO, b"") == b"answer"
        call = channel.start(ECHO, b"")
        channel.tick(clock.monotonic_s())
        clock.advance_ms(10_500)
        channel.tick(clock.monotonic_s())
        await until(lambda: any(frame.kind == frames.PING for frame in raw.peers[0].frames))
        assert not call.answer.done()
        clock.advance_ms(5_500)
        channel.tick(clock.monotonic_s())
        with pytest.raises(CallError, match="PING was not answered") as lost:
            await call.answer
        assert lost.value.status is Status.UNAVAILABLE


async def test_a_channel_closes_at_once_though_its_server_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One whose machine is gone, or which has no time, holds nobody up: a slave that is elected
    leaves its former master so."""
    monkeypatch.setattr(channel_module, "FAREWELL_S", 3_600.0)

    async def idle(peer: RawPeer) -> None:
        await requested(peer)
        await asyncio.Event().wait()

    async with raw_server(idle) as raw:
        stopped = ManualClock().monotonic_s  # no tick cuts it off
        async with asyncio.timeout(20), channel_to(raw.address, now=stopped) as channel:
            call = channel.start(ECHO, b"")
            await until(lambda: raw.peers and raw.peers[0].frames)
        assert call.answer.done()


async def test_an_unused_channel_sends_no_pings() -> None:
    """A server that did not allow them would end the connection."""
    clock = ManualClock()
    async with (
        aio_server([]) as address,
        channel_to(address, now=clock.monotonic_s, limits=SWIFT) as channel,
    ):
        await channel.call(ECHO, b"")
        for _ in range(20):
            clock.advance_ms(30_000)
            channel.tick(clock.monotonic_s())
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


async def test_a_connection_that_carried_a_stream_is_followed_by_no_pause() -> None:
    limits = replace(SWIFT, backoff_first_s=60.0, backoff_max_s=60.0)
    async with serving() as running, channel_to(running.target, limits=limits) as channel:
        call = channel.stream(SERVICE + "Chat")
        await call.write(b"x")
        assert await call.read() == b"x"
        running.server.connections[0].drain()
        await until(lambda: channel.state is ChannelState.IDLE)
        assert await channel.call(ECHO, b"y", timeout_s=20) == b"y"


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


@replaces_what_is_compiled(channel_module)
async def test_a_connection_that_is_drained_as_soon_as_it_is_made_loses_no_call() -> None:
    """Its GOAWAY comes with its SETTINGS: no call has begun on it, and the next one takes them."""
    async with serving() as running, channel_to(running.target, limits=SWIFT) as channel:
        drained = drain_first(running.server, 2)
        calls = [channel.call(ECHO, b"%d" % number, timeout_s=20) for number in range(10)]
        assert await asyncio.gather(*calls) == [b"%d" % number for number in range(10)]
        assert len(drained) == 2


@replaces_what_is_compiled(channel_module)
async def test_a_server_that_drains_every_connection_at_once_fails_calls() -> None:
    async with serving() as running, channel_to(running.target, limits=SWIFT) as channel:
        drain_first(running.server, 1_000)
        failed = await failure(channel)
        assert failed.status is Status.UNAVAILABLE
        assert failed.is_unprocessed
        assert channel.state is ChannelState.BACKOFF


def drain_first(server: Server, count: int) -> list[ServerConnection]:
    """The server drains so many connections in the turn in which it accepts them; returns those."""
    drained: list[ServerConnection] = []
    admit = server.admit

    def admit_and_drain(connection: ServerConnection) -> bool:
        if len(drained) < count:
            drained.append(connection)
            server.loop.call_soon(connection.drain)
        return admit(connection)

    server.admit = admit_and_drain  # type: ignore[method-assign]
    return drained


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
