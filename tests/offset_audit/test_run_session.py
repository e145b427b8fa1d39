"""The session of an audit: it computes, it is quiet, and it leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_session_runs_python_of_this_environment_in_its_workers(spark: SparkSession) -> None:
    def of_workers(batches):  # type: ignore[no-untyped-def]
        import pyarrow

        import aerobee.offset_audit.tables

        assert aerobee.offset_audit.tables
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})

    rows = spark.range(1).mapInArrow(of_workers, "python string").collect()
    assert [row.python for row in rows] == [sys.executable]


PROGRAM = """
from aerobee.offset_audit.run.session import audit_session

with audit_session("local[1]", is_brief=True) as spark:
    assert spark.range(10).count() == 10
    print(spark.sparkContext._gateway.proc.pid)
"""


def test_a_session_says_nothing_and_leaves_no_java_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not Path(f"/proc/{int(done.stdout)}").exists()
    assert not list(tmp_path.iterdir())
