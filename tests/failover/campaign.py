"""Fail-overs one after the other, of every kind, in one cluster whose clients never restart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.failover import scenarios
from tests.failover.trial import Figures, Trial, open_trial
from tests.failover.world import Settings

Scenario = Callable[[Trial], Awaitable[Any]]

FAIL_OVERS: tuple[Scenario, ...] = (
    scenarios.kill_master,
    scenarios.pause_master,
    scenarios.kill_master,
    scenarios.planned_hand_over,
    scenarios.kill_master,
    scenarios.part_master_from_all,
    scenarios.kill_master,
    scenarios.part_master_from_nameservers,
    scenarios.kill_master,
    scenarios.mute_master,
)
BETWEEN: tuple[Scenario, ...] = (
    scenarios.kill_slave,
    scenarios.slow_slave,
    scenarios.flapping_link,
    scenarios.deafen_master,
    scenarios.part_master_from_slaves,
    scenarios.restart_etcd,
    scenarios.kill_nameserver,
)
JUDGED_EVERY = 5
"""Rounds between two verdicts, each of which reads the whole log."""


async def run_campaign(
    root: Path,
    *,
    rounds: int,
    seed: int = 1,
    settings: Settings | None = None,
    kills_only: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Figures:
    """`rounds` fail-overs; one fault of another kind is chosen by lot before every third.

    Raises:
        AssertionError: a promise was broken, with the sentence that says which.
    """
    async with open_trial(root, settings, seed=seed) as trial:
        done = 0
        while done < rounds:
            async with trial.judged():
                for _ in range(min(JUDGED_EVERY, rounds - done)):
                    if not kills_only and trial.chance.random() < 1 / 3:
                        await trial.chance.choice(BETWEEN)(trial)
                        await trial.world.healthy()
                    kind = FAIL_OVERS[0] if kills_only else FAIL_OVERS[done % len(FAIL_OVERS)]
                    await kind(trial)
                    await trial.world.healthy()
                    done += 1
            say(f"{done} of {rounds}: {trial.figures}")
        await trial.stopped_clean()
        return trial.figures
