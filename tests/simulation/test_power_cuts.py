"""What a power cut leaves is what was promised: by seed, and for short lives cut everywhere. Each
store that is broken on purpose is caught.

`make power-cuts` runs 100,000 seeds.
"""

from __future__ import annotations

import pytest

from tests.simulation.power_cuts.campaign import CAMPAIGN
from tests.simulation.power_cuts.driver import Variant
from tests.simulation.power_cuts.exhaustive import SCRIPTS, run_exhaustively
from tests.simulation.power_cuts.mutants import MUTANTS
from tests.simulation.power_cuts.scenario import run_seed

pytestmark = pytest.mark.timeout(600)
"""They need only processor time, of which a busy machine has little."""

SEEDS = 300
"""A few seconds' worth, and enough for errors that no other quick test finds."""
MUTANT_SEEDS_MAX = 400


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(SEEDS // 10, id="tens"),
        pytest.param(SEEDS, id="hundreds", marks=pytest.mark.thorough),
    ],
)
def test_no_promise_is_broken_wherever_the_power_is_cut(count: int) -> None:
    for seed in CAMPAIGN.run_seeds(range(count), failures_max=1).failures:
        pytest.fail(CAMPAIGN.describe_failure(seed), pytrace=False)


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_store_that_is_broken_on_purpose_is_caught(mutant: str) -> None:
    CAMPAIGN.first_caught(mutant, range(MUTANT_SEEDS_MAX))


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_no_operation_of_a_short_life_is_a_bad_last_one(script: str) -> None:
    assert run_exhaustively(script, Variant()).power_cuts > 100


def test_a_seed_gives_the_same_run_every_time() -> None:
    first: list[str] = []
    second: list[str] = []
    for trace in (first, second):
        run_seed(4, trace=trace.append)
    assert first == second
    assert any("power failure" in line for line in first)


def test_a_failing_seed_is_told_with_all_that_repeats_it() -> None:
    mutant = "unsynced-group-commit"
    seed = CAMPAIGN.first_caught(mutant, range(MUTANT_SEEDS_MAX))
    told = CAMPAIGN.describe_failure(seed, mutant, lines_max=10_000)
    assert f"python -m tests.simulation power_cuts --seed {seed} --trace --mutant {mutant}" in told
    assert "power failure: " in told
    assert "Violation: " in told
    assert "appended " in told
