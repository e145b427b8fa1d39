"""The cluster simulation, by seed."""

from __future__ import annotations

from tests.cluster_simulation.checks import Figures
from tests.cluster_simulation.mutants import MUTANTS
from tests.cluster_simulation.scenario import run_seed
from tests.cluster_simulation.variant import Variant
from tests.support.seed_campaign import SeedCampaign

CAMPAIGN = SeedCampaign(
    package="tests.cluster_simulation",
    run_seed=run_seed,
    figures=Figures,
    true_variant=Variant,
    mutants=MUTANTS,
    trace_title="what happened (virtual seconds)",
)
