"""Spark and the engine of one process judge the same stores, sound and damaged: findings, states
and counts are equal to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.local_run import LocalRun
from tests.offset_audit.damages.auditing import audit
from tests.offset_audit.damages.stores_at_rest import Audited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(1_800)]
# A test that is interrupted while it speaks to Spark leaves the session useless to all others.

OF_RUN = ("run_id", "run_at_ms", "first_seen_ms")
OF_READING = ("commits_read_at_ms", "ends_read_at_ms", "asked_at_ms", "answered_at_ms")


def told(summary: Summary) -> dict[str, Any]:
    """All that does not depend on when a run was."""
    findings = [
        {name: value for name, value in one.items() if name not in OF_RUN}
        for one in summary.findings
    ]
    return {
        "findings": sorted(findings, key=str),
        "checks": sorted(summary.checks, key=str),
        "states": dict(summary.states),
        "groups": summary.groups,
        "brokers": [
            {name: value for name, value in one.items() if name not in OF_READING}
            for one in summary.brokers
        ],
        "waiting": summary.waiting,
        "failed": summary.failed,
        "rows": dict(summary.rows),
    }


def test_both_engines_say_the_same_of_all_damages(audited: Audited, spark: SparkSession) -> None:
    from aerobee.offset_audit.run.spark_run import SparkRun

    here = told(audit(LocalRun(), audited.request))
    there = told(audit(SparkRun(spark), audited.request))
    assert len(here["findings"]) > 40
    for name, part in here.items():
        assert part == there[name], name
