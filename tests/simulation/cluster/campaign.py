"""The cluster simulation, by seed."""

from __future__ import annotations

from tests.simulation.campaign import Campaign
from tests.simulation.cluster.checks import Figures
from tests.simulation.cluster.mutants import MUTANTS
from tests.simulation.cluster.scenario import run_seed
from tests.simulation.cluster.variant import Variant

CAMPAIGN = Campaign(
    world="cluster",
    run_seed=run_seed,
    figures=Figures,
    true_variant=Variant,
    mutants=MUTANTS,
    trace_title="what happened (virtual seconds)",
)
