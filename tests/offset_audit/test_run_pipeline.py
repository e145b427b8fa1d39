"""A run from tables to files and exit code: what it adds to findings, and what it leaves behind."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.outputs.folder import replace_document
from aerobee.offset_audit.outputs.ledger import Ledger, RunEntry
from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.engine import RunEngine
from aerobee.offset_audit.run.linking import of_same_sources
from aerobee.offset_audit.run.local_run import LocalRun
from aerobee.offset_audit.run.pipeline import run_audit
from aerobee.offset_audit.run.progress import Progress, SilentProgress
from aerobee.offset_audit.run.reading import Reading
from aerobee.offset_audit.run.request import AuditRequest
from aerobee.offset_audit.run.spark_run import SparkRun
from aerobee.offset_audit.tables import COLUMNS
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


def reader(rows: Rows) -> Callable[[AuditRequest, Reading, Progress], dict[str, int]]:
    def read(request: AuditRequest, reading: Reading, progress: Progress) -> dict[str, int]:
        with progress.stage("brokers"):
            for table, each in rows.items():
                names = names_of(COLUMNS[table])
                tuples = [tuple(row.get(name) for name in names) for row in each]
                reading.put({table: reading.engine.frames.frame(COLUMNS[table], tuples)})
        return {table: len(each) for table, each in rows.items()}

    return read


def audited(
    engine: RunEngine, request: AuditRequest, clock: ManualClock, rows: Rows, seed: int
) -> Summary:
    return run_audit(
        engine,
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


@dataclass(frozen=True, slots=True)
class Runs:
    """Three of one cluster, a minute apart; the third asks for one topic, and writes its documents
    beside the bucket in which the tables of all three are."""

    engine: RunEngine
    away: str
    """The bucket."""
    folder: Path
    begun_ms: int
    first: Summary
    again: Summary
    narrow: Summary


AWAY = "viewfs://audits/bucket"
"""A mount of Hadoop's own, since a driver in a cluster has no disk that anybody sees."""


def spark_engine(session: SparkSession, bucket: Path) -> RunEngine:
    context: Any = session.sparkContext._jsc
    link = "fs.viewfs.mounttable.audits.link./bucket"
    context.hadoopConfiguration().set(link, bucket.as_uri())
    return SparkRun(session)


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.thorough)])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "bucket").mkdir()
    if request.param == "local":
        return runs_of(LocalRun(), str(folder / "bucket"), folder)
    engine = spark_engine(request.getfixturevalue("spark"), folder / "bucket")
    return runs_of(engine, AWAY, folder)


def runs_of(engine: RunEngine, away: str, folder: Path) -> Runs:
    clock = ManualClock()
    begun_ms = clock.now_ms()
    request = AuditRequest(
        nameservers="ns:8081", out=f"{away}/out/", report=f"{away}/reports/today.html"
    )
    rows = rows_at(clock, {"billing": 5, "mailer": 5}, end=50)
    first = audited(engine, request, clock, rows, 1)
    clock.advance_ms(60_000)
    rows = rows_at(clock, {"billing": 5, "mailer": 60}, end=60)
    again = audited(engine, request, clock, rows, 2)  # finds the files of the first
    clock.advance_ms(60_000)
    other = AuditRequest(
        nameservers="ns:8081", topics=("orders",), history=f"{away}/out", out=str(folder / "out")
    )
    rows = rows_at(clock, {"billing": 70, "mailer": 60}, end=70)
    narrow = audited(engine, other, clock, rows, 3)
    return Runs(engine, away, folder, begun_ms, first, again, narrow)


def test_a_finding_is_remembered_from_run_to_run(runs: Runs) -> None:
    first, again, narrow, begun_ms = runs.first, runs.again, runs.narrow, runs.begun_ms
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
    # The history says what became of the findings of the run before.
    assert first.after is None
    assert narrow.after is None
    told = again.after
    assert told is not None
    assert (told.run_id, told.new, told.is_asked) == (first.run_id, (), False)
    assert [one["group"] for one in told.cured] == ["mailer"]
    assert [one["group"] for one in told.still] == ["billing"]

    ledger = Ledger(runs.engine.ledger_files(f"{runs.away}/out"))
    newest = ledger.newest_runs(["harbour"], 10)
    assert [run.run_id for run in newest] == [narrow.run_id, again.run_id, first.run_id]
    assert ledger.newest_runs(["elsewhere"], 10) == []
    states = ledger.read("state", newest).collect()
    assert {(row["run_id"], row["group"], row["lag"]) for row in states} == {
        (first.run_id, "billing", 45),
        (first.run_id, "mailer", 45),
        (again.run_id, "billing", 55),
        (again.run_id, "mailer", 0),
        (narrow.run_id, "billing", 0),
        (narrow.run_id, "mailer", 10),
    }
    assert {row["cluster"] for row in ledger.read("findings", newest).collect()} == {"harbour"}
    assert ledger.read("findings", newest[:1]).count() == 1

    document = json.loads((runs.folder / "out" / "summary.json").read_text())
    assert document["run_id"] == narrow.run_id
    assert document["worst"] == "WARNING"
    assert document["states"] == {"OK": 1, "STOPPED": 1}
    metrics = (runs.folder / "out" / "metrics.prom").read_text()
    assert 'aerobee_audit_queues{state="STOPPED"} 1\n' in metrics
    assert "<html" in (runs.folder / "out" / "report.html").read_text()
    assert not [path for path in runs.folder.rglob("*") if "unfinished" in path.name]
    assert not list(runs.folder.rglob(".staging*"))


def test_what_runs_leave_is_for_their_owner_alone_but_for_metrics(runs: Runs) -> None:
    out, bucket = runs.folder / "out", runs.folder / "bucket" / "out"
    made = [out, bucket, *out.rglob("*"), *bucket.rglob("*")]
    assert {path.suffix for path in made} >= {".parquet", ".html", ".json", ".prom"}
    open_to_others = [path for path in made if path.stat().st_mode & 0o077]
    assert {path.name for path in open_to_others} == {"metrics.prom"}


def test_documents_and_tables_go_to_any_file_system_that_the_engine_reaches(
    request: pytest.FixtureRequest, runs: Runs
) -> None:
    bucket = runs.folder / "bucket"
    document = (bucket / "out" / "summary.json").read_text()
    assert json.loads(document) == json.loads(runs.again.text())
    assert "aerobee_audit_exit_code 1" in (bucket / "out" / "metrics.prom").read_text()
    assert "<html" in (bucket / "reports" / "today.html").read_text()
    assert list((bucket / "out").rglob("*.parquet"))
    if runs.away != AWAY:
        return
    spark = request.getfixturevalue("spark")
    with pytest.raises(OSError, match="viewfs://audits"):
        replace_document(spark, "viewfs://audits/nowhere/report.html", "x")
