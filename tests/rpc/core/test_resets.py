"""Clients that reset their streams: honest ones cancel as much as they like, and rapid resets end
their connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import grpc
import pytest

from aerobee.rpc.core import frames
from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.method import completion
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.status import Status
from aerobee.runtime.clock import ManualClock
from tests.support.grpc_core_channel import channel_to
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
DEADLINE_S = 0.2
"""Of calls that are given up: much longer than it takes a busy server to begin them."""


async def test_rapid_reset_ends_the_connection() -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        block = request_block(SERVICE + "Sleep")
        count = LIMITS.reset_burst * 2
        for first in range(0, count, 64):
            await peer.send(
                *[
                    headers(stream, block) + frames.rst_stream(stream, ErrorCode.CANCEL)
                    for stream in range(first * 2 + 1, first * 2 + 129, 2)
                ]
            )
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.RESETS]


async def test_a_call_that_is_reset_before_its_task_begins_leaves_nothing() -> None:
    """Its task ends before its first step: what it was to await would never have been awaited."""
    asked: list[bytes] = []
    worked: list[bytes] = []

    def begin(request: bytes, call: ServerCall) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            worked.append(request)
            call.finish(b"done")

        asked.append(request)
        return work

    async with (
        serving(completion(SERVICE + "Begin", begin)) as running,
        raw_peer(running.port) as peer,
    ):
        await peer.send(
            call(1, SERVICE + "Begin", b"reset") + frames.rst_stream(1, ErrorCode.CANCEL),
            call(3, SERVICE + "Begin", b"kept"),
        )
        assert await peer.status(3) == b"0"
        assert asked == [b"reset", b"kept"]
        assert worked == [b"kept"]
        await until(lambda: not running.server.tasks)


async def test_calls_that_are_answered_pay_for_resets() -> None:
    """A busy client cancels some of its calls."""
    limits = replace(LIMITS, reset_burst=20, reset_per_s=0.001)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        stream = 1
        for _ in range(40):
            for _ in range(3):
                await peer.send(call(stream, SERVICE + "Echo"))
                assert await peer.status(stream) == b"0"
                stream += 2
            await peer.send(call(stream, SERVICE + "Never"))
            await peer.send(frames.rst_stream(stream, ErrorCode.CANCEL))
            stream += 2
        await peer.ping()
        assert running.met == []


async def test_streams_that_have_brought_a_message_may_be_cancelled_one_after_the_other() -> None:
    """As by a client that opens a stream for each message that it sends, and reads its answer."""
    limits = replace(LIMITS, reset_burst=20, reset_per_s=0.001)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        for stream in range(1, 401, 2):
            await peer.send(headers(stream, request_block(SERVICE + "Chat")))
            await peer.send(data(stream, message(b"x")))
            await peer.expect(frames.DATA)
            await peer.send(frames.rst_stream(stream, ErrorCode.CANCEL))
        await peer.ping()
        assert running.met == []


async def test_one_reset_after_the_other_ends_the_connection() -> None:
    """Never more than one stream is open, so no other limit sees it."""
    clock = ManualClock()
    async with serving(now=clock.monotonic_s) as running, raw_peer(running.port) as peer:
        block = request_block(SERVICE + "Chat")
        stream = 1
        while not peer.is_closed and stream < 4 * LIMITS.reset_burst:
            await peer.send(headers(stream, block))
            await asyncio.sleep(0)
            await peer.send(frames.rst_stream(stream, ErrorCode.CANCEL))
            stream += 2
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.RESETS]
        await until(lambda: not running.server.tasks)


@pytest.mark.parametrize("seed", range(3))
async def test_resets_in_any_order_among_calls_that_are_answered_end_the_connection(
    seed: int,
) -> None:
    """One of four calls is answered; all others are reset, the youngest or the oldest first."""
    clock, chance = ManualClock(), random.Random(seed)
    async with serving(now=clock.monotonic_s) as running, raw_peer(running.port) as peer:
        stream = 1
        is_open: list[int] = []
        while not peer.is_closed and stream < 20 * LIMITS.reset_burst:
            parts = []
            for _ in range(64):
                if chance.random() < 0.25:
                    parts.append(call(stream, SERVICE + chance.choice(["Echo", "Task"])))
                else:
                    path = SERVICE + chance.choice(["Sleep", "Chat", "Never", "Forever"])
                    parts.append(headers(stream, request_block(path)))
                    is_open.append(stream)
                stream += 2
            while len(is_open) > chance.randrange(100):
                chosen = is_open.pop(chance.randrange(len(is_open)))
                parts.append(frames.rst_stream(chosen, chance.randrange(14)))
            await peer.send(*parts)
            await asyncio.sleep(0)
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.RESETS]
        await until(lambda: not running.server.tasks)


async def test_a_client_may_cancel_all_that_it_has_begun_again_and_again() -> None:
    """1,024 streams at once, which is as many as it may have; none of them is ever answered."""
    clock = ManualClock()
    async with serving(now=clock.monotonic_s) as running, raw_peer(running.port) as peer:
        for wave in range(20):
            first = wave * 2 * LIMITS.streams_max + 1
            streams = range(first, first + 2 * LIMITS.streams_max, 2)
            await peer.send(*[call(stream, SERVICE + "Never") for stream in streams])
            await peer.ping()
            clock.advance_ms(25)
            await peer.send(*[frames.rst_stream(stream, ErrorCode.CANCEL) for stream in streams])
            await peer.ping()
        assert running.met == []
        assert not running.server.connections[0].streams


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["ours", "grpcio"])
async def test_calls_that_are_given_up_by_their_deadlines_cost_their_client_nothing(
    kind: str,
) -> None:
    """6,000 calls that nobody answers, 400 at a time, and calls beside them that go on. The budget
    of resets alone would be spent after 1,024; and grpcio gives a window to each stream."""
    limits = replace(LIMITS, reset_per_s=0.001)
    async with serving(limits=limits) as running, channel_to(running.target) as channel:
        is_over = False
        theirs = grpc.aio.insecure_channel(running.target)

        async def give_up(name: str) -> None:
            if kind == "ours":
                with pytest.raises(CallError) as late:
                    await channel.call(SERVICE + name, b"", timeout_s=DEADLINE_S)
                assert late.value.status is Status.DEADLINE_EXCEEDED
                return
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await theirs.unary_unary(SERVICE + name)(b"", timeout=DEADLINE_S)  # type: ignore[arg-type]
            assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

        async def go_on() -> None:
            while not is_over:
                assert await channel.call(SERVICE + "Task", b"x", timeout_s=60) == b"x"

        going = asyncio.ensure_future(go_on())
        async with theirs:
            for _ in range(15):
                names = ["Sleep", "Never"] * 200
                await asyncio.gather(*[give_up(name) for name in names])
        is_over = True
        await going
        assert running.met == []
        running.cancelled.clear()
