"""A consumer whose process stands still for a while: SIGSTOP, a machine that sleeps, a debugger."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.committing import Committing, Holding
from aerobee.consumer_client.group_reads import GroupReads
from aerobee.consumer_client.owned_queue import Assignment, Unleased
from aerobee.consumer_client.pull_queue import PullQueue
from aerobee.runtime import errors
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until

MEMBER = Path(__file__).with_name("pausing_member.py")
QUEUE = MessageQueue("single", "broker-a", 0)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("session_timeout_ms", "may_raise"), [(8_000, set()), (1_000, {"LeaseExpired"})]
)
async def test_calls_ride_through_a_pause_and_only_a_lost_queue_is_told(
    cluster: RealCluster, session_timeout_ms: int, may_raise: set[str]
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(MEMBER),
        cluster.address,
        str(session_timeout_ms),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    got: list[int] = []
    raised: set[str] = set()

    async def follow(stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            what, value = line.decode().split()
            if what == "got":
                got.append(int(value))
            else:
                raised.add(value)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(process.stdout))
        for number in range(3):
            await cluster.send("single", 0, [b"x"])
            await until(lambda number=number: number in got)
            process.send_signal(signal.SIGSTOP)
            # Longer than what the calls may take; what is slept here is the fault.
            await asyncio.sleep(2.0)
            process.send_signal(signal.SIGCONT)
        await cluster.send("single", 0, [b"x"])
        await until(lambda: 3 in got)
        process.terminate()
        await process.wait()
    assert raised <= may_raise


class Trust(Unleased):
    """A lease that is good until the queue is dropped."""


async def test_a_queue_that_is_lost_during_its_commit_is_lost_whatever_became_of_the_call() -> None:
    """Woken up, a member first hears that its call took too long."""
    async with ClusterConnection("127.0.0.1:1") as connection:
        owned = PullQueue(
            Assignment(QUEUE, "*", 7, Trust()), 0, 1_000, counts_each=False, on_ready=lambda: None
        )

        class Store:
            async def commit(self, commits: object) -> dict[MessageQueue, errors.AerobeeError]:
                owned.drop()
                return {QUEUE: errors.DeadlineExceeded("127.0.0.1:1 did not answer in time")}

        committing = Committing(connection, Store(), group="g")  # type: ignore[arg-type]
        reads: GroupReads = object()  # type: ignore[assignment]
        owned.position = 5
        owned.settle()
        failed = await committing.commit([Holding(owned, reads, 0)], wait_ms=30_000)
    assert [type(error) for error in failed.values()] == [errors.LeaseExpired]
    assert "was lost before offset 5 could be committed" in str(failed[QUEUE])
