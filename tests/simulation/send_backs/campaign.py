"""Messages that are sent back, by the seed: one master after the other, over one log.

In odd seeds power cuts take what was not flushed, confirmed or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation import campaign
from tests.simulation.send_backs.mutants import MUTANTS
from tests.simulation.send_backs.scene import SendBackScene

STEPS = 120


@dataclass(slots=True)
class Figures(campaign.Figures):
    falls: int = 0
    messages: int = 0
    copies: int = 0
    dead: int = 0

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.falls} crashes and fail-overs, {self.messages} messages, "
            f"{self.copies} copies of those that failed, {self.dead} of them dead letters"
        )


def run_seed(
    seed: int,
    *,
    variant: type[SendBackScene] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Figures:
    """Raises Violation."""
    scene = (variant or SendBackScene)(seed, cuts_power=seed % 2 == 1, trace=trace)
    asyncio.run(scene.run(STEPS))
    return Figures(
        runs=1,
        falls=scene.falls,
        messages=len(scene.failures_of),
        copies=scene.copies,
        dead=scene.dead,
    )


CAMPAIGN = campaign.Campaign(
    world="send_backs",
    run_seed=run_seed,
    figures=Figures,
    true_variant=lambda: SendBackScene,
    mutants=MUTANTS,
    trace_title="what happened",
)
