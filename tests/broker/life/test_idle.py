"""A broker with nothing to do sleeps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.etcd import running_etcd
from tests.support.loop_wakes import loop_wakes
from tests.support.replica_group import Replica, replica_group

WAKES_PER_S_MAX = 5
WINDOW_S = 3.0
WINDOWS_MAX = 8
HEARTBEAT_S = 0.5
WAKES_PER_BEAT_MAX = 3
"""Of each side: one is said and answered."""


async def test_an_idle_brokers_loop_wakes_fewer_than_five_times_a_second(
    start_broker: Any,
) -> None:
    await start_broker()
    with loop_wakes() as wakes:
        for _ in range(WINDOWS_MAX):  # the first tables are written meanwhile, and a checkpoint
            wakes.count = 0
            await asyncio.sleep(WINDOW_S)
            if wakes.count < WAKES_PER_S_MAX * WINDOW_S:
                return
    raise AssertionError(f"{wakes.count} times in {WINDOW_S} s")


@pytest.mark.thorough
async def test_an_idle_master_and_its_slave_wake_for_their_heartbeats_besides(
    tmp_path: Path,
) -> None:
    times_max = WINDOW_S * (WAKES_PER_S_MAX + WAKES_PER_BEAT_MAX / HEARTBEAT_S)
    with running_etcd(tmp_path) as etcd:
        async with replica_group(
            tmp_path,
            etcd.endpoint,
            (0, 1),
            heartbeat_interval_ms=round(HEARTBEAT_S * 1_000),
            in_sync_lag_max_ms=2_000,
            lease_ms=10_000,
        ) as group:
            await group.in_sync(0, 1)
            for _ in range(WINDOWS_MAX):
                before = [_wakes(each) for each in group.replicas.values()]
                await asyncio.sleep(WINDOW_S)
                after = [_wakes(each) for each in group.replicas.values()]
                times = [now - earlier for now, earlier in zip(after, before, strict=True)]
                if max(times) < times_max:
                    return
    raise AssertionError(f"{times} times in {WINDOW_S} s")


def _wakes(replica: Replica) -> int:
    """How often the thread of the process's loop has waited for something."""
    assert replica.process is not None
    status = Path(f"/proc/{replica.process.pid}/status").read_text()
    return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])
