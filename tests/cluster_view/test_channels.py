"""What callers may rely on, whichever engine serves them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.channels import Channels, ServerStream, Stream
from aerobee.cluster_view.methods import QUERY_ROUTE, SEND_STREAM, WATCH_ROUTES
from aerobee.cluster_view.own_process import UsedAfterFork
from aerobee.rpc.client_channel import BACKOFF_MAX_S
from aerobee.rpc.grpc_config import ENGINE_VARIABLE, Engine
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, nameserver_pb2
from tests.support.channel_peer import QUESTION, WATCH, Peer, peer_here, start_peer
from tests.support.silent_peer import silent_peer
from tests.support.waiting import until

Send = Stream[broker_pb2.SendFrame, broker_pb2.SendAckFrame]
Watch = ServerStream[nameserver_pb2.QueryRouteResponse]
MIB = 1 << 20


@pytest_asyncio.fixture
async def channels() -> AsyncIterator[Channels]:
    channels = Channels(chance=random.Random(1))
    yield channels
    began_s = time.monotonic()
    await channels.close()
    assert time.monotonic() - began_s < 2, "nobody waits for a peer that is gone"


@pytest_asyncio.fixture(params=list(Engine), ids=lambda engine: f"at-{engine}")
async def served(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Peer, str]]:
    async with peer_here(engine=request.param) as served:
        yield served


def frame(sequence: int, body: bytes = b"") -> broker_pb2.SendFrame:
    return broker_pb2.SendFrame(batches=[broker_pb2.RecordBatch(sequence=sequence, records=body)])


# --------------------------------------------------------------------------------------- answers


async def test_a_call_is_answered_and_a_stream_carries_both_ways(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    assert (await channels.call(address, QUERY_ROUTE, QUESTION())).version == peer.version
    stream = channels.open_stream(address, SEND_STREAM)
    for sequence in range(1, 4):
        await stream.write(frame(sequence))
    await stream.write(frame(4).SerializeToString())
    stream.done_writing()
    for sequence in range(1, 5):
        answer = await stream.read()
        assert answer is not None
        assert [ack.sequence for ack in answer.acks] == [sequence]
    assert await stream.read() is None
    with pytest.raises(errors.Unreachable):
        await channels.open_stream("127.0.0.1:1", SEND_STREAM).read()


async def test_a_server_stream_is_read_to_its_end(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    peer.may_answer.set()
    stream = channels.open_server_stream(address, WATCH_ROUTES, WATCH)
    assert await stream.read() is not None
    assert await stream.read() is not None
    assert await stream.read() is None
    assert await stream.read() is None


async def test_each_answer_is_given_when_it_comes_until_the_end_or_an_error(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    _, address = served
    told: list[int] = []

    def note(answer: broker_pb2.SendAckFrame) -> None:
        told.extend(ack.sequence for ack in answer.acks)
        if told[-1] == 99:
            raise ValueError("99")

    stream = channels.open_stream(address, SEND_STREAM)
    reading = asyncio.create_task(stream.read_each(note))
    for sequence in range(1, 4):
        await stream.write(frame(sequence))
        await until(lambda sequence=sequence: told == list(range(1, sequence + 1)))
    stream.done_writing()
    await reading
    failing = channels.open_stream(address, SEND_STREAM)
    reading = asyncio.create_task(failing.read_each(note))
    await failing.write(frame(99))
    with pytest.raises(ValueError, match="99"):
        await reading
    failing.cancel()
    with pytest.raises(errors.Unreachable):
        await channels.open_stream("127.0.0.1:1", SEND_STREAM).read_each(note)


@pytest.mark.thorough
async def test_messages_of_many_megabytes_pass_both_ways(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    _, address = served
    name = "x" * (20 * MIB)
    answer = await channels.call(
        address, QUERY_ROUTE, QUESTION(topics=["large", name]), timeout_ms=30_000
    )
    assert answer.routes[0].topic.name == name
    stream = channels.open_stream(address, SEND_STREAM)
    for sequence in range(1, 4):
        await stream.write(frame(sequence, bytes(20 * MIB)))
        answered = await stream.read()
        assert answered is not None
        assert answered.acks[0].sequence == sequence
    stream.cancel()


# ---------------------------------------------------------------------------------------- errors


async def test_a_refused_call_raises_the_servers_error_with_the_name_of_the_request(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    _, address = served
    with pytest.raises(errors.TopicNotFound, match="no topic 'refused'") as refused:
        await channels.call(address, QUERY_ROUTE, QUESTION(topics=["refused"]))
    assert refused.value.request_id
    with pytest.raises(
        errors.AerobeeError, match="failed with INTERNAL: the server failed because"
    ):
        await channels.call(address, QUERY_ROUTE, QUESTION(topics=["bug"]))


async def test_a_message_larger_than_any_is_refused_and_the_next_call_answered(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    question = QUESTION(topics=["large", "x" * (33 * MIB)])
    with pytest.raises(errors.AerobeeError) as refused:
        await channels.call(address, QUERY_ROUTE, question, timeout_ms=30_000)
    assert not isinstance(refused.value, errors.Unreachable)
    assert (await channels.call(address, QUERY_ROUTE, QUESTION())).version == peer.version


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:1", r"127\.0\.0\.1:1.*refused"),
        ("nohost.invalid:8081", r"the host name nohost\.invalid cannot be resolved"),
    ],
)
async def test_a_call_or_stream_to_nowhere_is_unreachable(
    channels: Channels, address: str, told: str
) -> None:
    with pytest.raises(errors.Unreachable, match=told):
        await channels.call(address, QUERY_ROUTE, QUESTION())
    stream = channels.open_stream(address, SEND_STREAM)
    with pytest.raises(errors.Unreachable, match=told):
        await stream.wait_connected()
    with pytest.raises(errors.Unreachable):
        await stream.write(broker_pb2.SendFrame())
    with pytest.raises(errors.Unreachable):
        await stream.read()


async def test_who_has_closed_its_channels_reaches_nobody(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    _, address = served
    await channels.call(address, QUERY_ROUTE, QUESTION())
    await channels.close()
    with pytest.raises(errors.Unreachable, match="is closed"):
        await channels.call(address, QUERY_ROUTE, QUESTION())


# ----------------------------------------------------------------------------- deadlines and ends


async def watched(channels: Channels, address: str) -> tuple[Watch, asyncio.Task[Any]]:
    """A stream that has begun, and the task that waits for its next answer."""
    stream = channels.open_server_stream(address, WATCH_ROUTES, WATCH)
    assert await stream.read() is not None
    reader = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    return stream, reader


async def test_a_call_that_is_not_answered_in_time_ends_on_both_sides(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    began_s = time.monotonic()
    with pytest.raises(errors.DeadlineExceeded, match=address):
        await channels.call(address, QUERY_ROUTE, QUESTION(topics=["late"]), timeout_ms=200)
    assert time.monotonic() - began_s < 2
    await asyncio.wait_for(peer.cancelled.wait(), 5)


async def test_who_is_cancelled_ends_its_call_at_the_server(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    caller = asyncio.create_task(channels.call(address, QUERY_ROUTE, QUESTION(topics=["late"])))
    await peer.asked.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.wait_for(peer.cancelled.wait(), 5)


async def test_a_stream_that_is_cancelled_ends_at_the_server_and_wakes_its_reader(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    stream, reader = await watched(channels, address)
    await peer.watched.wait()
    stream.cancel()
    with pytest.raises(errors.Unreachable):
        await reader
    with pytest.raises(errors.Unreachable):
        await stream.read()
    await asyncio.wait_for(peer.cancelled.wait(), 5)


async def test_a_cancelled_reader_is_cancelled(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    _, address = served
    stream, reader = await watched(channels, address)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    stream.cancel()


async def test_closing_ends_calls_and_streams_that_run(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    _, reader = await watched(channels, address)
    caller = asyncio.create_task(channels.call(address, QUERY_ROUTE, QUESTION(topics=["late"])))
    await peer.asked.wait()
    await channels.close()
    for each in (reader, caller):
        with pytest.raises(errors.Unreachable):
            await asyncio.wait_for(each, 5)


async def test_disconnecting_one_address_leaves_the_others_and_begins_anew(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    async with peer_here(2) as (other, other_address):
        stream = channels.open_server_stream(other_address, WATCH_ROUTES, WATCH)
        assert await stream.read() is not None
        caller = asyncio.create_task(channels.call(address, QUERY_ROUTE, QUESTION(topics=["late"])))
        await peer.asked.wait()
        channels.disconnect(address)
        with pytest.raises(errors.Unreachable):
            await caller
        await channels.call(address, QUERY_ROUTE, QUESTION())
        assert len(peer.callers) == 2, "another connection"
        other.may_answer.set()
        assert await stream.read() is not None


async def test_no_connection_is_shared(served: tuple[Peer, str]) -> None:
    peer, address = served
    for _ in range(2):
        channels = Channels()
        await channels.call(address, QUERY_ROUTE, QUESTION())
        await channels.call(address, QUERY_ROUTE, QUESTION())
        await channels.close()
    assert len(peer.callers) == 2


# ------------------------------------------------------------------------------ without connection


@pytest.mark.parametrize(
    "wait",
    [Send.wait_connected, lambda stream: stream.write(broker_pb2.SendFrame())],
    ids=["connection", "write"],
)
@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_a_stream_that_ends_before_it_has_a_connection_wakes_who_waits_for_one(
    channels: Channels, wait: Callable[[Send], Coroutine[Any, Any, None]], end: str
) -> None:
    async with silent_peer() as address:
        stream = channels.open_stream(address, SEND_STREAM)
        waiter = asyncio.create_task(wait(stream))
        await asyncio.sleep(0.05)
        assert not waiter.done()
        if end == "cancel":
            stream.cancel()
        else:
            await channels.close()
        with pytest.raises(errors.Unreachable):
            await asyncio.wait_for(waiter, 5)


async def test_who_is_cancelled_while_a_stream_connects_is_cancelled(channels: Channels) -> None:
    async with silent_peer() as address:
        waiter = asyncio.create_task(channels.open_stream(address, SEND_STREAM).wait_connected())
        await asyncio.sleep(0.05)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter


@contextmanager
def black_hole() -> Iterator[str]:
    """The address of a listener whose queue is full: attempts to connect have no answer at all."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = []
        for _ in range(8):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(address)
            waiting.append(one)
        try:
            yield f"127.0.0.1:{address[1]}"
        finally:
            for one in waiting:
                one.close()


