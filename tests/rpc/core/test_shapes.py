"""grpcio as a client of our server: every shape of call, every way to end one, on both event loops,
plain and by TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from aerobee.rpc.core.method import completion, synchronous
from aerobee.rpc.core.server_call import ServerCall
from aerobee.rpc.core.status import RpcError, Status
from tests.support.grpc_core_server import DETAILS, SERVICE, WORDS, Serving, serving
from tests.support.waiting import until

MIB = 1 << 20
OPTIONS = [
    ("grpc.max_receive_message_length", 32 * MIB),
    ("grpc.max_send_message_length", 32 * MIB),
    ("grpc.use_local_subchannel_pool", 1),
]


def plain_channel(running: Serving, **arguments: Any) -> Any:
    """Any: its stubs know no calls of bytes."""
    return grpc.aio.insecure_channel(running.target, options=OPTIONS, **arguments)


@pytest.fixture
async def running() -> AsyncIterator[Serving]:
    async with serving() as running:
        yield running


@pytest.fixture
async def channel(running: Serving) -> AsyncIterator[Any]:
    async with plain_channel(running) as channel:
        yield channel


@pytest.mark.parametrize("name", ["Echo", "Later", "Task"])
@pytest.mark.parametrize("size", [0, 1, 1_000, 16_379, 16_380, 70_000, 4 * MIB])
async def test_one_request_has_one_answer(channel: Any, name: str, size: int) -> None:
    request = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert await channel.unary_unary(SERVICE + name)(request) == request


@pytest.mark.parametrize("name", ["Count", "CountBySend"])
async def test_a_stream_of_answers_comes_whole_and_in_order(channel: Any, name: str) -> None:
    answers = [answer async for answer in channel.unary_stream(SERVICE + name)(b"1000,500")]
    assert answers == [b"%d" % number + b"x" * 500 for number in range(1_000)]
    assert [answer async for answer in channel.unary_stream(SERVICE + name)(b"0")] == []


async def test_a_stream_of_requests_has_one_answer(channel: Any) -> None:
    total = channel.stream_unary(SERVICE + "Sum")
    assert await total(iter([b"x" * size for size in range(300)])) == b"%d" % sum(range(300))
    assert await total(iter([])) == b"0"
    assert await total(iter([b"x" * MIB] * 20)) == b"%d" % (20 * MIB)


async def test_both_sides_stream(channel: Any) -> None:
    call = channel.stream_stream(SERVICE + "Chat")()
    for number in range(200):
        await call.write(b"%d" % number)
        assert await call.read() == b"%d" % number
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_both_sides_stream_much_to_a_slow_reader(channel: Any) -> None:
    call = channel.stream_stream(SERVICE + "Chat")(iter([b"x" * 200_000] * 60))
    count = 0
    async for answer in call:
        count += len(answer)
        if count % 2_000_000 == 0:
            await asyncio.sleep(0.01)  # lets the windows run full
    assert count == 60 * 200_000


async def test_many_calls_at_once_share_a_connection(running: Serving, channel: Any) -> None:
    echo = channel.unary_unary(SERVICE + "Task")
    requests = [b"%d" % number * 20_000 for number in range(100)]
    answers = await asyncio.gather(*[echo(request) for request in requests])
    assert answers == requests
    assert len(running.server.connections) == 1


async def test_an_error_tells_status_message_details_and_trailers(channel: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await channel.unary_unary(SERVICE + "Fail")(b"")
    error = refused.value
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.details() == WORDS
    trailers = dict(error.trailing_metadata())
    assert trailers["reason"] == "broken"
    assert trailers["reason-bin"] == b"\x00\xff"
    assert trailers["grpc-status-details-bin"] == DETAILS


async def test_metadata_travel_both_ways(running: Serving, channel: Any) -> None:
    sent = (("key", "a value, with a comma"), ("key", "once more"), ("raw-bin", b"\x00\x01\xff"))
    call = channel.unary_unary(SERVICE + "Metadata")(b"", metadata=sent)
    assert (await call).startswith(b"ipv4:127.0.0.1:")
    assert tuple(await call.initial_metadata()) == sent
    assert tuple(await call.trailing_metadata()) == (*sent, ("count-bin", b"\x03"))


async def test_what_nobody_serves_is_unimplemented(channel: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await channel.unary_unary("/test.Echo/Nothing")(b"")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_bug_of_a_handler_is_told_to_the_server_alone() -> None:
    def divide(request: bytes, call: ServerCall) -> bytes:
        raise ZeroDivisionError("secret")

    async with serving(synchronous(SERVICE + "Divide", divide)) as running:
        async with plain_channel(running) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(SERVICE + "Divide")(b"")
        assert refused.value.code() is grpc.StatusCode.UNKNOWN
        assert "secret" not in (refused.value.details() or "")
        assert [type(bug) for bug in running.bugs] == [ZeroDivisionError]
        running.bugs.clear()


@pytest.mark.parametrize("name", ["Sleep", "Never"])
async def test_a_call_ends_with_its_deadline(running: Serving, channel: Any, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await channel.unary_unary(SERVICE + name)(b"", timeout=0.1)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: not running.server.connections[0].streams)
    await until(lambda: running.cancelled == ["Sleep"] * (name == "Sleep"))


async def test_a_cancelled_call_ends_its_handler(running: Serving, channel: Any) -> None:
    call = channel.unary_unary(SERVICE + "Sleep")(b"")
    await until(lambda: running.server.tasks)
    call.cancel()
    await until(lambda: running.cancelled == ["Sleep"])
    stream = channel.unary_stream(SERVICE + "Forever")(b"")
    assert len(await stream.read()) == 10_000
    stream.cancel()
    await until(lambda: running.cancelled == ["Sleep", "Forever"])
    assert await channel.unary_unary(SERVICE + "Echo")(b"goes on") == b"goes on"


async def test_a_server_may_cancel_a_call(channel: Any) -> None:
    call = channel.unary_stream(SERVICE + "CountAndCancel")(b"3")
    assert [await call.read() for _ in range(3)] == [b"0", b"1", b"2"]
    assert await call.code() is grpc.StatusCode.CANCELLED


@pytest.mark.thorough
async def test_a_thousand_streams_are_open_at_once(channel: Any) -> None:
    calls = [channel.stream_stream(SERVICE + "Chat")() for _ in range(1_000)]
    for text in (b"once", b"again"):
        await asyncio.gather(*[call.write(text) for call in calls])
        assert await asyncio.gather(*[call.read() for call in calls]) == [text] * 1_000
    await asyncio.gather(*[call.done_writing() for call in calls])
    assert await asyncio.gather(*[call.read() for call in calls]) == [grpc.aio.EOF] * 1_000


async def test_a_client_that_is_gone_ends_its_handlers(running: Serving) -> None:
    async with plain_channel(running) as channel:
        call = channel.unary_unary(SERVICE + "Sleep")(b"")
        await until(lambda: running.server.tasks)
    assert call.done()
    await until(lambda: running.cancelled == ["Sleep"])


async def test_gzip_is_understood_and_answered(running: Serving) -> None:
    async with plain_channel(running, compression=grpc.Compression.Gzip) as channel:
        for name in ("Echo", "Squeezed"):
            echo = channel.unary_unary(SERVICE + name)
            assert await echo(b"x" * 100_000) == b"x" * 100_000
            assert await echo(b"short") == b"short"
        call = channel.stream_stream(SERVICE + "Chat")(iter([b"y" * 50_000] * 3))
        assert [len(answer) async for answer in call] == [50_000] * 3


async def test_an_unknown_compression_is_unimplemented(running: Serving) -> None:
    async with plain_channel(running, compression=grpc.Compression.Deflate) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(SERVICE + "Echo")(b"x" * 100_000)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_completion_may_end_in_an_error_or_come_too_late() -> None:
    kept: dict[bytes, ServerCall] = {}

    def keep(request: bytes, call: ServerCall) -> None:
        kept[request] = call

    async with (
        serving(completion(SERVICE + "Keep", keep)) as running,
        plain_channel(running) as channel,
    ):
        keeping = channel.unary_unary(SERVICE + "Keep")
        refused, cancelled, answered = (keeping(name) for name in (b"a", b"b", b"c"))
        await until(lambda: len(kept) == 3)
        kept[b"a"].abort(Status.NOT_FOUND, "gone")
        cancelled.cancel()
        await until(lambda: kept[b"b"].is_over)
        for call in kept.values():
            call.finish(b"answer")  # says nothing to a call that is over
        assert await answered == b"answer"
        assert await refused.code() is grpc.StatusCode.NOT_FOUND
        assert cancelled.cancelled()


class Doorkeeper:
    """An interceptor that knows who may come in, and writes down who came."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Status]] = []

    def began(self, call: ServerCall) -> None:
        if ("password", "sesame") not in call.metadata:
            raise RpcError(Status.UNAUTHENTICATED, "say the word")

    def ended(self, call: ServerCall, status: Status, elapsed_s: float) -> None:
        assert 0 <= elapsed_s < 60
        self.seen.append((call.path, status))


