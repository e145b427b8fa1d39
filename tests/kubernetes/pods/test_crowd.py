"""What a test allows for on a crowded machine is what others take from it, and nothing else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from tests.kubernetes.pods.crowd import Crowd, open_crowd

SAMPLES = 4
OTHERS = 7
LONGER = 3
"""Not eight times: Linux prefers who has slept to those who have worked all the time."""
BUSY = "print(flush=True)\nwhile True: pass"


async def factor(crowd: Crowd) -> float:
    """Of some samples that begin from now on."""
    began_s = time.monotonic()
    before = len(crowd.samples)
    while len(crowd.samples) < before + SAMPLES:
        await asyncio.sleep(0.05)
    return crowd.factor(began_s)


@pytest.mark.kubernetes
async def test_work_on_a_core_that_others_want_takes_that_much_longer() -> None:
    core = min(os.sched_getaffinity(0))
    async with open_crowd() as crowd:
        os.sched_setaffinity(crowd.process_id, {core})
        assert await factor(crowd) >= 1
        with ExitStack() as others:
            for _ in range(OTHERS):
                other = others.enter_context(
                    subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
                )
                others.callback(other.kill)
                os.sched_setaffinity(other.pid, {core})
                assert other.stdout is not None
                await asyncio.to_thread(other.stdout.readline)
            assert await factor(crowd) > LONGER


async def test_a_crowd_is_of_the_time_that_is_asked_for() -> None:
    crowd = Crowd()
    assert crowd.factor(0.0) == 1
    crowd.samples.extend([(1.0, 9.0), (2.0, 3.0), (3.0, 2.0)])
    assert crowd.factor(0.0) == pytest.approx(14 / 3)
    assert crowd.factor(1.5) == pytest.approx(2.5)
    assert crowd.factor(4.0) == 2
