"""`aerobee up --brokers auto`: how many broker groups a machine is good for."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from aerobee.cli.__main__ import main
from aerobee.cli.local_cluster.plan import BROKERS_MAX, brokers_of_cores


@pytest.mark.parametrize(
    ("cores", "replicas", "groups"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 2), (16, 1, 15), (16, 3, 5), (2, 3, 1), (1_000, 1, BROKERS_MAX)],
)
def test_one_core_is_left_over(cores: int, replicas: int, groups: int) -> None:
    assert brokers_of_cores(cores, replicas) == groups


def test_auto_counts_the_cores_that_the_process_may_use_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(10)))
    # Refused afterwards, so that no cluster is started.
    words = ["up", "--ephemeral", "--data", "x", "--brokers", "auto", "--replicas", "3"]
    done = CliRunner().invoke(main, words)
    assert "either --ephemeral or --data" in done.stderr
    assert (
        "3 broker groups of 3 replicas each: a broker uses one core, this process may use 10"
        in (done.stderr)
    )


def test_auto_keeps_within_the_quota_of_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.cli.commands.up.usable_cores", lambda: 4.5)
    done = CliRunner().invoke(main, ["up", "--ephemeral", "--data", "x", "--brokers", "auto"])
    assert "3 broker groups: a broker uses one core, this process may use 4" in done.stderr
