"""The core of timers by the seed: one master after the other, over one log.

In odd seeds a log also loses what was confirmed, as index, windows and saved progress may know more
than the log by then: of what is left, everything comes once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation import campaign
from tests.simulation.timers.mutants import MUTANTS
from tests.simulation.timers.scene import TimerScene

STEPS = 200


@dataclass(slots=True)
class Figures(campaign.Figures):
    falls: int = 0
    waited: int = 0
    came: int = 0
    recalled: int = 0
    set_aside: int = 0

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
    """Raises Violation."""
    scene = (variant or TimerScene)(seed, loses_confirmed=seed % 2 == 1, trace=trace)
    scene.run(STEPS)
    return Figures(
        runs=1,
        falls=scene.falls,
        waited=len(scene.acknowledged),
        came=len(scene.came),
        recalled=len(scene.recalled.keys() & scene.acknowledged.keys()),
        set_aside=len(scene.set_aside),
    )


CAMPAIGN = campaign.Campaign(
    world="timers",
    run_seed=run_seed,
    figures=Figures,
    true_variant=lambda: TimerScene,
    mutants=MUTANTS,
    trace_title="what happened (milliseconds of the clock)",
)
