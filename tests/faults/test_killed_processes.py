"""kill -9 of every kind of process under load: the cluster recovers by itself, nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from aerobee.client_core import ClusterConnection, GroupAdmin
from tests.faults.clusters import ClusterProcess
from tests.faults.serving import Process
from tests.faults.workers import GROUP, Worker
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TOPIC = "events"
UNDER_LOAD_S = 0.3


class Load:
    """Two producers and two members of one group, and what all that ever ran have noted."""

    def __init__(self, nameserver: str, folder: Path, stack: AsyncExitStack) -> None:
        self._nameserver = nameserver
        self._folder = folder
        self._stack = stack
        self._started = 0
        self.producers: list[Worker] = []
        self.consumers: list[Worker] = []

    async def start(self, kind: str) -> Worker:
        self._started += 1
        name = f"{kind}-{self._started}"
        worker = Worker(kind, self._nameserver, TOPIC, name, self._folder)
        self._stack.push_async_callback(worker.close)
        (self.producers if kind == "produce" else self.consumers).append(worker)
        await worker.start()
        return worker

    def acknowledged(self) -> set[str]:
        return {line for worker in self.producers for line in worker.lines() if line}

    def delivered(self) -> set[str]:
        return {handled.body for worker in self.consumers for handled in worker.handled()}

    async def flows(self) -> None:
        """Until a message that was acknowledged after this moment has been delivered."""
        before = self.acknowledged()
        await until(
            lambda: (self.acknowledged() - before) & self.delivered(), "messages flow again"
        )
        await asyncio.sleep(UNDER_LOAD_S)

    async def end_producers(self) -> None:
        for worker in self.producers:
            if not worker.has_ended:
                assert await worker.end() == 0, worker.said()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def cluster(tmp_path: Path, stack: AsyncExitStack) -> ClusterProcess:
    cluster = ClusterProcess(
        tmp_path, "--brokers", "2", "--broker-set", "sessions.timeout_min_ms=500"
    )
    stack.push_async_callback(cluster.close)
    return await cluster.start()


async def test_each_process_may_be_killed_under_load_and_what_was_acknowledged_is_delivered(
    tmp_path: Path, stack: AsyncExitStack, cluster: ClusterProcess
) -> None:
    load = Load(cluster.nameserver, tmp_path, stack)
    for kind in ("produce", "produce", "consume", "consume"):
        await load.start(kind)
    await load.flows()
    for name in ("broker-a", "etcd", "nameserver", "broker-b"):
        killed = cluster.kill(name)
        await asyncio.sleep(0.3)
        await cluster.wait_restarted(name, killed)
        await load.flows()
    for workers in (load.consumers, load.producers):
        victim: Process = workers[0]
        await victim.end(signal.SIGKILL)
        await load.start("consume" if workers is load.consumers else "produce")
        await load.flows()
    await load.end_producers()
    acknowledged = load.acknowledged()
    assert len(acknowledged) > 200
    await until(lambda: acknowledged <= load.delivered(), "all acknowledged are delivered")
    # What came beyond these was sent too, by somebody who did not live to hear of it or gave up.
    assert all(body.startswith("produce-") for body in load.delivered() - acknowledged)
    async with ClusterConnection(cluster.nameserver) as connection:
        groups = GroupAdmin(connection)

        async def committed_to_the_end() -> bool:
            return (await groups.describe(GROUP)).lag == 0

        await until(committed_to_the_end, "the group has committed everything")
    for worker in load.consumers[1:]:
        assert await worker.end() == 0, worker.said()
    for worker in (*load.producers, *load.consumers):
        assert "Traceback" not in worker.said(), worker.said()
    assert cluster.said().count("ended with signal SIGKILL; starting it again") == 4
    for log in (cluster.data / "logs").glob("*.log"):
        assert "Traceback" not in log.read_text(), log
    assert await cluster.end() == 0
