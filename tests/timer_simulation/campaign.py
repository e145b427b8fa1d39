"""The core of timers by the seed: one master after the other, over one log.

In odd seeds a log also loses what was confirmed, as index, windows and saved progress may know more
than the log by then: of what is left, everything comes once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from tests.support.seed_campaign import SeedCampaign
from tests.support.timer_scene import LosesEntries, LosesRolls, RepeatsMoves, TimerScene

STEPS = 200
MUTANTS: dict[str, Callable[[], type[TimerScene]]] = {
    "lost-roll": lambda: LosesRolls,
    "repeated-move": lambda: RepeatsMoves,
    "lost-entry": lambda: LosesEntries,
}


@dataclass(slots=True)
class Figures:
    """What happened in one run, or in many."""

    runs: int = 0
    falls: int = 0
    waited: int = 0
    came: int = 0
    recalled: int = 0
    set_aside: int = 0

    def add(self, other: Figures) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.falls} crashes and fail-overs, "
            f"{self.waited} messages waited, {self.came} came, "
            f"{self.recalled} had a recall, {self.set_aside} were set aside"
        )


def run_seed(
    seed: int,
    *,
    variant: type[TimerScene] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Figures:
    """Raises Broken: a promise was."""
    scene = (variant or TimerScene)(seed, loses_confirmed=seed % 2 == 1, trace=trace)
    scene.run(STEPS)
    return Figures(
        runs=1,
        falls=scene.falls,
        waited=len(scene.acknowledged),
        came=len(scene.seen),
        recalled=len(scene.recalled.keys() & scene.acknowledged.keys()),
        set_aside=len(scene.set_aside),
    )


CAMPAIGN = SeedCampaign(
    package="tests.timer_simulation",
    run_seed=run_seed,
    figures=Figures,
    true_variant=lambda: TimerScene,
    mutants=MUTANTS,
    trace_title="what happened (milliseconds of the clock)",
)
