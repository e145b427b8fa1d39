"""The simulation can fail: each deliberately broken store is caught, the correct one is not."""

from __future__ import annotations

import pytest

from tests.power_cuts.campaign import CAMPAIGN
from tests.power_cuts.mutants import MUTANTS

SEEDS_MAX = 400


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_store_that_is_broken_on_purpose_is_caught(mutant: str) -> None:
    CAMPAIGN.first_caught(mutant, range(SEEDS_MAX))


def test_a_failing_seed_is_told_with_all_that_repeats_it() -> None:
    mutant = "unsynced-group-commit"
    seed = CAMPAIGN.first_caught(mutant, range(SEEDS_MAX))
    told = CAMPAIGN.describe_failure(seed, mutant, lines_max=10_000)
    assert f"python -m tests.power_cuts --seed {seed} --trace --mutant {mutant}" in told
    assert "power failure: " in told
    assert "Violation: " in told
    assert "appended " in told
