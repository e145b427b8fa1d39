"""A group is restarted replica by replica under load, as Kubernetes does it: drain, SIGTERM, start,
wait until it is ready, the next one. Nothing is lost, and nobody waits longer than for a hand-over.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from tests.failover.scenarios import planned_hand_over
from tests.failover.trial import Trial, open_trial

pytestmark = pytest.mark.slow

PAUSE_S_MAX = 1.0
"""Where a hand-over takes no time; here others run beside, and two of them are added. A replica
that went without handing over would cost its lease of two seconds, and a hand-over."""


async def drain(trial: Trial, broker_id: int) -> dict[str, object]:
    """As the program that a preStop hook runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aerobee.cli", "broker", "drain", "--json"),
        *("--broker", trial.world.address(broker_id)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    document: dict[str, object] = json.loads(output)
    return document


@pytest.mark.thorough
async def test_a_rolling_restart_with_drain_loses_nothing_and_pauses_no_longer_than_a_hand_over(
    tmp_path: Path,
) -> None:
    async with open_trial(tmp_path) as trial:
        world = trial.world
        async with trial.judged():
            pause_s_max = PAUSE_S_MAX + 2 * await planned_hand_over(trial)
            for broker_id in reversed(world.settings.replicas):
                was_master = await world.master() == broker_id
                began_s = time.monotonic()
                drained = await drain(trial, broker_id)
                assert drained["handedOver"] is was_master
                assert await world.brokers[broker_id].stop() == 0
                await trial.clients.acknowledged_after(time.monotonic())
                stopped_s = trial.stood_still(f"{broker_id} stopped", began_s)
                await world.brokers[broker_id].start()
                await world.ready(broker_id)
                await trial.clients.acknowledged_after(time.monotonic())
                pause_s = trial.stood_still(f"{broker_id} back", began_s)
                assert max(stopped_s, pause_s) < pause_s_max, trial.figures.pauses_s
        print(trial.figures, trial.figures.pauses_s)
        await trial.stopped_clean()
