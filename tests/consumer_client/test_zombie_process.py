"""A real process that is stopped (SIGSTOP) beyond its session and wakes up again."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee.consumer_client import ConsumerConfig, PushConsumer, ReceivedMessage
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until

MEMBER = Path(__file__).with_name("zombie_member.py")


@pytest.mark.slow
async def test_a_process_that_was_stopped_does_nothing_more_when_it_wakes_up(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, [b"x"] * 900)
    heir_calls: list[tuple[int, float]] = []

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        heir_calls.append((messages[0].queue_offset, time.monotonic()))

    process = await asyncio.create_subprocess_exec(
        sys.executable, str(MEMBER), cluster.address, "a-zombie", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    calls: list[tuple[int, float]] = []

    async def follow(stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            offset, time_s = line.split()
            calls.append((int(offset), float(time_s)))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(process.stdout))
        await until(lambda: len(calls) > 20)
        heir = PushConsumer(
            "g",
            listener,
            run_in_thread=False,
            nameservers=cluster.address,
            client_id="b-heir",
            config=quick,
        )
        async with heir.subscribe("single"):
            process.send_signal(signal.SIGSTOP)
            await until(lambda: heir_calls and heir_calls[-1][0] == 899)
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(1.0)
        process.terminate()
        await process.wait()
    # It had a full process queue when it woke up, and touched none of it.
    assert max(time_s for _, time_s in calls) < heir_calls[0][1]
    assert {offset for offset, _ in calls} | {offset for offset, _ in heir_calls} == set(range(900))
    assert await cluster.committed("g") == {("single", 0): 900}
