"""Our client of our own server and of both of grpcio's: every shape of call, every way to end one,
on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from unittest.mock import Mock

import grpc
import pytest

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.channel import Channel, ChannelState
from aerobee.rpc.core.channel_limits import ChannelLimits, client_connection_limits
from aerobee.rpc.core.limits import ConnectionLimits
from aerobee.rpc.core.status import Metadata, Status
from tests.rpc.core.interop.programs import PROGRAMS
from tests.support.grpc_core_channel import (
    MIB,
    aio_server,
    channel_to,
    program_server,
    thread_server,
)
from tests.support.grpc_core_server import DETAILS, SERVICE, WORDS, serving
from tests.support.waiting import until


@dataclass
class Called:
    """A channel, and what its server says."""

    channel: Channel
    engine: str
    cancelled: list[str] = field(default_factory=list)


def limits_of(message_bytes_max: int) -> ChannelLimits:
    return ChannelLimits(
        connection=replace(client_connection_limits(), message_bytes_max=message_bytes_max)
    )


@pytest.fixture(params=["own", "grpc.aio", "grpcio", "grpc-go"])
async def called(request: pytest.FixtureRequest) -> AsyncIterator[Called]:
    limits = limits_of(32 * MIB)
    if request.param == "own":
        async with (
            serving(limits=ConnectionLimits(message_bytes_max=32 * MIB)) as running,
            channel_to(running.target, limits=limits) as channel,
        ):
            yield Called(channel, request.param, running.cancelled)
        return
    cancelled: list[str] = []
    if request.param == "grpc-go":
        go = PROGRAMS["go"]
        if go.missing:
            pytest.skip(go.missing)
        async with (
            program_server([f"{go.folder}/interop", "server"], cancelled) as address,
            channel_to(address, limits=limits) as channel,
        ):
            yield Called(channel, request.param, cancelled)
        return
    serve = aio_server if request.param == "grpc.aio" else thread_server
    async with serve(cancelled) as address, channel_to(address, limits=limits) as channel:
        yield Called(channel, request.param, cancelled)


@pytest.mark.parametrize("size", [0, 1, 1_000, 16_379, 16_380, 70_000, 4 * MIB, 20 * MIB])
async def test_one_request_has_one_answer(called: Called, size: int) -> None:
    request = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert await called.channel.call(SERVICE + "Echo", request, timeout_s=60) == request
    assert called.channel.state is ChannelState.READY


async def test_a_small_request_may_have_a_large_answer(called: Called) -> None:
    answers = await asyncio.gather(
        *[called.channel.call(SERVICE + "Large", b"3000000") for _ in range(8)]
    )
    assert answers == [b"x" * 3_000_000] * 8


async def test_a_stream_of_answers_comes_whole_and_in_order(called: Called) -> None:
    call = called.channel.stream(SERVICE + "Count", b"1000,500")
    assert [answer async for answer in call] == [b"%d" % one + b"x" * 500 for one in range(1_000)]
    assert call.is_over
    assert call.error is None
    assert await called.channel.stream(SERVICE + "Count", b"0").read() is None


async def test_a_stream_of_requests_has_one_answer(called: Called) -> None:
    call = called.channel.stream(SERVICE + "Sum")
    for size in range(300):
        await call.write(b"x" * size)
    assert await call.read_only() == b"%d" % sum(range(300))
    assert await called.channel.stream(SERVICE + "Sum").read_only() == b"0"
    large = called.channel.stream(SERVICE + "Sum")
    for _ in range(20):
        await large.write(b"x" * MIB)
    assert await large.read_only() == b"%d" % (20 * MIB)


async def test_both_sides_stream(called: Called) -> None:
    call = called.channel.stream(SERVICE + "Chat")
    for number in range(200):
        await call.write(b"%d" % number)
        assert await call.read() == b"%d" % number
    call.done_writing()
    assert await call.read() is None
    with pytest.raises(ValueError, match="after done_writing"):
        await call.write(b"more")


async def test_a_slow_reader_slows_its_peer_and_not_others(called: Called) -> None:
    """Its windows run full, its writer waits, and other calls go on."""
    call = called.channel.stream(SERVICE + "Chat")

    async def write() -> None:
        for _ in range(100):
            await call.write(b"x" * 200_000)
        call.done_writing()

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write())
        await call.wait_head()
        assert await called.channel.call(SERVICE + "Echo", b"meanwhile") == b"meanwhile"
        if called.engine == "own":  # a grpcio server may hold 20 MB for its handler
            assert not writing.done(), "20 MB fit nowhere"
        assert called.channel.held_bytes < 5 * MIB
        assert [len(answer) async for answer in call] == [200_000] * 100


@pytest.mark.thorough
async def test_thousands_of_calls_share_a_connection(called: Called) -> None:
    at_once = 5_000 if called.engine == "own" else 900  # beyond 1,000 grpcio's refuse some
    for first in range(0, 5_000, at_once):
        requests = [b"%d" % number for number in range(first, first + at_once)]
        answers = await asyncio.gather(
            *[called.channel.call(SERVICE + "Echo", request) for request in requests]
        )
        assert answers == requests
    assert len(called.channel.connections) == 1


async def test_hundreds_of_streams_share_a_connection(called: Called) -> None:
    if called.engine == "grpcio":
        pytest.skip("a thread for each")

    async def chat(number: int) -> None:
        call = called.channel.stream(SERVICE + "Chat")
        for turn in range(3):
            await call.write(b"%d,%d" % (number, turn))
        for turn in range(3):
            assert await call.read() == b"%d,%d" % (number, turn)
        call.done_writing()
        assert await call.read() is None

    async with asyncio.TaskGroup() as tasks:
        for number in range(700):
            tasks.create_task(chat(number))


async def test_an_error_tells_status_message_details_and_trailers(called: Called) -> None:
    with pytest.raises(CallError) as refused:
        await called.channel.call(SERVICE + "Fail", b"")
    error = refused.value
    assert error.status is Status.FAILED_PRECONDITION
    assert error.message == WORDS
    assert error.details == DETAILS
    assert error.is_answer
    assert not error.is_unprocessed
    trailers = dict(error.trailers)
    assert trailers["reason"] == "broken"
    assert trailers["reason-bin"] == b"\x00\xff"


async def test_metadata_travel_both_ways(called: Called) -> None:
    sent = (("key", "a value, with a comma"), ("key", "once more"), ("raw-bin", b"\x00\x01\xff"))

    def by_key(metadata: Metadata) -> Metadata:
        """Only the values of one key have an order."""
        return tuple(sorted(metadata, key=lambda pair: pair[0]))

    counted = by_key((*sent, ("count-bin", b"\x03")))
    call = called.channel.start(SERVICE + "Metadata", b"", metadata=sent)
    assert (await call.answer).startswith(b"ipv4:127.0.0.1:")
    assert by_key(call.initial_metadata) == sent
    assert by_key(call.trailing_metadata) == counted
    stream = called.channel.stream(SERVICE + "Metadata", b"", metadata=sent)
    assert by_key(await stream.wait_head()) == sent
    assert len([answer async for answer in stream]) == 1
    assert by_key(stream.trailing_metadata) == counted


async def test_what_http2_cannot_carry_is_refused_before_it_is_sent(called: Called) -> None:
    for key, value in (("Key", "x"), ("key", "line\nbreak"), (":path", "/"), ("raw-bin", "text")):
        with pytest.raises(ValueError, match="metadata"):
            await called.channel.call(SERVICE + "Echo", b"", metadata=((key, value),))
    assert await called.channel.call(SERVICE + "Echo", b"x") == b"x"


async def test_what_nobody_serves_is_unimplemented(called: Called) -> None:
    with pytest.raises(CallError) as refused:
        await called.channel.call("/test.Echo/Nothing", b"")
    assert refused.value.status is Status.UNIMPLEMENTED
    with pytest.raises(CallError) as refused:
        await called.channel.stream("/test.Echo/Nothing").read()
    assert refused.value.status is Status.UNIMPLEMENTED


async def test_a_call_ends_with_its_deadline(called: Called) -> None:
    begun_s = asyncio.get_running_loop().time()
    with pytest.raises(CallError) as late:
        await called.channel.call(SERVICE + "Sleep", b"", timeout_s=0.1)
    assert late.value.status is Status.DEADLINE_EXCEEDED
    assert 0.05 < asyncio.get_running_loop().time() - begun_s < 5
    await until(lambda: called.cancelled == ["Sleep"])
    stream = called.channel.stream(SERVICE + "Chat", timeout_s=0.1)
    with pytest.raises(CallError) as late:
        await stream.read()
    assert late.value.status is Status.DEADLINE_EXCEEDED


async def test_a_cancelled_task_ends_its_call_at_the_server(called: Called) -> None:
    while not called.cancelled:  # until one had reached its handler before it was cancelled
        task = asyncio.ensure_future(called.channel.call(SERVICE + "Sleep", b""))
        await called.channel.call(SERVICE + "Echo", b"")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not called.channel.connections[0].streams
        await called.channel.call(SERVICE + "Echo", b"")


async def test_a_cancelled_stream_tells_whoever_reads_or_writes(called: Called) -> None:
    call = called.channel.stream(SERVICE + "Chat")
    await call.wait_connected()
    reading = asyncio.ensure_future(call.read())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(CallError) as cancelled:
        await reading
    assert cancelled.value.status is Status.CANCELLED
    with pytest.raises(CallError):
        await call.write(b"late")
    with pytest.raises(CallError):
        await call.wait_connected()


async def test_a_cancelled_read_or_write_leaves_the_stream_as_it_was(called: Called) -> None:
    call = called.channel.stream(SERVICE + "Chat")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await call.read()
    written = 0

    async def write() -> None:
        nonlocal written
        while True:
            await call.write(b"%d" % written + b"x" * 300_000)
            written += 1

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(write(), 0.5)
    call.done_writing()
    answers = [answer.rstrip(b"x") async for answer in call]
    assert answers == [b"%d" % number for number in range(written)]


async def test_what_is_written_at_once_keeps_its_order_and_stops_at_the_window(
    called: Called,
) -> None:
    call = called.channel.stream(SERVICE + "Chat")
    assert not call.write_at_once(b"before it has a connection")
    await call.write(b"0")
    written = 1
    while call.write_at_once(b"%d" % written + b"x" * 300_000):
        written += 1
    assert 1 < written < 20
    await call.write(b"%d" % written)
    call.done_writing()
    assert not call.write_at_once(b"after the end")
    answers = [answer.rstrip(b"x") async for answer in call]
    assert answers == [b"%d" % number for number in range(written + 1)]
    assert not call.write_at_once(b"after the call")


async def test_a_message_written_at_once_leaves_before_anything_else_runs(called: Called) -> None:
    call = called.channel.stream(SERVICE + "Chat")
    await call.write(b"first")
    assert await call.read() == b"first"
    transport = call.connection.transport
    assert transport is not None
    written: list[bytes] = []
    call.connection.transport = Mock(wraps=transport, write=written.append)
    assert call.write_at_once(b"now")
    call.connection.transport = transport
    assert b"".join(written).endswith(b"now")
    transport.write(b"".join(written))
    assert await call.read() == b"now"


async def test_an_answer_beyond_the_limit_ends_its_call_alone(called: Called) -> None:
    limits = limits_of(1_000)
    async with channel_to(called.channel.address, limits=limits) as channel:
        for size in (b"1001", b"3000000"):
            with pytest.raises(CallError) as refused:
                await channel.call(SERVICE + "Large", size)
            assert refused.value.status is Status.RESOURCE_EXHAUSTED
        assert len(await channel.call(SERVICE + "Large", b"1000")) == 1_000


async def test_requests_may_be_compressed(called: Called) -> None:
    async with channel_to(called.channel.address, compress_bytes_min=1_000) as channel:
        for size in (10, 100_000):
            assert await channel.call(SERVICE + "Squeezed", b"x" * size) == b"x" * size
        call = channel.stream(SERVICE + "Chat")
        for size in (10, 50_000):
            await call.write(b"x" * size)
            assert await call.read() == b"x" * size
        call.cancel()


async def test_grpcio_may_compress_its_answers() -> None:
    async with (
        aio_server([], compression=grpc.Compression.Gzip) as address,
        channel_to(address) as channel,
    ):
        assert await channel.call(SERVICE + "Echo", b"x" * 100_000) == b"x" * 100_000
        call = channel.stream(SERVICE + "Count", b"3,50000")
        assert [len(answer) async for answer in call] == [50_001] * 3


async def test_a_channel_that_closes_ends_its_calls(called: Called) -> None:
    call = called.channel.stream(SERVICE + "Chat")
    await call.write(b"before")
    assert await call.read() == b"before"
    sleeping = called.channel.start(SERVICE + "Sleep", b"")
    closing = asyncio.ensure_future(called.channel.close(grace_s=0.2))
    await asyncio.sleep(0)
    await call.write(b"meanwhile")
    assert await call.read() == b"meanwhile"
    with pytest.raises(CallError) as refused:
        await called.channel.call(SERVICE + "Echo", b"")
    assert refused.value.is_unprocessed
    await closing
    for ended in (call.read(), sleeping.answer):
        with pytest.raises(CallError) as cancelled:
            await ended
        assert cancelled.value.status is Status.CANCELLED
    assert called.channel.state is ChannelState.CLOSED
