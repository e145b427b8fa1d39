"""Commands that wait say what for, on standard error, and never on standard output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aerobee.cli.notices import PATIENCE_S, WaitNotice
from aerobee.runtime.clock import ManualClock
from tests.support.real_brokers import Link, RealBroker, RouteServer

REMARK_S_MAX = 40.0
"""Far more than a start and the patience need: it ends a test whose line does not come."""
MASTERLESS = "broker group 'broker-a' has no master now"
DEAF = "broker group 'broker-b', master at 10.0.0.2:10911: it has not answered yet"


class Terminal:
    """A notice whose lines are kept, in time that only `at` lets pass."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.obstacles: Sequence[str] = ()
        self.lines: list[str] = []
        self.notice = WaitNotice(self.clock, lambda: self.obstacles, self.lines.append)

    def look(self, *obstacles: str, after_s: float = 0.0) -> list[str]:
        """What is told when it looks so much later."""
        self.clock.advance_ms(int(after_s * 1_000))
        self.obstacles = obstacles
        self.lines.clear()
        self.notice.look()
        return list(self.lines)


def test_a_short_wait_is_not_told() -> None:
    terminal = Terminal()
    assert terminal.look(MASTERLESS) == []
    assert terminal.look(MASTERLESS, after_s=PATIENCE_S - 0.1) == []
    assert terminal.look(after_s=0.2) == []
    assert terminal.look(MASTERLESS, after_s=0.2) == [], "it begins again"


def test_a_long_wait_is_told_once() -> None:
    terminal = Terminal()
    terminal.look(MASTERLESS)
    assert terminal.look(MASTERLESS, after_s=PATIENCE_S) == [f"waiting: {MASTERLESS}"]
    assert terminal.look(MASTERLESS, after_s=60) == []


def test_another_reason_is_told_but_not_every_moment() -> None:
    terminal = Terminal()
    terminal.look(MASTERLESS)
    terminal.look(MASTERLESS, after_s=PATIENCE_S)
    assert terminal.look(MASTERLESS, DEAF, after_s=0.5) == []
    assert terminal.look(MASTERLESS, DEAF, after_s=PATIENCE_S) == [f"waiting: {MASTERLESS}; {DEAF}"]


def test_the_end_of_a_wait_that_was_told_is_told() -> None:
    terminal = Terminal()
    terminal.look(MASTERLESS)
    terminal.look(MASTERLESS, after_s=PATIENCE_S)
    assert terminal.look(after_s=0.5) == ["no longer waiting"]
    assert terminal.look(after_s=0.5) == []


