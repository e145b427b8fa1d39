"""What replication promises holds in five thousand clusters with faults; broken ones are caught.

`python -m tests.cluster_simulation` runs more of them.
"""

from __future__ import annotations

import os

import pytest

from tests.cluster_simulation.campaign import (
    describe_failure,
    run_in_processes,
    run_seeds,
    variant_of,
)
from tests.cluster_simulation.mutants import MUTANTS
from tests.cluster_simulation.scenario import run_seed

FIRST_SEEDS = 300
"""A few seconds' worth, and enough for errors that no other quick test sees."""
SEEDS = 5_000
MUTANT_SEEDS_MAX = 2_000


def test_no_promise_is_broken_in_the_first_seeds() -> None:
    for seed in run_seeds(range(FIRST_SEEDS), failures_max=1).failures:
        pytest.fail(describe_failure(seed), pytrace=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_promise_is_broken_in_five_thousand_clusters() -> None:
    jobs = os.cpu_count() or 1
    seen = 0
    for result in run_in_processes(range(FIRST_SEEDS, SEEDS), "", jobs=jobs):
        for seed in result.failures:
            pytest.fail(describe_failure(seed), pytrace=False)
        seen += result.figures.runs
    assert seen == SEEDS - FIRST_SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_cluster_that_is_broken_on_purpose_is_caught(mutant: str) -> None:
    result = run_seeds(range(MUTANT_SEEDS_MAX), mutant, failures_max=1)
    (seed,) = result.failures
    run_seed(seed, variant=variant_of(""))  # it is the mutation that was caught


def test_a_seed_gives_the_same_run_every_time() -> None:
    first: list[str] = []
    second: list[str] = []
    for trace in (first, second):
        run_seed(9, trace=trace.append)
    assert first == second
    assert any("elected" in line for line in first)


def test_a_failing_seed_is_told_with_all_that_repeats_it() -> None:
    mutant = "reads-unconfirmed"
    (seed,) = run_seeds(range(20), mutant, failures_max=1).failures
    told = describe_failure(seed, mutant)
    assert f"python -m tests.cluster_simulation --seed {seed} --trace --mutant {mutant}" in told
    assert "Violation: I5" in told
    assert "elected" in told
