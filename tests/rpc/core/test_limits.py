"""What a hostile or broken peer can make the server do: little, and it ends with the right error,
told once. Honest peers that look alike are served."""

from __future__ import annotations

import asyncio
import time
import zlib
from dataclasses import replace

import pytest

from aerobee.rpc.core import frames, hpack
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.inbox import PREFIX_BYTES
from aerobee.rpc.core.limits import ConnectionLimits, Limit
from aerobee.rpc.core.method import synchronous
from aerobee.rpc.core.server_call import ServerCall
from aerobee.runtime.clock import ManualClock
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.raw_http2 import (
    RawPeer,
    call,
    data,
    fields,
    headers,
    message,
    raw_peer,
    request_block,
)
from tests.support.waiting import until

LIMITS = ConnectionLimits()
KIB = 1 << 10
MIB = 1 << 20


async def test_closed_windows_hold_requests_back_before_memory_fills() -> None:
    """20 answers of 1 MiB are wanted, and no window is given: those beyond 4 MiB are not begun."""
    limits = replace(LIMITS, queued_bytes_soft=4 * MIB)
    async with (
        serving(limits=limits) as running,
        raw_peer(running.port, settings=[(frames.INITIAL_WINDOW_SIZE, 0)]) as peer,
    ):
        wanted = b"%d" % MIB
        await peer.send(*[call(stream, SERVICE + "Large", wanted) for stream in range(1, 41, 2)])
        await peer.ping()
        assert 4 * MIB < running.server.memory.used < 6 * MIB
        await peer.send(frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 2 * MIB)]))
        await peer.send(frames.window_update(0, 64 * MIB))
        ended: set[int] = set()
        while len(ended) < 20:
            received = await peer.receive()
            assert received is not None
            if received.kind == frames.HEADERS and received.flags & frames.END_STREAM:
                ended.add(received.stream_id)
        assert running.met == []
        # What the transport holds is counted anew once a second.
        await until(lambda: running.server.memory.used == 0)


