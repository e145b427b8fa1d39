"""What a power cut leaves is what was promised: by seed, and for short lives cut everywhere.

`make power-cuts` runs 100,000 seeds.
"""

from __future__ import annotations

import pytest

from tests.power_cuts.campaign import CAMPAIGN
from tests.power_cuts.driver import Variant
from tests.power_cuts.exhaustive import SCRIPTS, run_exhaustively
from tests.power_cuts.scenario import run_seed

pytestmark = pytest.mark.timeout(600)
"""They need only processor time, of which a busy machine has little."""

SEEDS = 300
"""A few seconds' worth, and enough for errors that no other quick test finds."""


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
