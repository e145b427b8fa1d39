"""The power cuts, by seed and exhaustively."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.campaign import Campaign
from tests.simulation.power_cuts.driver import Variant
from tests.simulation.power_cuts.exhaustive import SCRIPTS, run_exhaustively
from tests.simulation.power_cuts.machine import Figures
from tests.simulation.power_cuts.mutants import MUTANTS
from tests.simulation.power_cuts.scenario import run_seed


def _run_scripts(variant: Variant) -> Iterator[str]:
    for name in SCRIPTS:
        yield f"{name}: {run_exhaustively(name, variant)}"


CAMPAIGN = Campaign(
    world="power_cuts",
    run_seed=run_seed,
    figures=Figures,
    true_variant=Variant,
    mutants=MUTANTS,
    trace_title="what happened (numbered lines are operations of the disk)",
    exhaustive=_run_scripts,
)
