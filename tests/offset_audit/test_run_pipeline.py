"""A run from tables to files and exit code: what it adds to findings, and what it leaves behind."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aerobee.offset_audit.outputs.folder import replace_document
from aerobee.offset_audit.outputs.ledger import Ledger, RunEntry
from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.linking import of_same_sources
from aerobee.offset_audit.run.pipeline import run_audit
from aerobee.offset_audit.run.progress import Progress, SilentProgress
from aerobee.offset_audit.run.reading import Reading
from aerobee.offset_audit.run.request import AuditRequest
from aerobee.offset_audit.tables import COLUMNS, schema
from aerobee.runtime.clock import ManualClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BROKER = {"cluster": "harbour", "broker_name": "broker-a", "broker_id": 0}
QUEUE = {**BROKER, "topic": "orders", "queue_id": 0}
DAY_MS = 24 * 3_600_000

Rows = dict[str, list[dict[str, object]]]


def rows_at(clock: ManualClock, committed: dict[str, int], *, end: int) -> Rows:
    """One broker, one queue, and groups that read up to `committed` a day ago and have gone."""
    now_ms = clock.now_ms()
    return {
        "brokers": [
            {
                **BROKER,
                "address": "127.0.0.1:10911",
                "answered": True,
                "role": "MASTER",
                "epoch": 3,
                "commits_read_at_ms": now_ms,
                "ends_read_at_ms": now_ms,
                "asked_at_ms": now_ms,
                "answered_at_ms": now_ms,
            }
        ],
        "topics": [
            {**BROKER, "topic": "orders", "read_queue_count": 1, "write_queue_count": 1, "perm": 6}
        ],
        "queues": [
            {
                **QUEUE,
                "min_offset": 0,
                "max_offset": end,
                "last_store_ms": now_ms,
                "read_at_ms": now_ms,
            }
        ],
        "commits": [
            {
                **QUEUE,
                "group": group,
                "offset": offset,
                "lease_epoch": 1,
                "committed_at_ms": now_ms - DAY_MS,
                "client_id": "a",
                "is_reset": False,
                "first_unread_ms": now_ms - DAY_MS if offset < end else None,
                "read_at_ms": now_ms,
            }
            for group, offset in committed.items()
        ],
    }


def reader(rows: Rows) -> Callable[[SparkSession, AuditRequest, Reading, Progress], dict[str, int]]:
    def read(
        session: SparkSession, request: AuditRequest, reading: Reading, progress: Progress
    ) -> dict[str, int]:
        with progress.stage("brokers"):
            for table, each in rows.items():
                columns = schema(COLUMNS[table])
                tuples = [tuple(row.get(name) for name in columns.names) for row in each]
                reading.put({table: session.createDataFrame(tuples, columns)})
        return {table: len(each) for table, each in rows.items()}

    return read


def audited(
    spark: SparkSession, request: AuditRequest, clock: ManualClock, rows: Rows, seed: int
) -> Summary:
    return run_audit(
        spark,
        request,
        clock=clock,
        chance=random.Random(seed),
        progress=SilentProgress(),
        read=reader(rows),
    )


def test_only_runs_of_the_same_sources_are_history() -> None:
    def run(name: str, *, stores: Sequence[str] = (), topics: Sequence[str] = ()) -> RunEntry:
        live = "" if stores else "ns:8081"
        scope = {"nameservers": live, "brokers": "", "stores": stores, "topics": topics}
        return RunEntry(name, 1, 1, "quick", json.dumps(scope), ("c",), 0)

    runs = [run("all"), run("copy", stores=["/a"]), run("some", topics=["t"])]
    runs += [run("other-copy", stores=["/b"]), replace(run("old"), scope="[]")]
    alike = {one.run_id: of_same_sources(runs, one.scope) for one in runs}
    assert {name: [one.run_id for one in found] for name, found in alike.items()} == {
        "all": ["all", "some"],
        "some": ["all", "some"],
        "copy": ["copy"],
        "other-copy": ["other-copy"],
        "old": ["old"],
    }


def test_a_finding_is_remembered_from_run_to_run(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock()
    request = AuditRequest(nameservers="ns:8081", history=str(tmp_path / "history"))
    begun_ms = clock.now_ms()
    rows = rows_at(clock, {"billing": 5, "mailer": 5}, end=50)
    first = audited(spark, request, clock, rows, 1)
    clock.advance_ms(60_000)
    rows = rows_at(clock, {"billing": 5, "mailer": 60}, end=60)
    again = audited(spark, request, clock, rows, 2)
    clock.advance_ms(60_000)
    other = replace(request, topics=("orders",), out=str(tmp_path / "out"))
    rows = rows_at(clock, {"billing": 70, "mailer": 60}, end=70)
    narrow = audited(spark, other, clock, rows, 3)

    both = {one["group"]: one for one in first.findings}
    assert set(both) == {"billing", "mailer"}
    for one in both.values():
        assert one["check"] == "STOPPED"
        assert one["first_seen_ms"] == first.run_at_ms == begun_ms
        assert one["previous_state"] is None
    (still,) = again.findings
    assert (still["group"], still["check"]) == ("billing", "STOPPED")
    assert still["first_seen_ms"] == begun_ms
    assert still["previous_state"] == "STOPPED"
    assert still["run_id"] == again.run_id != first.run_id
    # Who looked elsewhere cannot say since when it stands.
    (new,) = narrow.findings
    assert (new["group"], new["check"]) == ("mailer", "STOPPED")
    assert new["first_seen_ms"] == narrow.run_at_ms
    assert {one.exit_code for one in (first, again, narrow)} == {1}

    ledger = Ledger(spark, str(tmp_path / "history"))
    runs = ledger.newest_runs(["harbour"], 10)
    assert [run.run_id for run in runs] == [narrow.run_id, again.run_id, first.run_id]
    assert ledger.newest_runs(["elsewhere"], 10) == []
    states = ledger.read("state", runs).collect()
    assert {(row.run_id, row.group, row.lag) for row in states} == {
        (first.run_id, "billing", 45),
        (first.run_id, "mailer", 45),
        (again.run_id, "billing", 55),
        (again.run_id, "mailer", 0),
        (narrow.run_id, "billing", 0),
        (narrow.run_id, "mailer", 10),
    }
    assert {row.cluster for row in ledger.read("findings", runs).collect()} == {"harbour"}
    assert ledger.read("findings", runs[:1]).count() == 1

    document = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert document["run_id"] == narrow.run_id
    assert document["worst"] == "WARNING"
    assert document["states"] == {"OK": 1, "STOPPED": 1}
    metrics = (tmp_path / "out" / "metrics.prom").read_text()
    assert 'aerobee_audit_queues{state="STOPPED"} 1\n' in metrics
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
    assert not [path for path in tmp_path.rglob("*") if "unfinished" in path.name]
    assert not list(tmp_path.rglob(".staging*"))


def test_documents_and_tables_go_to_any_file_system_that_spark_reaches(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A mount of Hadoop's own, since a driver in a cluster has no disk that anybody sees."""
    context: Any = spark.sparkContext._jsc
    settings = context.hadoopConfiguration()
    (tmp_path / "bucket").mkdir()
    settings.set("fs.viewfs.mounttable.audits.link./bucket", (tmp_path / "bucket").as_uri())
    clock = ManualClock()
    away = "viewfs://audits/bucket"
    request = AuditRequest(
        nameservers="ns:8081", out=f"{away}/out/", report=f"{away}/reports/today.html"
    )
    for seed in (1, 2):  # the second one finds the files of the first
        rows = rows_at(clock, {"billing": 5}, end=50)
        summary = audited(spark, request, clock, rows, seed)
    folder = tmp_path / "bucket"
    document = (folder / "out" / "summary.json").read_text()
    assert json.loads(document) == json.loads(summary.text())
    assert "aerobee_audit_exit_code 1" in (folder / "out" / "metrics.prom").read_text()
    assert "<html" in (folder / "reports" / "today.html").read_text()
    newest, _ = Ledger(spark, f"{away}/out").newest_runs(["harbour"], 5)
    assert newest.run_id == summary.run_id
    with pytest.raises(OSError, match="viewfs://audits"):
        replace_document(spark, "viewfs://audits/nowhere/report.html", "x")
