"""What a power cut leaves is what was promised: two thousand seeds, and short lives cut everywhere.

`python -m tests.power_cuts` runs more of them.
"""

from __future__ import annotations

import pytest

from tests.power_cuts.campaign import CAMPAIGN
from tests.power_cuts.driver import Variant
from tests.power_cuts.exhaustive import SCRIPTS, run_exhaustively
from tests.power_cuts.scenario import run_seed

FIRST_SEEDS = 300
"""A few seconds' worth, and enough for errors that no other quick test sees."""
SEEDS = 2_000
_SEEDS_PER_TEST = 250


def _pass(seeds: range) -> None:
    for seed in CAMPAIGN.run_seeds(seeds, failures_max=1).failures:
        pytest.fail(CAMPAIGN.describe_failure(seed), pytrace=False)


def test_no_promise_is_broken_in_the_first_seeds() -> None:
    _pass(range(FIRST_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST_SEEDS, SEEDS, _SEEDS_PER_TEST))
def test_no_promise_is_broken_wherever_the_power_is_cut(first: int) -> None:
    _pass(range(first, min(first + _SEEDS_PER_TEST, SEEDS)))


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
