"""The cores of timers, of POP and of sending back, each without a broker: under crashes, fail-overs
with a lost tail, full disks and steps of the clock, and in odd seeds after losses of what was
confirmed, nothing is lost, doubled, early or overtaken.

`make timer-simulation`, `pop-simulation` and `send-back-simulation` run 100,000 seeds each.
"""

from __future__ import annotations

import pytest

from tests.simulation.campaign import campaign_of
from tests.simulation.judge import Violation

pytestmark = pytest.mark.timeout(600)
"""They take processor time alone, of which a busy machine has little."""

SEEDS = {"timers": 200, "pops": 200, "send_backs": 300}
BROKEN = [
    ("timers", "lost-roll", "is lost"),
    ("timers", "repeated-move", "came twice"),
    ("timers", "lost-entry", "came twice"),
    ("pops", "lost-acknowledgement", "came after it was finished"),
    ("pops", "lost-attempt", "do not rise"),
    ("pops", "told-at-once", "do not rise"),
    ("pops", "others-pass", "message group"),
    ("pops", "stale-handle", "by a stale handle"),
    ("send_backs", "attempt-not-journalled", "is lost|do not rise|came twice"),
    ("send_backs", "repeated-copy", "came twice"),
]
"""World, error, and what the judge says of it."""


def pass_all(world: str, first: int) -> None:
    campaign = campaign_of(world)
    for seed in campaign.run_seeds(range(first, SEEDS[world], 2), failures_max=1).failures:
        pytest.fail(campaign.describe_failure(seed), pytrace=False)


IN_EACH_WORLD = pytest.mark.parametrize(
    "world",
    [
        pytest.param("pops"),
        pytest.param("timers", marks=pytest.mark.thorough),
        pytest.param("send_backs", marks=pytest.mark.thorough),
    ],
)


@IN_EACH_WORLD
def test_what_is_told_stays_true_and_everything_else_comes_once(world: str) -> None:
    pass_all(world, 0)


@IN_EACH_WORLD
def test_of_a_log_that_lost_more_than_it_may_everything_left_comes(world: str) -> None:
    pass_all(world, 1)


@pytest.mark.parametrize(("world", "mutant", "told"), BROKEN)
def test_a_core_that_is_broken_on_purpose_is_noticed(world: str, mutant: str, told: str) -> None:
    campaign = campaign_of(world)
    seed = campaign.first_caught(mutant, range(SEEDS[world]))
    with pytest.raises(Violation, match=told):
        campaign.run_seed(seed, variant=campaign.variant_of(mutant))


@pytest.mark.parametrize("world", SEEDS)
def test_a_seed_gives_the_same_run_every_time(world: str) -> None:
    first: list[str] = []
    second: list[str] = []
    for trace in (first, second):
        campaign_of(world).run_seed(4, trace=trace.append)
    assert first == second
    assert any("falls over" in line for line in first)
