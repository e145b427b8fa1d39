"""The core of timers under crashes, fail-overs with a lost tail, full disks and steps of the clock:
never early, never lost, never twice.

`make timer-simulation` runs 100,000 seeds.
"""

from __future__ import annotations

import pytest

from tests.support.journal_scene import Broken
from tests.timer_simulation.campaign import CAMPAIGN, run_seed

pytestmark = pytest.mark.timeout(600)
"""They take processor time alone, of which a busy machine has little."""

SEEDS = 200


def pass_all(seeds: range) -> None:
    for seed in CAMPAIGN.run_seeds(seeds, failures_max=1).failures:
        pytest.fail(CAMPAIGN.describe_failure(seed), pytrace=False)


@pytest.mark.thorough
def test_every_message_comes_once_and_not_before_its_time() -> None:
    pass_all(range(0, SEEDS, 2))


@pytest.mark.thorough
def test_of_a_log_that_lost_more_than_it_may_everything_left_comes_once() -> None:
    pass_all(range(1, SEEDS, 2))


@pytest.mark.parametrize(
    ("mutant", "told"),
    [
        ("lost-roll", "is lost"),
        ("repeated-move", "came twice"),
        ("lost-entry", "came twice"),
    ],
)
def test_a_core_that_is_broken_on_purpose_is_noticed(mutant: str, told: str) -> None:
    seed = CAMPAIGN.first_caught(mutant, range(SEEDS))
    with pytest.raises(Broken, match=told):
        run_seed(seed, variant=CAMPAIGN.variant_of(mutant))


def test_a_seed_gives_the_same_run_every_time() -> None:
    first: list[str] = []
    second: list[str] = []
    for trace in (first, second):
        run_seed(4, trace=trace.append)
    assert first == second
    assert any("falls over" in line for line in first)
