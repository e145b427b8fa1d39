"""Members that are killed while their listeners reject and ask for later: kill -9 at any line.

What is promised: every message ends handled or as one dead letter; a rejected message is a dead
letter once, however often its listener was asked; in order, a message begins only when those before
it have ended at least once. What may come again: a message whose member died before its broker knew
the answer, so its listener is asked again.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.consumer_client import SimpleConsumer
from tests.consumer_client.test_failing_processes import letters
from tests.consumer_client.test_sent_back_messages import LEVELS_MS
from tests.support.real_brokers import BrokerProcess, RealCluster, RouteServer
from tests.support.waiting import until

PROGRAM = Path(__file__).with_name("answering_consumer.py")
KEYS = "abcd"
EACH = 12
ANSWERS = ("ok", "reject", "ok", "later")
LIVES = 4


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """One broker, a process of its own."""
    broker = await BrokerProcess(
        "broker-a",
        tmp_path / "broker-a",
        {"single": 1},
        store_options={"delay_levels_ms": LEVELS_MS},  # type: ignore[dict-item]
    ).start()
    nameserver = await RouteServer([broker]).start()
    nameserver.has_retry_topics = True
    cluster = RealCluster({"broker-a": broker}, nameserver)
    yield cluster
    await cluster.stop()


class Said:
    """All that the members of the group have said, in the order of their lives."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, int]] = []
        self.wanted = 0

    async def read(self, lines: asyncio.StreamReader) -> None:
        async for line in lines:
            if line.endswith(b"\n"):  # one that is killed may have begun to say something
                what, key, number = line.decode().split()
                self.lines.append((what, key, int(number)))

    @property
    def ended(self) -> set[tuple[str, int]]:
        return {(key, number) for what, key, number in self.lines if what in ("ok", "reject")}

    def check_order(self) -> None:
        ended: defaultdict[str, set[int]] = defaultdict(set)
        for what, key, number in self.lines:
            if what == "begin":
                missing = set(range(number)) - ended[key]
                assert not missing, f"{number} of {key} before {missing}"
            elif what != "later":
                ended[key].add(number)


async def live(
    cluster: RealCluster,
    folder: Path,
    how: str,
    name: str,
    said: Said,
    is_over: Callable[[], bool | Awaitable[bool]],
) -> None:
    """One member until then; it is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        *(cluster.address, str(folder), how, name),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    reading = asyncio.create_task(said.read(process.stdout))
    try:
        await until(is_over, timeout_s=60)
    finally:
        process.kill()
        await process.wait()
        await reading


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["concurrent", "orderly", "key"])
@pytest.mark.parametrize(
    "broker_dies", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["", "broker dies"]
)
async def test_killed_members_lose_no_answer_and_keep_the_order(
    cluster: RealCluster, tmp_path: Path, how: str, broker_dies: bool
) -> None:
    bodies = {
        (key, number): f"{key} {number} {ANSWERS[number % len(ANSWERS)]}".encode()
        for number in range(EACH)
        for key in KEYS
    }
    await cluster.send("single", 0, [*bodies.values()])
    rejected = {body for body in bodies.values() if body.endswith(b"reject")}
    said = Said()
    for number in range(LIVES):
        # A machine of its own each time: what a member noted there helps the next one nothing.
        said.wanted = len(said.lines) + 11 + number

        def is_enough() -> bool:
            return len(said.lines) >= said.wanted or said.ended == set(bodies)

        await live(cluster, tmp_path / str(number), how, f"m{number}", said, is_enough)
        if broker_dies and number % 2:
            await cluster.brokers["broker-a"].stop()
            await cluster.brokers["broker-a"].start()
            await cluster.nameserver.publish()

    async def are_dead() -> bool:
        return said.ended == set(bodies) and len(await letters(cluster)) >= len(rejected)

    await live(cluster, tmp_path / "last", how, "last", said, are_dead)
    if how != "concurrent":
        said.check_order()
    dead = Counter(letter.body for letter in await letters(cluster))
    assert set(dead) == rejected
    assert set(dead.values()) == {1}


@pytest.mark.slow
async def test_what_a_killed_simple_consumer_has_answered_stays_answered(
    cluster: RealCluster,
) -> None:
    """It is durable when the call returns, so a broker that is killed right then knows it."""
    await cluster.send("single", 0, [b"0", b"1", b"2", b"3"])
    broker = cluster.brokers["broker-a"]
    consumer = SimpleConsumer("g", nameservers=cluster.address, invisible=10)
    async with consumer.subscribe("single"):
        done, rejected, later, open_ = await consumer.receive(4, timeout=10)
        await consumer.ack(done)
        await consumer.reject(rejected, "never")
        await consumer.nack(later, after=0.5)
    await broker.stop()
    await broker.start()
    await cluster.nameserver.publish()
    async with SimpleConsumer("g", nameservers=cluster.address).subscribe("single") as after:
        again: dict[bytes, int] = {}
        while len(again) < 2:
            for message in await after.receive(timeout=20):
                again[message.body] = message.reconsume_times
                await after.ack(message)
        assert again == {later.body: 1, open_.body: 1}
        assert await after.receive(timeout=1) == []
    assert [letter.body for letter in await letters(cluster)] == [rejected.body]
