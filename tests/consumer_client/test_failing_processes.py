"""Messages that fail, in consumers that die: real processes, os._exit and SIGKILL."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.methods import CONFIGURE_GROUP
from aerobee.runtime.errors import TopicNotFound
from aerobee.v1 import broker_pb2
from tests.consumer_client.test_sent_back_messages import LEVELS_MS, dead_letters
from tests.support.real_brokers import BrokerProcess, RealCluster, RouteServer
from tests.support.waiting import until

PROGRAM = Path(__file__).with_name("failing_consumer.py")
RETRIES_MAX = 2
ORDERINGS = ["concurrent", "orderly"]


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """One broker, a process of its own; messages come again up to 2 times, at once."""
    broker = await BrokerProcess(
        "broker-a",
        tmp_path / "broker-a",
        {"single": 1},
        store_options={"delay_levels_ms": LEVELS_MS},  # type: ignore[dict-item]
    ).start()
    nameserver = await RouteServer([broker]).start()
    nameserver.has_retry_topics = True
    cluster = RealCluster({"broker-a": broker}, nameserver)
    settings = broker_pb2.RetrySettings(retries_max=RETRIES_MAX)
    request = broker_pb2.ConfigureGroupRequest(group="g", retry=settings)
    await cluster.channels.call(broker.address, CONFIGURE_GROUP, request)
    yield cluster
    await cluster.stop()


async def letters(cluster: RealCluster) -> list[ReceivedMessage]:
    try:
        return await dead_letters(cluster)
    except TopicNotFound:
        return []  # there was none yet


class Member:
    """A consumer's process, and what it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.endswith(b"\n"):  # a member that is killed may have begun to say something
                self.said.append(line.decode().strip())


@asynccontextmanager
async def member(
    cluster: RealCluster, folder: Path, ordering: str, name: str = "member"
) -> AsyncIterator[Member]:
    """Killed in the end. Members with folders of their own are as on machines of their own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        cluster.address,
        str(folder),
        ordering,
        name,
        stdout=asyncio.subprocess.PIPE,
    )
    running = Member(process)
    reading = asyncio.create_task(running.read())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_message_that_ends_its_process_is_one_dead_letter_after_the_groups_attempts(
    cluster: RealCluster, tmp_path: Path, ordering: str
) -> None:
    await cluster.send("single", 0, [b"before", b"exit", b"after"])
    said: list[str] = []
    for _ in range(RETRIES_MAX + 1):
        async with member(cluster, tmp_path, ordering) as running:
            await asyncio.wait_for(running.process.wait(), 40)
            assert running.process.returncode == 3
        said += running.said
    async with member(cluster, tmp_path, ordering) as running:

        async def is_dead() -> bool:
            return len(await letters(cluster)) > 0

        await until(is_dead, timeout_s=40)
        await until(lambda: "after 0" in said + running.said)
        assert running.process.returncode is None
    assert [line for line in said if "exit" in line] == ["exit 0", "exit 1", "exit 2"]
    assert not any("exit" in line for line in running.said)
    (letter,) = await letters(cluster)
    assert letter.body == b"exit"
    assert letter.properties["DLQ_ATTEMPTS"] == "3"


@pytest.mark.slow
async def test_a_message_that_ends_its_process_takes_none_of_its_neighbours_along(
    cluster: RealCluster, tmp_path: Path
) -> None:
    """Three calls of the listener run when it dies for the first time, and nobody is counted then.
    Alone, the message is known, and dies as often as the group allows."""
    await cluster.send("single", 0, [b"exit", b"slow 1", b"slow 2"])
    lives: list[list[str]] = []
    for _ in range(1 + RETRIES_MAX + 1):
        async with member(cluster, tmp_path, "threads") as running:
            await asyncio.wait_for(running.process.wait(), 40)
            assert running.process.returncode == 3
        lives.append(running.said)
    assert sorted(lives[0]) == ["exit 0", "slow 1 0", "slow 2 0"]
    assert lives[1] == ["exit 0"], "suspects come one at a time"
    async with member(cluster, tmp_path, "threads") as running:

        async def is_dead() -> bool:
            return len(await letters(cluster)) > 0

        await until(is_dead, timeout_s=40)
        said = [line for life in lives for line in life]
        await until(lambda: {"slow 1 done", "slow 2 done"} <= {*said, *running.said})
        assert running.process.returncode is None
    said += running.said
    assert [line for line in said if "exit" in line] == ["exit 0", "exit 0", "exit 1", "exit 2"]
    assert {line for line in said if "slow" in line and "done" not in line} == {
        "slow 1 0",
        "slow 2 0",
    }, "nothing was counted for what finished"
    (letter,) = await letters(cluster)
    assert (letter.body, letter.properties["DLQ_ATTEMPTS"]) == (b"exit", "3")


@pytest.mark.slow
async def test_another_machine_goes_on_counting_what_was_tried_in_order(
    cluster: RealCluster, tmp_path: Path
) -> None:
    """The member is killed between two attempts, then the broker, too."""
    await cluster.send("single", 0, [b"raise", b"after"])
    async with member(cluster, tmp_path / "one", "orderly", "one") as one:
        await until(lambda: "raise 1" in one.said, timeout_s=40)
    broker = cluster.brokers["broker-a"]
    await broker.stop()
    await broker.start()
    await cluster.nameserver.publish()
    async with member(cluster, tmp_path / "two", "orderly", "two") as two:
        await until(lambda: "after 0" in two.said, timeout_s=60)
    attempts = [line for line in one.said + two.said if "raise" in line]
    assert two.said[0] != "raise 0"
    assert attempts == sorted(attempts)
    assert attempts[-1] == "raise 2"
    (letter,) = await letters(cluster)
    assert (letter.body, letter.properties["DLQ_ATTEMPTS"]) == (b"raise", "3")


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_members_that_are_killed_while_they_send_back_leave_each_message_in_one_place(
    cluster: RealCluster, tmp_path: Path, ordering: str
) -> None:
    bad = [b"raise %d" % number for number in range(20)]
    good = [b"good %d" % number for number in range(20)]
    await cluster.send("single", 0, [body for pair in zip(bad, good, strict=True) for body in pair])
    said: list[str] = []

    async def all_died() -> bool:
        return len(await letters(cluster)) >= len(bad)

    async def said_enough(running: Member, lines: int) -> bool:
        """Or one before it lived so long, on a busy machine, that too little was left to say."""
        return len(running.said) >= lines or await all_died()

    for life in range(4):
        async with member(cluster, tmp_path / str(life), ordering, f"member {life}") as running:
            await until(lambda r=running, n=6 + 5 * life: said_enough(r, n), timeout_s=40)
        said += running.said
    async with member(cluster, tmp_path / "last", ordering, "last") as running:
        await until(all_died, timeout_s=60)
        await until(lambda: "good 19 0" in said + running.said)
    said += running.said
    assert sorted(each.body for each in await letters(cluster)) == sorted(bad)
    assert {line.rsplit(" ", 1)[0] for line in said if "good" in line} == {
        body.decode() for body in good
    }
    for body in bad:
        attempts = [int(line.split()[-1]) for line in said if line.startswith(f"{body.decode()} ")]
        assert attempts == sorted(attempts), "attempts never go back"
        assert set(attempts) == {0, 1, 2}
