"""Sending back under crashes, fail-overs with a lost tail, power cuts, full disks, lost answers and
dying members: never lost, never twice, attempts never back.

`make send-back-simulation` runs 100,000 seeds.
"""

from __future__ import annotations

import pytest

from tests.send_back_simulation.campaign import CAMPAIGN, run_seed
from tests.support.send_back_scene import Broken

pytestmark = pytest.mark.timeout(600)
"""They take processor time alone, of which a busy machine has little."""

SEEDS = 300


def pass_all(seeds: range) -> None:
    for seed in CAMPAIGN.run_seeds(seeds, failures_max=1).failures:
        pytest.fail(CAMPAIGN.describe_failure(seed), pytrace=False)


@pytest.mark.thorough
def test_a_failed_message_comes_again_once_and_ends_as_one_dead_letter() -> None:
    pass_all(range(0, SEEDS, 2))


@pytest.mark.thorough
def test_so_it_is_when_power_cuts_take_what_was_not_flushed() -> None:
    pass_all(range(1, SEEDS, 2))


@pytest.mark.parametrize(
    ("mutant", "told"),
    [
        ("attempt-not-journalled", "is lost|came again|two copies"),
        ("repeated-copy", "two copies"),
    ],
)
def test_a_core_that_is_broken_on_purpose_is_noticed(mutant: str, told: str) -> None:
    seed = CAMPAIGN.first_caught(mutant, range(SEEDS))
    with pytest.raises(Broken, match=told):
        run_seed(seed, variant=CAMPAIGN.variant_of(mutant))
