"""The power cuts, by seed."""

from __future__ import annotations

from tests.power_cuts.driver import Variant
from tests.power_cuts.machine import Figures
from tests.power_cuts.mutants import MUTANTS
from tests.power_cuts.scenario import run_seed
from tests.support.seed_campaign import SeedCampaign

CAMPAIGN = SeedCampaign(
    package="tests.power_cuts",
    run_seed=run_seed,
    figures=Figures,
    true_variant=Variant,
    mutants=MUTANTS,
    trace_title="what happened (numbered lines are operations of the disk)",
)
