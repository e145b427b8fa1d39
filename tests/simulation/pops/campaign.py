"""The core of POP by the seed: one master after the other, over one log.

In odd seeds a log also loses what was confirmed. Nothing is promised of what is lost; of what is
left, everything comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation import campaign
from tests.simulation.pops.mutants import MUTANTS
from tests.simulation.pops.scene import PopScene

STEPS = 200


@dataclass(slots=True)
class Figures(campaign.Figures):
    falls: int = 0
    messages: int = 0
    deliveries: int = 0
    acknowledged: int = 0
    replaced: int = 0
    refused: int = 0

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.falls} crashes and fail-overs, {self.messages} messages, "
            f"{self.deliveries} deliveries, {self.acknowledged} acknowledged, {self.refused} "
            f"refused, {self.replaced} copies"
        )


def run_seed(
    seed: int,
    *,
    variant: type[PopScene] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Figures:
    """Raises Violation."""
    scene = (variant or PopScene)(seed, loses_confirmed=seed % 2 == 1, trace=trace)
    scene.run(STEPS)
    return Figures(
        runs=1,
        falls=scene.falls,
        messages=len(scene.messages()),
        deliveries=scene.deliveries,
        acknowledged=scene.acknowledged,
        replaced=len(scene.all_replaced()),
        refused=scene.refused,
    )


CAMPAIGN = campaign.Campaign(
    world="pops",
    run_seed=run_seed,
    figures=Figures,
    true_variant=lambda: PopScene,
    mutants=MUTANTS,
    trace_title="what happened (milliseconds of the clock)",
)
