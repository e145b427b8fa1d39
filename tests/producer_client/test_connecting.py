"""A broker that cannot be connected to holds up nobody without a limit."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aerobee.cluster_view.channels import Stream
from aerobee.cluster_view.route import Endpoint
from aerobee.producer_client import Message, Producer
from aerobee.producer_client.broker_stream import CONNECT_TIMEOUT_S
from aerobee.producer_client.store_host import StoreHosts
from aerobee.runtime import errors
from tests.support.fake_cluster import FakeBroker, FakeNameserver

NAMED = Endpoint("broker-a", 0, "broker.test:10911", True)


class Names:
    """A resolver that answers when it is let."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.failure: OSError | None = None
        self.asked = 0

    def look_up(self, host: str, port: int, family: int) -> list[Any]:
        self.asked += 1
        self.may_answer.wait(10)
        if self.failure is not None:
            raise self.failure
        return [(family, socket.SOCK_STREAM, 6, "", ("10.0.0.7", port))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    yield names
    names.may_answer.set()


async def test_a_name_that_nobody_resolves_is_given_up_and_asked_for_once_at_a_time(
    names: Names,
) -> None:
    hosts = StoreHosts()
    for _ in range(3):
        async with asyncio.timeout(2):
            with pytest.raises(errors.Unreachable, match=r"no answer within 0\.1 s"):
                await hosts.find(NAMED, timeout_s=0.1)
    assert names.asked == 1
    names.may_answer.set()
    found = await hosts.find(NAMED)
    assert (found.ip, found.port) == (bytes((10, 0, 0, 7)), 10911)
    assert names.asked == 1
    await hosts.find(NAMED)
    assert names.asked == 2


async def test_a_name_that_does_not_exist_is_asked_for_again(names: Names) -> None:
    hosts = StoreHosts()
    names.failure = OSError("Name or service not known")
    names.may_answer.set()
    for number in (1, 2):
        with pytest.raises(errors.Unreachable, match="not known"):
            await hosts.find(NAMED)
        assert names.asked == number


@pytest.mark.slow
async def test_a_connection_that_hangs_is_given_up_for_another_attempt(
    nameserver: FakeNameserver, broker_a: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect: Callable[[Any], Any] = Stream.wait_connected
    attempts: list[str] = []

    async def hang_once(stream: Any) -> None:
        attempts.append(stream.address)
        if len(attempts) == 1:
            await asyncio.Event().wait()
        await connect(stream)

    monkeypatch.setattr(Stream, "wait_connected", hang_once)
    async with Producer(nameserver.address) as producer:
        async with asyncio.timeout(CONNECT_TIMEOUT_S + 3):
            await producer.send(Message("orders", b"late"))
    assert attempts == [broker_a.address] * 2
    assert broker_a.bodies("orders") == [b"late"]


async def test_a_send_that_waits_for_a_cluster_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with Producer("127.0.0.1:1") as producer:
        with pytest.raises(errors.AerobeeError):
            await producer.send(Message("orders", b"x"), timeout=1.8)
    (line,) = [each.getMessage() for each in caplog.records if "waits for the" in each.msg]
    assert line.startswith("a send waits for the cluster topic=orders reason=")


async def test_what_is_no_message_is_refused_by_its_type() -> None:
    async with Producer("127.0.0.1:1") as producer:
        with pytest.raises(TypeError, match=r"takes a Message\(topic, body\), not bytes"):
            await producer.send(b"x")  # type: ignore[arg-type]