async def test_a_connection_holds_only_so_much() -> None:
    limits = replace(LIMITS, queued_bytes_soft=2 * MIB, queued_bytes_max=2 * MIB)
    async with (
        serving(limits=limits) as running,
        raw_peer(running.port, settings=[(frames.INITIAL_WINDOW_SIZE, 0)]) as peer,
    ):
        await peer.send(call(1, SERVICE + "Large", b"3000000"))
        assert (await peer.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        assert running.limits_met == [Limit.CONNECTION_MEMORY]


async def test_the_heaviest_connection_pays_for_all() -> None:
    settings = [(frames.INITIAL_WINDOW_SIZE, 0)]
    async with (
        serving(memory_bytes_max=5 * MIB) as running,
        raw_peer(running.port, settings=settings) as light,
        raw_peer(running.port, settings=settings) as heavy,
    ):
        await light.send(call(1, SERVICE + "Large", b"%d" % MIB))
        await light.ping()
        for stream in range(1, 11, 2):
            await heavy.send(call(stream, SERVICE + "Large", b"%d" % MIB))
        assert (await heavy.goaway()).code == ErrorCode.ENHANCE_YOUR_CALM
        await light.ping()
        assert running.limits_met == [Limit.PROCESS_MEMORY]
        assert MIB <= running.server.memory.used < 2 * MIB


async def test_one_connection_too_many_is_closed() -> None:
    async with (
        serving(connections_max=1) as running,
        raw_peer(running.port) as first,
        raw_peer(running.port) as second,
    ):
        await first.ping()
        await second.closed()
        await first.ping()
        assert running.limits_met == [Limit.CONNECTIONS]


async def test_one_stream_too_many_is_refused_and_may_come_again() -> None:
    limits = replace(LIMITS, streams_max=2)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        await peer.send(*[call(stream, SERVICE + "Never") for stream in (1, 3, 5)])
        refused = await peer.expect(frames.RST_STREAM)
        assert (refused.stream_id, refused.code) == (5, ErrorCode.REFUSED_STREAM)
        await peer.send(frames.rst_stream(1, ErrorCode.CANCEL), call(7, SERVICE + "Echo"))
        assert await peer.status(7) == b"0"
        assert running.limits_met == [Limit.STREAMS]


@pytest.mark.parametrize("size", [1_001, 1 << 31])
async def test_a_message_that_is_too_large_is_refused_by_its_length(size: int) -> None:
    limits = replace(LIMITS, message_bytes_max=1_000)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        block = request_block(SERVICE + "Echo")
        await peer.send(headers(1, block) + data(1, b"\0" + size.to_bytes(4, "big")))
        assert await peer.status(1) == b"8"
        await peer.send(data(1, b"x" * 500))  # sent before it knew
        await peer.send(call(3, SERVICE + "Echo", b"x" * 1_000))
        assert await peer.status(3) == b"0"
        assert running.limits_met == [Limit.MESSAGE]


async def test_a_small_message_that_unpacks_to_a_large_one_is_refused() -> None:
    limits = replace(LIMITS, message_bytes_max=100 * KIB)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        bomb = zlib.compress(b"\0" * 50 * MIB, wbits=31)
        assert len(bomb) < 100 * KIB
        block = request_block(SERVICE + "Echo", (b"grpc-encoding", b"gzip"))
        packed = message(bomb, compressed=1)
        parts = [packed[begin : begin + 16_384] for begin in range(0, len(packed), 16_384)]
        await peer.send(headers(1, block), *[data(1, part) for part in parts])
        await peer.send(data(1, b"", end=True))
        assert await peer.status(1) == b"8"
        assert running.limits_met == [Limit.MESSAGE]


@pytest.mark.parametrize(
    ("encoding", "content", "status"),
    [
        pytest.param(b"gzip", b"not gzip", b"13", id="no gzip"),
        pytest.param(b"gzip", zlib.compress(b"x" * 999, wbits=31)[:-9], b"13", id="cut off"),
        pytest.param(b"identity", b"x", b"13", id="compressed by nothing"),
        pytest.param(b"br", b"x", b"12", id="an unknown compression"),
    ],
)
async def test_what_cannot_be_unpacked_is_refused(
    encoding: bytes, content: bytes, status: bytes
) -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        block = request_block(SERVICE + "Echo", (b"grpc-encoding", encoding))
        await peer.send(headers(1, block), data(1, message(content, compressed=1), end=True))
        assert await peer.status(1) == status


async def drained(peer: RawPeer) -> None:
    """Both GOAWAYs, and the end."""
    assert (await peer.goaway()).payload[:4] == b"\x7f\xff\xff\xff"
    asked = await peer.expect(frames.PING)
    await peer.send(frames.frame(frames.PING, frames.ACK, 0, asked.payload))
    last = await peer.goaway()
    assert last.code == ErrorCode.NO_ERROR


async def test_an_idle_connection_is_ended_kindly() -> None:
    clock = ManualClock()
    async with (
        serving(
            limits=replace(LIMITS, idle_s=300, keepalive_s=0), now=clock.monotonic_s
        ) as running,
        raw_peer(running.port) as peer,
    ):
        await peer.send(call(1, SERVICE + "Never"))
        await peer.ping()
        for _ in range(10):
            clock.advance_ms(100_000)
            running.server.tick(clock.monotonic_s())
            await peer.ping()
        await peer.send(frames.rst_stream(1, ErrorCode.CANCEL))
        await peer.ping()
        for _ in range(4):
            clock.advance_ms(100_000)
            running.server.tick(clock.monotonic_s())
        await drained(peer)
        await peer.closed()
        assert running.met == []


async def test_an_old_connection_is_ended_when_its_calls_have_ended() -> None:
    clock = ManualClock()
    async with (
        serving(limits=replace(LIMITS, age_s=1_000), now=clock.monotonic_s) as running,
        raw_peer(running.port) as peer,
    ):
        await peer.send(headers(1, request_block(SERVICE + "Chat")))
        await peer.ping()
        clock.advance_ms(1_101_000)
        running.server.tick(clock.monotonic_s())
        await peer.send(call(3, SERVICE + "Echo"))  # on its way when the server said GOAWAY
        await drained(peer)
        await peer.send(call(5, SERVICE + "Echo"))  # too late: it is ignored
        await peer.send(data(1, message(b"still"), end=True))
        assert await peer.status(1) == b"0"
        await peer.closed()
        assert 5 not in {received.stream_id for received in peer.frames}
        assert running.met == []


async def test_a_small_answer_does_not_wait_for_a_large_one() -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        window = [(frames.INITIAL_WINDOW_SIZE, 64 * MIB)]
        await peer.send(frames.settings_frame(window), frames.window_update(0, 64 * MIB))
        await peer.send(call(1, SERVICE + "Large", b"%d" % (16 * MIB)))
        await peer.expect(frames.DATA)
        await peer.send(call(3, SERVICE + "Echo", b"small"))
        assert await peer.status(3) == b"0"
        large = sum(len(one.payload) for one in peer.frames if one.stream_id == 1)
        assert large < 15 * MIB
        assert await peer.status(1) == b"0"


async def test_streams_that_wait_for_a_window_share_it_in_turns() -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        await peer.send(frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 4 * MIB)]))
        streams = (1, 3, 5, 7)
        await peer.send(*[call(stream, SERVICE + "Large", b"%d" % MIB) for stream in streams])

        def sent_by(stream: int) -> int:
            parts = [one for one in peer.frames if one.kind == frames.DATA]
            return sum(len(part.payload) for part in parts if part.stream_id == stream)

        async def sent(total: int) -> dict[int, int]:
            while sum(map(sent_by, streams)) < total:
                assert await peer.receive() is not None
            return {stream: sent_by(stream) for stream in streams}

        before = await sent(65_535)  # the first stream may have it all, before the others are there
        await peer.ping()
        await peer.send(frames.window_update(0, 8 * 64 * KIB))
        after = await sent(8 * 64 * KIB + 65_535)
        shares = [after[stream] - before[stream] for stream in streams]
        assert max(shares) - min(shares) <= 2 * 16_384


