"""Servers that break HTTP/2 or gRPC, frame by frame: what their calls and connections come to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from aerobee.rpc.core import frames, hpack
from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel_limits import ChannelLimits, client_connection_limits
from aerobee.rpc.core.frames import ErrorCode
from aerobee.rpc.core.limits import Limit
from aerobee.rpc.core.status import Status
from tests.support.grpc_core_channel import Observed, channel_to
from tests.support.grpc_core_server import SERVICE
from tests.support.raw_http2 import RawPeer, data, headers, message
from tests.support.raw_http2_server import (
    OK_END,
    OK_HEAD,
    answer,
    raw_server,
    requested,
    trailers_only,
)
from tests.support.waiting import until

ECHO = SERVICE + "Echo"
END = frames.END_HEADERS | frames.END_STREAM
LIMITS = ChannelLimits(backoff_first_s=0.01, backoff_max_s=0.02)


def answering(*parts: Callable[[int], bytes]) -> Callable[[RawPeer], Awaitable[None]]:
    """The first call gets these bytes, and further ones are answered well."""

    async def script(peer: RawPeer) -> None:
        stream_id = await requested(peer)
        await peer.send(*[part(stream_id) for part in parts])
        while True:
            await peer.send(answer(await requested(peer), b"well"))

    return script


def head(*pairs: tuple[bytes, bytes]) -> Callable[[int], bytes]:
    return lambda stream_id: headers(stream_id, hpack.encode(pairs))


def good_head(stream_id: int) -> bytes:
    return headers(stream_id, OK_HEAD)


def good_end(stream_id: int) -> bytes:
    return headers(stream_id, OK_END, END)


def body(content: bytes, *, end: bool = False) -> Callable[[int], bytes]:
    return lambda stream_id: data(stream_id, content, end=end)


def only(*pairs: tuple[bytes, bytes]) -> Callable[[int], bytes]:
    return lambda stream_id: trailers_only(stream_id, *pairs)


def http(status: bytes, kind: bytes = b"text/html") -> Callable[[int], bytes]:
    block = hpack.encode([(b":status", status), (b"content-type", kind)])
    return lambda stream_id: headers(stream_id, block, END)


ANSWERS: dict[str, tuple[list[Callable[[int], bytes]], int]] = {
    "no answer": ([good_head, good_end], Status.INTERNAL),
    "two answers": ([good_head, body(message(b"a")), body(message(b"b")), good_end], 13),
    "two answers in one frame": ([good_head, body(message(b"a") + message(b"b")), good_end], 13),
    "half an answer": ([good_head, body(message(b"abc")[:-1]), good_end], Status.INTERNAL),
    "half a prefix": ([good_head, body(b"\0\0"), good_end], Status.INTERNAL),
    "no trailers": ([good_head, body(message(b"a"), end=True)], Status.UNKNOWN),
    "trailers without a status": (
        [good_head, lambda stream: headers(stream, hpack.encode([(b"x", b"y")]), END)],
        Status.UNKNOWN,
    ),
    "a status that is no number": ([only((b"grpc-status", b"ok"))], Status.UNKNOWN),
    "a status that nobody knows": ([only((b"grpc-status", b"99"))], Status.UNKNOWN),
    "only trailers": ([only((b"grpc-status", b"5"), (b"grpc-message", b"a%20b%"))], 5),
    "details that are no base64": (
        [only((b"grpc-status", b"5"), (b"grpc-status-details-bin", b"*"))],
        Status.NOT_FOUND,
    ),
    "HTTP 503": ([http(b"503")], Status.UNAVAILABLE),
    "HTTP 401": ([http(b"401")], Status.UNAUTHENTICATED),
    "HTTP 404": ([http(b"404")], Status.UNIMPLEMENTED),
    "HTTP 418": ([http(b"418")], Status.UNKNOWN),
    "another content-type": ([http(b"200")], Status.UNKNOWN),
    "a page": (
        [head((b":status", b"502"), (b"content-type", b"text/html")), body(b"<html>", end=True)],
        Status.UNAVAILABLE,
    ),
    "DATA before HEADERS": ([body(message(b"a")), good_end], Status.INTERNAL),
    "HEADERS thrice": ([good_head, good_head, good_end], Status.INTERNAL),
    "no :status": ([head((b"content-type", b"application/grpc"))], Status.UNKNOWN),
    "capitals": ([head((b":status", b"200"), (b"Key", b"x"))], Status.INTERNAL),
    "a request's field": ([head((b":status", b"200"), (b":path", b"/"))], Status.INTERNAL),
    "a :status too late": ([head((b"x", b"y"), (b":status", b"200"))], Status.INTERNAL),
    "compression without its name": ([good_head, body(message(b"abc", 1)), good_end], 13),
    "a stream's window of nothing": (
        [good_head, lambda stream: frames.window_update(stream, 0)],
        Status.INTERNAL,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_wrong_answer_fails_its_call_and_not_the_connection(name: str) -> None:
    parts, status = ANSWERS[name]
    async with raw_server(answering(*parts)) as raw, channel_to(raw.address) as channel:
        with pytest.raises(CallError) as failed:
            await channel.call(ECHO, b"", timeout_s=20)
        assert failed.value.status == status
        assert await channel.call(ECHO, b"") == b"well"
    async with raw_server(answering(*parts)) as raw, channel_to(raw.address) as channel:
        call = channel.stream(ECHO, b"", timeout_s=20)
        with pytest.raises(CallError) as failed:
            await call.read_only()
        assert failed.value.status == status
        assert await channel.call(ECHO, b"") == b"well"
        assert len(raw.peers) == 1


async def test_an_informational_head_is_followed_by_another() -> None:
    script = answering(
        head((b":status", b"103"), (b"link", b"x")), good_head, body(message(b"a")), good_end
    )
    async with raw_server(script) as raw, channel_to(raw.address) as channel:
        assert await channel.call(ECHO, b"") == b"a"


async def test_an_answer_may_come_in_any_pieces() -> None:
    content = message(b"x" * 30)
    parts = [body(content[at : at + 1]) for at in range(len(content))]

    async def script(peer: RawPeer) -> None:
        whole = b"".join([part(await requested(peer)) for part in (good_head,)])
        whole += b"".join(part(1) for part in (*parts, body(b""), good_end))
        for at in range(len(whole)):
            await peer.send(whole[at : at + 1])
        await peer.closed()

    async with raw_server(script) as raw, channel_to(raw.address) as channel:
        assert await channel.call(ECHO, b"") == b"x" * 30


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.NO_ERROR, Status.INTERNAL),
        (ErrorCode.PROTOCOL_ERROR, Status.INTERNAL),
        (ErrorCode.CANCEL, Status.CANCELLED),
        (ErrorCode.ENHANCE_YOUR_CALM, Status.RESOURCE_EXHAUSTED),
        (ErrorCode.INADEQUATE_SECURITY, Status.PERMISSION_DENIED),
        (4711, Status.INTERNAL),
    ],
)
async def test_a_reset_says_a_status(code: int, status: Status) -> None:
    script = answering(lambda stream: frames.rst_stream(stream, code))
    async with raw_server(script) as raw, channel_to(raw.address) as channel:
        with pytest.raises(CallError) as failed:
            await channel.call(ECHO, b"")
        assert failed.value.status is status
        assert not failed.value.is_answer
        assert await channel.call(ECHO, b"") == b"well"


async def test_a_call_that_its_server_resets_after_the_deadline_is_late() -> None:
    script = answering(lambda stream: frames.rst_stream(stream, ErrorCode.CANCEL))
    async with raw_server(script) as raw, channel_to(raw.address) as channel:
        call = channel.start(ECHO, b"", timeout_s=60)
        call.expires_s = asyncio.get_running_loop().time()
        with pytest.raises(CallError) as late:
            await call.answer
        assert late.value.status is Status.DEADLINE_EXCEEDED
        assert await channel.call(ECHO, b"") == b"well"


async def test_what_came_before_a_reset_is_still_read() -> None:
    script = answering(
        good_head,
        body(message(b"a") + message(b"b")),
        lambda stream: frames.rst_stream(stream, ErrorCode.INTERNAL_ERROR),
    )
    async with raw_server(script) as raw, channel_to(raw.address) as channel:
        call = channel.stream(ECHO, b"")
        await until(lambda: call.is_over)
        assert [await call.read(), await call.read()] == [b"a", b"b"]
        with pytest.raises(CallError, match="INTERNAL_ERROR"):
            await call.read()


BREACHES = {
    "SETTINGS on a stream": frames.frame(frames.SETTINGS, 0, 1),
    "a promise": frames.frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, b"\0\0\0\2"),
    "a stream of its own": headers(2, OK_HEAD),
    "a stream that was not begun": data(7, b"x"),
    "a block that is no HPACK": headers(1, b"\xff\xff\xff\xff\xff\xff"),
    "a window that overflows": frames.window_update(0, frames.WINDOW_MAX),
    "a frame that is too long": b"\xff\xff\xff\0\0\0\0\0\1",
}


@pytest.mark.parametrize("name", BREACHES)
async def test_a_broken_connection_ends_and_the_next_call_has_another(name: str) -> None:
    async def breach(peer: RawPeer) -> None:
        await requested(peer)
        await peer.send(BREACHES[name])
        await peer.goaway()
        await peer.closed()

    async def well(peer: RawPeer) -> None:
        while True:
            await peer.send(answer(await requested(peer), b"well"))

    observer = Observed()
    async with (
        raw_server(breach, well) as raw,
        channel_to(raw.address, limits=LIMITS, observer=observer) as channel,
    ):
        with pytest.raises(CallError) as lost:
            await channel.call(ECHO, b"", timeout_s=20)
        assert lost.value.status is Status.UNAVAILABLE
        assert await channel.call(ECHO, b"", timeout_s=20) == b"well"
        assert observer.met == [Limit.PROTOCOL]


async def test_metadata_beyond_the_limit_fail_their_call() -> None:
    script = answering(head((b":status", b"200"), *[(b"many", b"")] * 500))
    async with raw_server(script) as raw, channel_to(raw.address) as channel:
        with pytest.raises(CallError, match="metadata") as failed:
            await channel.call(ECHO, b"", timeout_s=20)
        assert failed.value.status is Status.RESOURCE_EXHAUSTED
        assert await channel.call(ECHO, b"") == b"well"


async def test_control_frames_without_end_end_the_connection() -> None:
    async def flood(peer: RawPeer) -> None:
        await requested(peer)
        await peer.flood(frames.frame(frames.PING, 0, 0, b"12345678"), 100_000)

    observer = Observed()
    connection = replace(client_connection_limits(), control_burst=400, control_per_s=100)
    limits = replace(LIMITS, connection=connection)
    async with (
        raw_server(flood) as raw,
        channel_to(raw.address, limits=limits, observer=observer) as channel,
    ):
        with pytest.raises(CallError, match="too many control frames"):
            await channel.call(ECHO, b"", timeout_s=20)
        assert Limit.CONTROL_FRAMES in observer.met


async def test_late_answers_of_cancelled_calls_are_nobodys_fault() -> None:
    """A server may have answered thousands of calls before it hears that they were cancelled."""

    async def late(peer: RawPeer) -> None:
        streams = [await requested(peer) for _ in range(3_000)]
        for stream_id in streams:
            await peer.expect(frames.RST_STREAM, stream_id)
        for stream_id in streams:
            await peer.send(answer(stream_id, b"late"))
        await peer.send(answer(await requested(peer), b"well"))
        await peer.closed()

    async with raw_server(late) as raw, channel_to(raw.address) as channel:
        calls = [channel.start(ECHO, b"") for _ in range(3_000)]
        await until(lambda: calls[-1].is_begun)
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
            assert isinstance(call.answer.exception(), CallError)
        assert await channel.call(ECHO, b"") == b"well"


async def test_a_server_without_a_table_gets_blocks_that_say_so() -> None:
    async def script(peer: RawPeer) -> None:
        await requested(peer)
        block = next(frame for frame in peer.frames if frame.kind == frames.HEADERS).payload
        assert block.startswith(hpack.NO_TABLE)
        await peer.send(answer(1, b"answer"))
        await peer.closed()

    settings = [(frames.HEADER_TABLE_SIZE, 0)]
    async with raw_server(script, settings=settings) as raw, channel_to(raw.address) as channel:
        assert await channel.call(ECHO, b"") == b"answer"
