"""How a channel finds its server: names, addresses, attempts and the pauses between them."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from aerobee.rpc.core.answer_head import CallError
from aerobee.rpc.core.backoff import Backoff
from aerobee.rpc.core.channel import ChannelState
from aerobee.rpc.core.dial import by_turns, split_address
from aerobee.rpc.core.status import Status
from tests.support.grpc_core_channel import (
    ECHO,
    SWIFT,
    channel_to,
    failure,
)
from tests.support.grpc_core_echo import echo_process
from tests.support.grpc_core_server import SERVICE, serving
from tests.support.ports import free_port
from tests.support.waiting import until


async def test_a_channel_connects_on_first_use() -> None:
    async with serving() as running, channel_to(running.target) as channel:
        await asyncio.sleep(0.02)  # time enough to connect, if it wanted to
        assert channel.state is ChannelState.IDLE
        assert not running.server.connections
        call = channel.start(ECHO, b"x")
        assert channel.state.value == ChannelState.CONNECTING
        assert await call.answer == b"x"
        assert channel.state.value == ChannelState.READY


async def test_calls_fail_fast_where_nobody_listens_unless_they_wait_for_it() -> None:
    port = free_port()
    limits = replace(SWIFT, backoff_first_s=0.5, backoff_max_s=0.5)
    async with channel_to(f"127.0.0.1:{port}", limits=limits) as channel:
        patient = asyncio.ensure_future(channel.call(ECHO, b"x", timeout_s=60, wait_for_ready=True))
        refused = await failure(channel)
        assert refused.status is Status.UNAVAILABLE
        assert refused.is_unprocessed
        assert not refused.is_answer
        assert "refused" in refused.message
        assert channel.state is ChannelState.BACKOFF
        call = channel.start(ECHO, b"")
        assert call.answer.done(), "in a pause it fails at once"
        assert call.answer.exception() is not None
        async with echo_process(port):
            assert await patient == b"x"
            assert await channel.call(ECHO, b"y") == b"y"


async def test_a_pause_without_calls_ends_in_idleness() -> None:
    async with channel_to(f"127.0.0.1:{free_port()}", limits=SWIFT) as channel:
        await failure(channel)
        await until(lambda: channel.state is ChannelState.IDLE)
        assert not channel.connections


def test_pauses_grow_up_to_a_limit_and_differ() -> None:
    one, other = (Backoff(0.1, 2.0, random.Random(seed)) for seed in (1, 2))
    delays = [one.next_s() for _ in range(20)]
    assert delays != [other.next_s() for _ in range(20)]
    assert 0.08 <= delays[0] <= 0.12
    assert all(1.6 <= delay <= 2.0 for delay in delays[8:])
    one.reset()
    assert one.next_s() <= 0.12


async def test_a_deadline_holds_for_a_call_without_a_connection() -> None:
    async with channel_to(f"127.0.0.1:{free_port()}", limits=SWIFT) as channel:
        with pytest.raises(CallError, match="before it had a connection") as late:
            await channel.call(ECHO, b"", timeout_s=0.2, wait_for_ready=True)
        assert late.value.status is Status.DEADLINE_EXCEEDED
        assert late.value.is_unprocessed


async def test_a_call_that_waits_can_be_cancelled() -> None:
    async with channel_to(f"127.0.0.1:{free_port()}", limits=SWIFT) as channel:
        call = channel.start(ECHO, b"", wait_for_ready=True)
        stream = channel.stream(SERVICE + "Chat", wait_for_ready=True)
        writing = asyncio.ensure_future(stream.write(b"x"))
        await asyncio.sleep(0)
        call.cancel()
        stream.cancel()
        for ended in (call.answer, writing):
            with pytest.raises(CallError) as cancelled:
                await ended
            assert cancelled.value.is_unprocessed
        assert not channel.waiting


@pytest.mark.parametrize("address", ["host", "host:", ":80", "::1:80", "host:x", "host:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        split_address(address)


def test_addresses_are_tried_by_turns_of_their_families() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    assert split_address("broker-0.svc:80") == ("broker-0.svc", 80)
    six, four = [("::1", 1), ("::2", 1), ("::3", 1)], [("1.1.1.1", 1), ("1.1.1.2", 1)]
    assert by_turns([*six, *four, *six]) == [six[0], four[0], six[1], four[1], six[2]]
    assert by_turns([]) == []


@asynccontextmanager
async def mute_listener() -> AsyncIterator[int]:
    """Takes connections and says nothing, as a port whose process hangs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_all_addresses_of_a_name_are_tried() -> None:
    async with serving() as running, mute_listener() as mute_port:

        async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
            assert (host, port) == ("name", 1)
            return [
                ("127.0.0.1", free_port()),
                ("127.0.0.1", mute_port),
                ("127.0.0.1", running.port),
            ]

        async with channel_to("name:1", limits=SWIFT, resolve=resolve) as channel:
            assert await channel.call(ECHO, b"x") == b"x"
            assert len(channel.connections) == 1, "the others were given up"
            assert len(running.server.connections) == 1


async def test_the_first_address_gets_a_start_on_the_others() -> None:
    async with serving() as first, serving() as second:

        async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
            return [("127.0.0.1", first.port), ("127.0.0.1", second.port)]

        limits = replace(SWIFT, stagger_s=5.0)
        async with channel_to("name:1", limits=limits, resolve=resolve) as channel:
            assert await channel.call(ECHO, b"x") == b"x"
        assert not second.server.connections


async def test_an_attempt_is_bounded_in_time() -> None:
    async with mute_listener() as port:
        limits = replace(SWIFT, attempt_s=0.1)
        async with channel_to(f"127.0.0.1:{port}", limits=limits) as channel:
            assert "no answer in time" in (await failure(channel)).message


async def test_a_resolver_that_hangs_or_fails_is_an_attempt_that_failed() -> None:
    async def hang(host: str, port: int) -> Sequence[tuple[str, int]]:
        await asyncio.Event().wait()
        return []

    async def fail(host: str, port: int) -> Sequence[tuple[str, int]]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    async def nothing(host: str, port: int) -> Sequence[tuple[str, int]]:
        return []

    limits = replace(SWIFT, attempt_s=0.05)
    for resolve, words in (
        (hang, "not resolved in time"),
        (fail, "no such name"),
        (nothing, "no address"),
    ):
        async with channel_to("name:1", limits=limits, resolve=resolve) as channel:
            assert words in (await failure(channel)).message


async def test_a_name_is_resolved_anew_for_each_attempt() -> None:
    """A process that comes back may have another address behind its name."""
    ports: list[int] = []

    async def resolve(host: str, port: int) -> Sequence[tuple[str, int]]:
        return [("127.0.0.1", ports[-1])]

    async with channel_to("name:1", limits=SWIFT, resolve=resolve) as channel:
        async with serving() as first:
            ports.append(first.port)
            assert await channel.call(ECHO, b"x") == b"x"
        await failure(channel)
        async with serving() as second:
            ports.append(second.port)
            assert await channel.call(ECHO, b"y", wait_for_ready=True, timeout_s=60) == b"y"


async def test_what_is_no_http2_is_a_failed_attempt() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with channel_to(f"127.0.0.1:{port}", limits=SWIFT) as channel:
            assert (await failure(channel)).is_unprocessed
