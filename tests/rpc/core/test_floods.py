"""Floods of frames that cost their sender nothing, and honest clients that look alike."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from aerobee.rpc.core import frames, hpack
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import ConnectionLimits, Limit
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


@pytest.mark.parametrize("part", [b"", hpack.encode([(b"x-more", b"x" * 1_000)])])
async def test_continuations_without_end_end_the_connection(part: bytes) -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Echo"), flags=0))
        await peer.flood(frames.frame(frames.CONTINUATION, 0, 1, part), 10_000)
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.HEADER_BLOCK]


async def test_a_header_bomb_fails_its_call_and_many_end_the_connection() -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        long = b"\x40\x06x-bomb" + b"\x7f\xa1\x1e" + b"b" * 4_000
        await peer.send(headers(1, request_block(SERVICE + "Echo") + long))
        bomb = request_block(SERVICE + "Echo") + b"\xbe" * 10_000
        await peer.send(headers(3, bomb))
        assert await peer.status(3) == b"8"
        await peer.send(call(5, SERVICE + "Echo"))
        assert await peer.status(5) == b"0"
        for stream in range(7, 307, 2):
            await peer.send(headers(stream, bomb))
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert set(running.limits_met) == {Limit.HEADER_LIST, Limit.CONTROL_FRAMES}


FLOODS = {
    "SETTINGS": frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 65_535)]),
    "PING": frames.frame(frames.PING, 0, 0, b"12345678"),
    "PRIORITY": frames.frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\1"),
    "empty DATA": data(1, b""),
    "padding": frames.frame(frames.DATA, frames.PADDED, 1, b"\0"),
    "small WINDOW_UPDATE": frames.window_update(1, 1),
    "unknown frames": frames.frame(0x42, 0, 0, b"?"),
    "GOAWAY": frames.goaway(0, ErrorCode.NO_ERROR),
    "resets of nothing": frames.rst_stream(3, ErrorCode.CANCEL),
}


@pytest.mark.parametrize("part", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_of_what_costs_the_peer_nothing_ends_the_connection(part: bytes) -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Chat")))
        await peer.send(call(3, SERVICE + "Echo"))
        assert await peer.status(3) == b"0"
        await peer.flood(part, 20_000)
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.CONTROL_FRAMES]
        for later_s in (1, 2):  # as the server does by itself
            running.server.tick(time.monotonic() + later_s)
        await until(lambda: not running.server.connections)


async def test_a_peer_may_ping_for_each_message_that_it_gets() -> None:
    """grpc-go measures the way by a PING and gives windows back in small steps."""
    limits = replace(LIMITS, control_burst=10, control_per_s=0.001)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Chat")))
        for _ in range(300):
            await peer.send(
                data(1, message(b"x" * 100)),
                frames.frame(frames.PING, 0, 0, b"12345678"),
                frames.window_update(0, 105),
                frames.window_update(1, 105),
            )
            await peer.expect(frames.DATA)
        assert running.met == []


async def test_an_answer_is_not_dribbled_out_for_ever() -> None:
    """CVE-2019-9511: windows of one byte, each of which would cost a frame."""
    async with (
        serving() as running,
        raw_peer(running.port, settings=[(frames.INITIAL_WINDOW_SIZE, 0)]) as peer,
    ):
        await peer.send(call(1, SERVICE + "Large", b"1000000"))
        await peer.flood(frames.window_update(1, 1), 20_000)
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.CONTROL_FRAMES]


async def test_settings_that_move_many_windows_to_and_fro_end_the_connection() -> None:
    """Each goes through all streams: 100 are too many here, of which 400 would be allowed."""
    async with (
        serving() as running,
        raw_peer(running.port, settings=[(frames.INITIAL_WINDOW_SIZE, 0)]) as peer,
    ):
        streams = range(1, 2_001, 2)
        await peer.send(*[headers(stream, request_block(SERVICE + "Chat")) for stream in streams])
        await peer.ping()
        both = [frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, size)]) for size in (1, 0)]
        await peer.send(*both * 50)
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.CONTROL_FRAMES]


async def test_a_message_in_tiny_pieces_ends_the_connection() -> None:
    """Ten bytes of a frame for each byte of a message."""
    async with serving() as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Sum")))
        await peer.send(data(1, message(b"x" * MIB)[:10]))
        await peer.flood(data(1, b"x"), 50_000)
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.CONTROL_FRAMES]


async def test_many_small_messages_and_prefixes_in_frames_of_their_own_are_served() -> None:
    """Some clients send a message's prefix apart; that is no flood, however many they send."""
    limits = replace(LIMITS, control_burst=10, control_per_s=0.001)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Sum")))
        whole = message(b"x" * 50)
        for _ in range(100):
            await peer.send((data(1, whole[:5]) + data(1, whole[5:])) * 20)
        await peer.send(data(1, b"", end=True))
        assert await peer.status(1) == b"0"
        assert running.met == []
