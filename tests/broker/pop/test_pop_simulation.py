"""The core of POP under crashes, fail-overs with a lost tail, full disks and steps of the clock.

What was acknowledged never comes again, and everything else does, in order where order counts.

`make pop-simulation` runs 100,000 seeds.
"""

from __future__ import annotations

import pytest

from tests.pop_simulation.campaign import CAMPAIGN, run_seed
from tests.support.journal_scene import Broken

pytestmark = pytest.mark.timeout(600)
"""They take processor time alone, of which a busy machine has little."""

SEEDS = 200


def pass_all(seeds: range) -> None:
    for seed in CAMPAIGN.run_seeds(seeds, failures_max=1).failures:
        pytest.fail(CAMPAIGN.describe_failure(seed), pytrace=False)


def test_what_is_told_stays_true_and_everything_else_comes_again() -> None:
    pass_all(range(0, SEEDS, 2))


def test_of_a_log_that_lost_more_than_it_may_everything_left_comes() -> None:
    pass_all(range(1, SEEDS, 2))


@pytest.mark.parametrize(
    ("mutant", "told"),
    [
        ("lost-acknowledgement", "acknowledged"),
        ("lost-attempt", "do not rise"),
        ("told-at-once", "do not rise"),
        ("others-pass", "message group"),
        ("stale-handle", "with a stale handle"),
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
