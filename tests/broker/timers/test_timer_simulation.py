"""The core of timers under crashes, fail-overs with a lost tail, full disks and steps of the clock:
never early, never lost, never twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.support.timer_scene import (
    Broken,
    LosesEntries,
    LosesRolls,
    RepeatsMoves,
    TimerScene,
)

SEEDS = 100
STEPS = 200


def run_all(make: Callable[[int], TimerScene], seeds: range) -> None:
    for seed in seeds:
        try:
            make(seed).run(STEPS)
        except Broken as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken


def test_every_message_comes_once_and_not_before_its_time() -> None:
    run_all(TimerScene, range(SEEDS))


def test_of_a_log_that_lost_more_than_it_may_everything_left_comes_once() -> None:
    """Index, windows and saved progress may know more than the log by then."""
    run_all(partial(TimerScene, loses_confirmed=True), range(SEEDS))


@pytest.mark.parametrize(
    ("mutant", "told"),
    [(LosesRolls, "is lost"), (RepeatsMoves, "came twice"), (LosesEntries, "came twice")],
    ids=["a lost roll", "a repeated move", "an entry left out"],
)
def test_a_core_that_is_broken_on_purpose_is_noticed(mutant: type[TimerScene], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        run_all(mutant, range(SEEDS))
