"""`aerobee up --brokers auto`: how many broker groups a machine is good for."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from aerobee.cli.__main__ import main
from aerobee.cli.commands import up
from aerobee.cli.local_cluster.plan import BROKERS_MAX, ClusterPlan, brokers_of_cores


@pytest.mark.parametrize(
    ("cores", "replicas", "groups"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 2), (16, 1, 15), (16, 3, 5), (2, 3, 1), (1_000, 1, BROKERS_MAX)],
)
def test_one_core_is_left_over(cores: int, replicas: int, groups: int) -> None:
    assert brokers_of_cores(cores, replicas) == groups


def test_auto_counts_the_cores_that_the_process_may_use_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[ClusterPlan] = []

    async def serve(plan: ClusterPlan, *_: object) -> None:
        plans.append(plan)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)))
    monkeypatch.setattr(up, "_serve", serve)
    done = CliRunner().invoke(main, ["up", "--ephemeral", "--ports", "auto", "--brokers", "auto"])
    assert done.exit_code == 0, done.output
    assert "8 broker groups: a broker uses one core, this process may use 9" in done.stderr
    assert len(plans[0].brokers) == 8
