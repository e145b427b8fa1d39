"""Processes that stand still and go on: SIGSTOP, longer than their leases, then SIGCONT."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from aerobee.client_core import ClusterConnection, GroupAdmin
from aerobee.v1 import common_pb2
from tests.faults.clusters import ClusterProcess
from tests.faults.serving import Client
from tests.faults.workers import GROUP, SESSION_TIMEOUT_MS, Handled, Worker
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TOPIC = "events"
GroupQueue = tuple[str, int]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def cluster(tmp_path: Path, stack: AsyncExitStack) -> ClusterProcess:
    cluster = ClusterProcess(tmp_path, "--broker-set", "sessions.timeout_min_ms=500")
    stack.push_async_callback(cluster.close)
    return await cluster.start()


class Group:
    """A producer and members of one group under the same roof, over one broker."""

    def __init__(self, cluster: ClusterProcess, folder: Path, stack: AsyncExitStack) -> None:
        self._cluster = cluster
        self._folder = folder
        self._stack = stack
        self.members: list[Worker] = []

    async def start(self, kind: str, name: str) -> Worker:
        worker = Worker(kind, self._cluster.nameserver, TOPIC, name, self._folder)
        self._stack.push_async_callback(worker.close)
        if kind == "consume":
            self.members.append(worker)
        await worker.start()
        return worker

    def handled(self) -> list[Handled]:
        """Of all members, in the order of time."""
        return sorted(
            (handled for member in self.members for handled in member.handled()),
            key=lambda handled: handled.began_s,
        )

    def delivered(self) -> set[str]:
        return {handled.body for handled in self.handled()}

    def queues_of(self, member: Worker, since_s: float = 0.0) -> set[GroupQueue]:
        return {
            (handled.broker, handled.queue_id)
            for handled in member.handled()
            if handled.began_s >= since_s
        }

    def first_s(self, member: Worker, queue: GroupQueue, since_s: float) -> float:
        """When a member began with the first message of a queue after a moment."""
        return min(
            each.began_s
            for each in member.handled()
            if (each.broker, each.queue_id) == queue and each.began_s > since_s
        )

    def holders(self, queue: GroupQueue, since_s: float) -> list[str]:
        """The members that had a queue one after the other."""
        return [
            name
            for name, _ in itertools.groupby(
                each.member
                for each in self.handled()
                if (each.broker, each.queue_id) == queue and each.began_s > since_s
            )
        ]

    async def leases(self) -> dict[GroupQueue, tuple[str, int]]:
        """Holder and epoch by queue."""
        async with ClusterConnection(self._cluster.nameserver) as connection:
            state = await GroupAdmin(connection).describe(GROUP)
        return {
            (each.queue.broker_name, each.queue.queue_id): (each.lease_holder, each.lease_epoch)
            for each in state.queues
            if each.lease_holder
        }

    async def committed(self) -> dict[GroupQueue, int]:
        async with ClusterConnection(self._cluster.nameserver) as connection:
            state = await GroupAdmin(connection).describe(GROUP)
        return {
            (each.queue.broker_name, each.queue.queue_id): each.committed_offset
            for each in state.queues
            if each.committed_offset is not None
        }

    async def lag(self) -> int | None:
        async with ClusterConnection(self._cluster.nameserver) as connection:
            return (await GroupAdmin(connection).describe(GROUP)).lag


@pytest.mark.thorough
async def test_a_member_that_stood_still_beyond_its_lease_has_lost_its_queues_and_knows_it(
    tmp_path: Path, stack: AsyncExitStack, cluster: ClusterProcess
) -> None:
    group = Group(cluster, tmp_path, stack)
    producer = await group.start("produce", "producer")
    await until(producer.lines, "messages")
    sleeper = await group.start("consume", "a-sleeper")
    heir = await group.start("consume", "b-heir")
    await until(
        lambda: len(group.queues_of(sleeper)) >= 2 and len(group.queues_of(heir)) >= 2,
        "both have queues",
    )
    await asyncio.sleep(0.5)
    leases = await group.leases()
    stolen = {key: epoch for key, (holder, epoch) in leases.items() if holder == "a-sleeper"}
    assert len(stolen) == 2, leases
    before = await group.committed()
    sleeper.send_signal(signal.SIGSTOP)
    stopped_s = time.monotonic()
    await until(
        lambda: group.queues_of(heir, since_s=stopped_s) >= set(stolen), "the heir has them"
    )
    # Not before the lease was over.
    first_s = min(group.first_s(heir, key, since_s=stopped_s) for key in stolen)
    margin_s = 0.5  # a heartbeat may be as old when it stops
    assert first_s - stopped_s > SESSION_TIMEOUT_MS / 1_000 - margin_s
    # The commit that the sleeper would make: under its old epochs, moving the group back.
    async with Client(cluster.addresses()["broker-a"]) as client:
        for (_, queue_id), epoch in stolen.items():
            late = await client.commit(GROUP, TOPIC, queue_id, 0, epoch=epoch, member="a-sleeper")
            assert late.code == common_pb2.LEASE_EXPIRED, late
            assert "acquire the queue again" in late.message
    sleeper.send_signal(signal.SIGCONT)
    resumed_s = time.monotonic()
    # It comes back as a member like any other and gets queues again, under new epochs.
    await until(lambda: len(group.queues_of(sleeper, since_s=resumed_s)) >= 2, "it works again")
    leases = await group.leases()
    for key, epoch in stolen.items():
        assert leases[key][1] > epoch
    await asyncio.sleep(0.5)
    assert await producer.end() == 0, producer.said()
    acknowledged = {line for line in producer.lines() if line}
    await until(lambda: acknowledged <= group.delivered(), "everything is delivered")

    async def is_committed() -> bool:
        return await group.lag() == 0

    await until(is_committed, "everything is committed")
    after = await group.committed()
    assert all(after[key] >= before[key] for key in before)
    # One holder at a time: each queue went from the sleeper to the heir and back, once.
    for key in stolen:
        holders = group.holders(key, since_s=stopped_s - 0.2)
        assert holders in (["a-sleeper", "b-heir", "a-sleeper"], ["a-sleeper", "b-heir"]), holders
    for member in group.members:
        assert await member.end() == 0, member.said()
        assert "Traceback" not in member.said(), member.said()


def flows(group: Group, producer: Worker, before_it: set[str]) -> bool:
    """Whether something newer was acknowledged and delivered."""
    return bool((set(producer.lines()) - before_it) & group.delivered())


@pytest.mark.thorough
async def test_a_broker_that_stood_still_goes_on_and_nothing_acknowledged_is_lost(
    tmp_path: Path, stack: AsyncExitStack, cluster: ClusterProcess
) -> None:
    """Longer than the members' sessions and than its own registration."""
    group = Group(cluster, tmp_path, stack)
    producer = await group.start("produce", "producer")
    for name in ("m1", "m2"):
        await group.start("consume", name)
    await until(lambda: len({each.member for each in group.handled()}) == 2, "both work")
    pid = cluster.pids()["broker-a"]
    before = await group.leases()
    for _ in range(2):
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(4.0)
        acknowledged = set(producer.lines())
        await asyncio.sleep(0.3)
        assert set(producer.lines()) == acknowledged, "a broker that stands still acknowledged"
        os.kill(pid, signal.SIGCONT)
        before_it = set(producer.lines()) | group.delivered()
        await until(
            partial(flows, group, producer, before_it),
            "messages flow again",
        )
        await asyncio.sleep(0.5)
    assert cluster.pids()["broker-a"] == pid
    after = await group.leases()
    assert all(after[key][1] > before[key][1] for key in before), "new leases, new epochs"
    assert await producer.end() == 0, producer.said()
    acknowledged = {line for line in producer.lines() if line}
    await until(lambda: acknowledged <= group.delivered(), "everything is delivered")

    async def is_committed() -> bool:
        return await group.lag() == 0

    await until(is_committed, "everything is committed")
    for member in group.members:
        assert await member.end() == 0, member.said()
        assert "Traceback" not in member.said(), member.said()