async def test_large_messages_get_their_windows_one_after_the_other() -> None:
    """Eight messages of 1 MiB, and windows beyond the first 64 KiB for two of them at a time."""
    limits = replace(LIMITS, stream_window_bytes=64 * KIB, extension_bytes_max=2 * MIB)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        await peer.expect(frames.WINDOW_UPDATE, 0)
        left = {stream: message(b"x" * MIB) for stream in range(1, 17, 2)}
        window = dict.fromkeys(left, 64 * KIB)
        block = request_block(SERVICE + "Echo")
        await peer.send(frames.window_update(0, 64 * MIB))
        await peer.send(frames.settings_frame([(frames.INITIAL_WINDOW_SIZE, 2 * MIB)]))
        await peer.send(*[headers(stream, block) for stream in left])
        most = 0
        ended: set[int] = set()
        while len(ended) < 8:
            for stream in left:
                while left[stream] and window[stream]:
                    part = left[stream][: min(window[stream], 16_384)]
                    window[stream] -= len(part)
                    left[stream] = left[stream][len(part) :]
                    await peer.send(data(stream, part, end=not left[stream]))
            received = await peer.receive()
            assert received is not None
            most = max(most, running.server.memory.used)
            if received.kind == frames.WINDOW_UPDATE and received.stream_id:
                window[received.stream_id] += int.from_bytes(received.payload, "big")
            elif received.kind == frames.HEADERS and received.flags & frames.END_STREAM:
                assert dict(fields(received.payload))[b"grpc-status"] == b"0"
                ended.add(received.stream_id)
        assert most < 8 * 64 * KIB + 2 * MIB + MIB
        assert running.met == []


@pytest.mark.parametrize("size", [64 * KIB, 64 * KIB + 1, MIB], ids=["window", "more", "much"])
async def test_a_client_that_needs_a_window_to_end_its_request_has_one(size: int) -> None:
    """As hyper does before its version 1: an empty frame ends the request, and is only sent while
    the window is open."""
    limits = replace(LIMITS, stream_window_bytes=64 * KIB)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block(SERVICE + "Metadata")))
        left, window = message(b"x" * (size - PREFIX_BYTES)), 64 * KIB
        while left or not window:
            if not window:
                update = await peer.expect(frames.WINDOW_UPDATE, 1)
                window += int.from_bytes(update.payload, "big")
                continue
            part, left = left[: min(window, 16_384)], left[min(window, 16_384) :]
            window -= len(part)
            await peer.send(data(1, part))
        await peer.send(data(1, b"", end=True))
        assert await peer.status(1) == b"0"


async def test_many_requests_at_once_do_not_keep_others_waiting() -> None:
    """Of one read, 4 streams are begun; then it is others' turn."""
    limits = replace(LIMITS, streams_per_turn=4)
    async with serving(limits=limits) as running, raw_peer(running.port) as peer:
        await peer.send(*[call(stream, SERVICE + "Echo") for stream in range(1, 401, 2)])
        assert await peer.status(399) == b"0"
        ended = {one.stream_id for one in peer.frames if one.kind == frames.HEADERS}
        assert len(ended) == 200


