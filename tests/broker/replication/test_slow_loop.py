"""A master whose machine has no time for it leaves its group to a replica that has."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.replication.slow_loop import LATE_S, SLOW_SHARE, WELL_SHARE, WINDOW_S
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.loop_delay import LoopDelay
from tests.support.etcd import running_etcd
from tests.support.replica_group import Replica, replica_group
from tests.support.waiting import until

STOPPED_S, RUNNING_S = 0.6, 0.15
"""Far below the lease, and far above what a busy machine does to the others."""
SETTINGS: dict[str, Any] = {"lease_ms": 5_000, "slow_handover_interval_ms": 1}


def late_by(seconds: float, times: int, every_s: float) -> float:
    clock = ManualClock()
    delay = LoopDelay(clock, busy_s=lambda: 0.0)
    told: list[None] = []
    delay.on_late(LATE_S, lambda: told.append(None))
    for _ in range(times):
        clock.advance_ms(round(every_s * 1_000))
        delay.take(clock.monotonic_s(), seconds)
    assert len(told) == (times if seconds >= LATE_S else 0)
    return delay.late_share(LATE_S, WINDOW_S)


def test_a_loop_that_works_all_the_time_is_not_slow_and_one_that_gets_half_of_it_is() -> None:
    assert late_by(0.1, 100, every_s=0.2) == 0
    assert late_by(0.5, 20, every_s=1.0) >= 0.45 > SLOW_SHARE
    # A single pause, as of a collection or a snapshot, is not what makes it slow.
    assert late_by(1.0, 1, every_s=1.0) < SLOW_SHARE
    assert WELL_SHARE < SLOW_SHARE


async def starve(replica: Replica, until_is: Callable[[], bool]) -> None:
    """Most of the time it does not run, as on a machine with too much to do."""
    while not until_is():
        replica.signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED_S)
        replica.signal(signal.SIGCONT)
        await asyncio.sleep(RUNNING_S)


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_master_that_is_starved_hands_over_to_a_replica_that_is_not(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        async with replica_group(tmp_path, etcd.endpoint, (0, 1), **SETTINGS) as group:
            await group.in_sync(0, 1)
            await group.create_topic("orders")
            master = await group.master()
            await group.send_until_stored("orders", b"before")
            slow = group.replicas[master]
            is_over = False
            starving = asyncio.create_task(starve(slow, lambda: is_over))
            try:
                assert await group.master(not_id=master, timeout_s=90) == 1 - master
            finally:
                is_over = True
                await starving
            assert "the event loop runs late" in slow.log
            assert f"resigned epoch=1 successor={1 - master}" in slow.log, "in order, by itself"
            await until(lambda: "handed over because the event loop runs late" in slow.log)
            await group.send_until_stored("orders", b"after")
            await group.in_sync(0, 1)
            assert await group.pull_all(1 - master, "orders") == [b"before", b"after"]
