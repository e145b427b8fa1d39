"""Messages that are sent back, by the seed: one master after the other, over one log.

In odd seeds power cuts take what was not flushed, confirmed or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields

from tests.support.seed_campaign import SeedCampaign
from tests.support.send_back_scene import (
    JournalsNoAttempt,
    LooksForNoCopy,
    SendBackScene,
)

STEPS = 120
MUTANTS: dict[str, Callable[[], type[SendBackScene]]] = {
    "attempt-not-journalled": lambda: JournalsNoAttempt,
    "repeated-copy": lambda: LooksForNoCopy,
}


@dataclass(slots=True)
class Figures:
    """What happened in one run, or in many."""

    runs: int = 0
    falls: int = 0
    messages: int = 0
    copies: int = 0
    dead: int = 0

    def add(self, other: Figures) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

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
    """Raises Broken: a promise was."""
    scene = (variant or SendBackScene)(seed, cuts_power=seed % 2 == 1, trace=trace)
    asyncio.run(scene.run(STEPS))
    return Figures(
        runs=1,
        falls=scene.falls,
        messages=len(scene.failures_of),
        copies=scene.copies,
        dead=scene.dead,
    )


CAMPAIGN = SeedCampaign(
    package="tests.send_back_simulation",
    run_seed=run_seed,
    figures=Figures,
    true_variant=lambda: SendBackScene,
    mutants=MUTANTS,
    trace_title="what happened",
)