async def test_dear_requests_of_one_connection_do_not_keep_others_waiting() -> None:
    """Each is worked on for 5 ms of the processor's time, and one read brings thirty."""
    longest_s = 0.0

    def work(request: bytes, call: ServerCall) -> bytes:
        end_s = time.thread_time() + 0.005
        while time.thread_time() < end_s:
            pass
        return b""

    async def watch() -> None:
        nonlocal longest_s
        while True:
            before_s = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - before_s)

    async with (
        serving(synchronous(SERVICE + "Work", work)) as running,
        raw_peer(running.port) as peer,
    ):
        watching = asyncio.create_task(watch())
        calls = [call(stream, SERVICE + "Work", b"x" * 8_000) for stream in range(1, 121, 2)]
        await peer.send(*calls)
        assert await peer.status(119) == b"0"
        watching.cancel()
    assert longest_s < 0.1


async def test_a_smaller_header_table_is_acknowledged_in_the_next_block() -> None:
    """RFC 7541, section 4.2."""
    async with serving() as running, raw_peer(running.port) as peer:
        await peer.send(call(1, SERVICE + "Echo"))
        assert await peer.status(1) == b"0"
        await peer.send(frames.settings_frame([(frames.HEADER_TABLE_SIZE, 100)]))
        for stream, begins in ((3, True), (5, False)):
            await peer.send(call(stream, SERVICE + "Echo"))
            block = (await peer.expect(frames.HEADERS, stream)).payload
            assert block.startswith(hpack.NO_TABLE) == begins
            assert await peer.status(stream) == b"0"


async def test_what_comes_after_our_answer_is_ignored() -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        await peer.send(headers(1, request_block("/test.Echo/Nothing")))
        assert await peer.status(1) == b"12"
        ended = await peer.expect(frames.RST_STREAM)
        assert (ended.stream_id, ended.code) == (1, ErrorCode.NO_ERROR)
        await peer.send(data(1, b"x" * 10_000) * 5, data(1, b"", end=True))
        await peer.send(call(3, SERVICE + "Echo"))
        assert await peer.status(3) == b"0"
        assert frames.RST_STREAM not in {one.kind for one in peer.frames if one.stream_id != 1}
        assert running.met == []


async def test_a_call_that_is_reset_before_its_handler_began_leaves_nothing() -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        block = request_block(SERVICE + "Chat")
        await peer.send(headers(1, block) + frames.rst_stream(1, ErrorCode.CANCEL))
        await peer.ping()
        await until(lambda: not running.server.tasks)


@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_what_is_not_grpc_is_answered_in_http(method: bytes) -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        block = hpack.encode(
            [(b":method", method), (b":scheme", b"http"), (b":path", SERVICE.encode() + b"Fail")]
        )
        await peer.send(headers(1, block), data(1, message(b""), end=True))
        answer = await peer.expect(frames.HEADERS)
        assert dict(fields(answer.payload))[b":status"] == b"415"


async def test_what_comes_after_an_answer_that_waits_for_its_window_is_ignored() -> None:
    async with (
        serving() as running,
        raw_peer(running.port, settings=[(frames.INITIAL_WINDOW_SIZE, 0)]) as peer,
    ):
        # Answered after the first message, which it takes for the only one.
        await peer.send(headers(1, request_block(SERVICE + "CountBySend")))
        await peer.send(data(1, message(b"2")), data(1, message(b"2")))
        assert await peer.status(1) == b"13"
        await peer.send(call(3, SERVICE + "Echo", b"waits"))
        await peer.send(frames.window_update(3, 100))
        assert await peer.status(3) == b"0"


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([], id="no message"),
        pytest.param([message(b"a"), message(b"b")], id="two messages"),
        pytest.param([message(b"abc")[:-1]], id="a message that is cut off"),
        pytest.param([b"\0\0"], id="a prefix that is cut off"),
    ],
)
async def test_a_unary_request_is_one_whole_message(requests: list[bytes]) -> None:
    async with serving() as running, raw_peer(running.port) as peer:
        block = request_block(SERVICE + "Echo")
        await peer.send(headers(1, block), *[data(1, request) for request in requests])
        await peer.send(data(1, b"", end=True))
        assert await peer.status(1) == b"13"


@pytest.mark.parametrize("step", [1, 7, 100])
async def test_input_may_come_in_pieces_of_any_size(step: int) -> None:
    async with serving() as running, raw_peer(running.port, opening=b"") as peer:
        stream = frames.PREFACE + frames.settings_frame([])
        for number in range(1, 21, 2):
            stream += call(number, SERVICE + "Echo", b"%d" % number * 50)
        for begin in range(0, len(stream), step):
            await peer.send(stream[begin : begin + step])
            await asyncio.sleep(0)
        assert await peer.status(19) == b"0"