@pytest.mark.thorough
async def test_where_nobody_answers_at_all_calls_end_in_time_and_streams_soon(
    channels: Channels,
) -> None:
    with black_hole() as address:
        began_s = time.monotonic()
        stream = channels.open_stream(address, SEND_STREAM)
        with pytest.raises((errors.DeadlineExceeded, errors.Unreachable)):
            await channels.call(address, QUERY_ROUTE, QUESTION(), timeout_ms=200)
        assert time.monotonic() - began_s < 2
        with pytest.raises(errors.Unreachable):
            await asyncio.wait_for(stream.wait_connected(), 10)


# -------------------------------------------------------------------------------- servers that end


@pytest.mark.thorough
async def test_a_server_that_is_killed_ends_what_runs_and_is_found_when_it_is_back(
    channels: Channels,
) -> None:
    peer = await start_peer()
    stream = channels.open_server_stream(peer.address, WATCH_ROUTES, WATCH)
    assert await stream.read() is not None
    reader = asyncio.create_task(stream.read())
    caller = asyncio.create_task(
        channels.call(peer.address, QUERY_ROUTE, QUESTION(topics=["late"]), timeout_ms=60_000)
    )
    await asyncio.sleep(0.1)  # the call is under way
    await peer.kill()
    for each in (reader, caller):
        with pytest.raises(errors.Unreachable):
            await asyncio.wait_for(each, 5)

    async def is_reached() -> bool:
        try:
            await channels.call(peer.address, QUERY_ROUTE, QUESTION(), timeout_ms=1_000)
        except errors.Unreachable:
            return False
        return True

    away_s = time.monotonic()
    while time.monotonic() - away_s < 2.5:
        assert not await is_reached()
        await asyncio.sleep(0.05)
    successor = await start_peer(peer.address)
    back_s = time.monotonic()
    await until(is_reached)
    assert time.monotonic() - back_s < BACKOFF_MAX_S * 1.5 + 1, "however long it was away"
    await successor.kill()