async def test_an_interceptor_sees_and_refuses_every_call() -> None:
    keeper = Doorkeeper()
    async with (
        serving(interceptor=keeper) as running,
        plain_channel(running) as channel,
    ):
        echo = channel.unary_unary(SERVICE + "Echo")
        assert await echo(b"", metadata=(("password", "sesame"),)) == b""
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await echo(b"")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert keeper.seen == [
        (SERVICE + "Echo", Status.OK),
        (SERVICE + "Echo", Status.UNAUTHENTICATED),
    ]


async def test_a_server_that_stops_lets_calls_end(running: Serving, channel: Any) -> None:
    call = channel.stream_stream(SERVICE + "Chat")()
    await call.write(b"before")
    assert await call.read() == b"before"
    stopping = asyncio.ensure_future(running.server.stop(20))
    await until(lambda: running.server.connections[0].is_draining)
    await call.write(b"meanwhile")
    assert await call.read() == b"meanwhile"
    assert not stopping.done()
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    await stopping


async def test_a_server_that_stops_cancels_what_does_not_end(
    running: Serving, channel: Any
) -> None:
    call = channel.unary_unary(SERVICE + "Sleep")(b"")
    await until(lambda: running.server.tasks)
    await running.server.stop(0.05)
    assert await call.code() is grpc.StatusCode.UNAVAILABLE
    assert running.cancelled == ["Sleep"]