class Command:
    """A running `aerobee`, its standard error read line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.remarks: list[str] = []

    async def remark(self, text: str) -> str:
        """The next line of standard error that has this text."""
        assert self.process.stderr is not None
        async with asyncio.timeout(REMARK_S_MAX):
            while line := (await self.process.stderr.readline()).decode():
                self.remarks.append(line)
                if text in line:
                    return line.rstrip()
        raise AssertionError(f"no {text!r} in {self.remarks}")

    async def end(self) -> tuple[int | None, list[str]]:
        """Exit code, and the lines of standard output."""
        said, remarks = await self.process.communicate()
        self.remarks += remarks.decode().splitlines()
        return self.process.returncode, said.decode().splitlines()


@asynccontextmanager
async def aerobee(nameserver: RouteServer, *arguments: str) -> AsyncIterator[Command]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aerobee.cli", *arguments),
        env={**os.environ, "AEROBEE_NAMESERVER": nameserver.address},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[RealBroker]:
    broker = await RealBroker("broker-a", tmp_path / "broker-a", {"orders": 1}).start()
    yield broker
    await broker.stop()


@pytest.fixture
async def link(broker: RealBroker) -> AsyncIterator[Link]:
    """The way to the broker, which can be frozen."""
    link = await Link(broker).start()
    yield link
    link.thaw()
    await link.stop()


@asynccontextmanager
async def routed(broker: RealBroker | Link) -> AsyncIterator[RouteServer]:
    nameserver = await RouteServer([broker]).start()
    try:
        yield nameserver
    finally:
        await nameserver.stop()


async def produced(nameserver: RouteServer, line: str) -> None:
    async with aerobee(nameserver, "produce", "orders") as command:
        said, _ = await command.process.communicate(f"{line}\n".encode())
        assert said.startswith(b"sent 1 message ")


CONSUME = ("consume", "orders", "--group", "g", "--count", "1", "--format", "json")


@pytest.mark.slow
async def test_a_consumer_says_that_the_group_is_away_and_when_it_is_back(
    broker: RealBroker,
) -> None:
    async with routed(broker) as nameserver:
        await produced(nameserver, "hello")
        await broker.stop()
        await nameserver.publish()
        async with aerobee(nameserver, *CONSUME) as consumer:
            told = await consumer.remark("waiting: ")
            assert told == "waiting: no broker of group 'broker-a' is known to be alive"
            await broker.start()
            await nameserver.publish()
            code, said = await consumer.end()
        assert (code, [json.loads(line)["body"] for line in said]) == (0, ["hello"])


@pytest.mark.slow
async def test_a_consumer_says_that_there_is_nothing_to_print(broker: RealBroker) -> None:
    """Both with a group and without; not if it shall be quiet."""
    empty = ("consume", "orders", "--from", "first", "--count", "1")
    async with (
        routed(broker) as nameserver,
        aerobee(nameserver, *empty) as looking,
        aerobee(nameserver, *empty, "--group", "g") as consumer,
        aerobee(nameserver, *empty, "--group", "quiet", "--quiet") as quiet,
    ):
        for each in (looking, consumer):
            assert await each.remark("waiting") == "waiting for messages of orders"
        await produced(nameserver, "hello")
        for each in (looking, consumer):
            assert (await each.end()) == (0, ["hello"])
            assert each.remarks == ["waiting for messages of orders\n"]
        assert (await quiet.end()) == (0, ["hello"])
        assert quiet.remarks == []


@pytest.mark.slow
async def test_a_consumer_says_who_does_not_answer(link: Link) -> None:
    async with routed(link) as nameserver:
        await produced(nameserver, "hello")
        link.freeze()
        async with aerobee(nameserver, *CONSUME) as consumer:
            told = await consumer.remark("waiting: ")
            assert told.startswith(f"waiting: broker group 'broker-a', master at {link.address}: ")
            link.thaw()
            code, said = await consumer.end()
        assert (code, [json.loads(line)["body"] for line in said]) == (0, ["hello"])


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_producer_says_who_does_not_answer(link: Link) -> None:
    async with routed(link) as nameserver:
        await produced(nameserver, "hello")
        link.freeze()
        async with aerobee(
            nameserver, "produce", "orders", "--timeout-ms", "60000", "--json"
        ) as producer:
            assert producer.process.stdin is not None
            producer.process.stdin.write(b"again\n")
            producer.process.stdin.close()
            told = await producer.remark("waiting: ")
            assert "broker-a" in told or link.address in told
            link.thaw()
            code, said = await producer.end()
        assert (code, json.loads("".join(said))["messages"]) == (0, 1)


@pytest.mark.thorough
@pytest.mark.slow
async def test_what_could_not_be_committed_at_the_end_is_one_sentence(broker: RealBroker) -> None:
    async with routed(broker) as nameserver:
        await produced(nameserver, "hello")
        async with aerobee(nameserver, "consume", "orders", "--group", "g") as consumer:
            assert consumer.process.stdout is not None
            assert await consumer.process.stdout.readline() == b"hello\n"
            await broker.stop()
            await nameserver.publish()
            consumer.process.send_signal(signal.SIGINT)
            code, said = await consumer.end()
        assert (code, said) == (3, [])
        assert consumer.remarks[-1] == (
            "aerobee: no broker took the offsets of what was printed last within 5 s: these "
            "messages will be delivered again"
        )
        assert not any("Traceback" in line for line in consumer.remarks)