async def test_a_process_that_comes_back_at_another_address_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channels = Channels()
    first = await start_peer()
    port = int(first.address.rpartition(":")[2])
    addresses = ["127.0.0.1"]

    async def look_up(*args: Any, **kwargs: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (addresses[0], port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    name = f"broker-a.example:{port}"
    old = (await channels.call(name, QUERY_ROUTE, QUESTION())).version
    await first.kill()
    second = await start_peer(f"127.0.0.2:{port}")
    addresses[0] = "127.0.0.2"
    found = await channels.call(name, QUERY_ROUTE, QUESTION())
    assert found.version == second.process.pid != old
    await channels.close()
    await second.kill()


async def test_a_server_that_stands_still_costs_a_call_its_time_and_is_used_again(
    channels: Channels,
) -> None:
    peer = await start_peer()
    try:
        await channels.call(peer.address, QUERY_ROUTE, QUESTION())
        peer.signal(signal.SIGSTOP)
        began_s = time.monotonic()
        with pytest.raises(errors.DeadlineExceeded):
            await channels.call(peer.address, QUERY_ROUTE, QUESTION(), timeout_ms=300)
        assert time.monotonic() - began_s < 2
        peer.signal(signal.SIGCONT)
        await channels.call(peer.address, QUERY_ROUTE, QUESTION())
    finally:
        await peer.kill()


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_stream_to_a_server_that_stands_still_ends_by_itself() -> None:
    """By a PING after 10 s without a word, and 5 s for its answer."""
    channels = Channels()
    peer = await start_peer()
    try:
        stream = channels.open_server_stream(peer.address, WATCH_ROUTES, WATCH)
        assert await stream.read() is not None
        peer.signal(signal.SIGSTOP)
        with pytest.raises(errors.Unreachable):
            await asyncio.wait_for(stream.read(), 20)
    finally:
        await channels.close()
        await peer.kill()


async def test_a_server_that_stops_answers_what_it_has_taken_while_its_successor_is_called(
    channels: Channels,
) -> None:
    old, new = Peer(1), Peer(2)
    address = f"127.0.0.1:{await old.server.start('127.0.0.1:0')}"
    stream = channels.open_server_stream(address, WATCH_ROUTES, WATCH)
    assert await stream.read() is not None
    first = asyncio.create_task(channels.call(address, QUERY_ROUTE, QUESTION(topics=["late"])))
    await old.asked.wait()
    stopping = asyncio.create_task(old.server.stop(5.0))
    await asyncio.sleep(0.1)  # it listens no more
    await new.server.start(address)
    second = await channels.call(address, QUERY_ROUTE, QUESTION())
    assert not first.done()
    old.may_answer.set()
    assert ((await first).version, second.version) == (1, 2)
    assert await stream.read() is not None
    assert await stream.read() is None
    await stopping
    await channels.close()
    await new.server.stop(0)


async def test_a_server_that_stops_without_patience_ends_calls_and_streams(
    channels: Channels,
) -> None:
    async with peer_here() as (peer, address):
        stream = channels.open_server_stream(address, WATCH_ROUTES, WATCH)
        assert await stream.read() is not None
        caller = asyncio.create_task(channels.call(address, QUERY_ROUTE, QUESTION(topics=["late"])))
        await peer.asked.wait()
        await peer.server.stop(0)
        with pytest.raises(errors.AerobeeError):
            await stream.read()
        with pytest.raises(errors.AerobeeError):
            await caller


async def test_a_writer_waits_for_a_peer_that_never_reads_until_the_stream_is_cancelled(
    channels: Channels, served: tuple[Peer, str]
) -> None:
    peer, address = served
    peer.reads = False
    stream = channels.open_stream(address, SEND_STREAM)
    written = 0

    async def write() -> None:
        nonlocal written
        while True:
            await stream.write(frame(1, bytes(MIB)))
            written += 1

    writer = asyncio.create_task(write())
    await peer.asked.wait()
    before = -1
    while written != before:  # nothing more within a tenth of a second
        before = written
        await asyncio.sleep(0.1)
    assert written < 64, "what waits is bounded"
    assert not writer.done()
    assert (await channels.call(address, QUERY_ROUTE, QUESTION())).version == 1, "others go on"
    stream.cancel()
    with pytest.raises(errors.Unreachable):
        await asyncio.wait_for(writer, 5)


# ------------------------------------------------------------------------------------------ forks


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
async def test_the_child_of_a_fork_is_refused_and_does_not_harm_its_parent() -> None:
    channels = Channels()
    peer = await start_peer()
    await channels.call(peer.address, QUERY_ROUTE, QUESTION())
    stream = channels.open_stream(peer.address, SEND_STREAM)
    await stream.write(frame(1))
    child = os.fork()
    if child == 0:
        try:
            for use in (channels.call(peer.address, QUERY_ROUTE, QUESTION()), channels.close()):
                try:
                    use.send(None)
                except UsedAfterFork:
                    continue
                except StopIteration:
                    os._exit(7)
            os._exit(1)
        finally:
            os._exit(2)
    status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status[1]) == 7, "refused, and then closed"
    await stream.write(frame(2))
    answers = [await stream.read(), await stream.read()]
    assert [one.acks[0].sequence for one in answers if one is not None] == [1, 2]
    await channels.close()
    await peer.kill()


# ------------------------------------------------------------------------------------------ engine


async def test_a_connection_takes_no_other_engine_than_our_own() -> None:
    assert ClusterConnection("127.0.0.1:1", engine=Engine.OWN).channels is not None
    with pytest.raises(errors.InvalidArgument, match="no gRPC engine grpcio"):
        ClusterConnection("127.0.0.1:1", engine=Engine.GRPCIO)


def test_a_client_loads_no_grpcio_whatever_serves_in_its_environment() -> None:
    """It would be a ninth of the time that the import takes, and 15 MB."""
    loaded = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys, aerobee.producer_client, aerobee.consumer_client; "
            "print([name for name in sys.modules if name.partition('.')[0] == 'grpc'])",
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, ENGINE_VARIABLE: "grpcio"},
    )
    assert loaded.stdout == "[]\n"
