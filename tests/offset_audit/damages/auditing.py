"""One run of the audit, as the command makes it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.pipeline import run_audit
from aerobee.offset_audit.run.progress import SilentProgress
from aerobee.offset_audit.run.request import AuditRequest
from aerobee.runtime.clock import SystemClock, system_random


def audit(spark: SparkSession, request: AuditRequest) -> Summary:
    """All of its findings are in the summary, or the test is told that they are too many."""
    summary = run_audit(
        spark, request, clock=SystemClock(), chance=system_random(), progress=SilentProgress()
    )
    assert summary.findings_total == len(summary.findings)
    return summary
