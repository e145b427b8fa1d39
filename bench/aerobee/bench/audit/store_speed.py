"""How fast Spark reads a store: entries, headers, bodies with their checksums. Each is compared
with the simplest loop that reads the same bytes with numpy on one core, so that ratios are
meaningful.
"""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aerobee.bench import suite
from aerobee.bench.audit.generated_store import GeneratedStore
from aerobee.bench.audit.spark_cpu import SparkRun, timed_run
from aerobee.bench.measure import Stopwatch, Throughput
from aerobee.bench.report import Report, Row
from aerobee.store.format.consume_queue_entry import ENTRY_DTYPE, ENTRY_SIZE
from aerobee.store.format.record_layout import BODY_AT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES: Final = 2
HEADER_COLUMNS: Final = "topic,queue_id,queue_offset,physical_offset,size,store_ms,tags_code"
ENTRY_COLUMNS: Final = "topic,queue_id,queue_offset,position,size,tags_code"


async def run_audit_stores(report: Report, load: suite.Load, say: suite.Say) -> None:
    """The source `aerobee.store` on two cores, once the session is up."""
    await asyncio.to_thread(_measure, report, load, say)


def _measure(report: Report, load: suite.Load, say: suite.Say) -> None:
    from aerobee.offset_audit.run.session import close_session, open_session

    say("starting Spark")
    watch = Stopwatch()
    session = open_session(f"local[{CORES}]")
    report.add(Row("session start", note=f"{watch.elapsed_s():.1f} s"))
    try:
        with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as folder:
            root = Path(folder)
            say("writing stores")
            queues = GeneratedStore(root / "queues", load.batched * 40)
            (queues.root / "commitlog").mkdir(parents=True)
            queues.write_queues()
            large = GeneratedStore(root / "large", load.batched * 2, body_bytes=load.body_bytes)
            large.write()
            small = GeneratedStore(root / "small", load.batched * 4, body_bytes=64)
            small.write()
            _read_twice(session, large, "records", HEADER_COLUMNS)  # warms up workers and Java
            say("queue entries")
            _entries(report, session, queues)
            for store in (large, small):
                say(f"records with bodies of {store.body_bytes} bytes")
                _records(report, session, store)
    finally:
        close_session(session)


def _entries(report: Report, session: SparkSession, store: GeneratedStore) -> None:
    rows = store.records
    plain = _timed(rows, ENTRY_SIZE, lambda: _sum_entries(store))
    report.add(Row("queue entries, plain numpy loop, one core", plain))
    numbers = "queue_offset,position,size,tags_code"
    for name, run in (
        ("all columns", lambda: _consume(_read(session, store, "entries"))),
        ("numbers only", lambda: _consume(_read(session, store, "entries", numbers))),
        ("reduced to ranges", lambda: _read(session, store, "queue_ranges").count()),
    ):
        report.add(_row(f"queue entries, {name}", timed_run(rows, ENTRY_SIZE, run), plain))


def _records(report: Report, session: SparkSession, store: GeneratedStore) -> None:
    # Imported here, since it needs the extra `audit`.
    from aerobee.offset_audit.sources.store.ranges_rows import SUMMARIES

    rows, size = store.records, store.record_bytes
    name = f"records of {store.body_bytes} bytes"
    plain = _timed(rows, size, lambda: _sum_headers(store))
    report.add(Row(f"{name}, headers, plain numpy loop, one core", plain))
    checked = _timed(rows, size, lambda: _check_bodies(store))
    report.add(Row(f"{name}, body CRC, plain loop, one core", checked))

    def add(what: str, beside: Throughput, kind: str, columns: str = "", check: str = "") -> None:
        frame = _read(session, store, kind, columns, check)
        run = timed_run(rows, size, lambda: _consume(frame))
        report.add(_row(f"{name}, {what}", run, beside))

    add("headers", plain, "records", HEADER_COLUMNS)
    add("every column but the body", plain, "records")
    add("headers and body CRC", checked, "records", "physical_offset,size,body_sound")
    add("bodies", plain, "records", "body")
    add("a deep audit", plain, SUMMARIES)
    add("a deep audit with body CRC", checked, SUMMARIES, check="true")


def _row(name: str, run: SparkRun, plain: Throughput) -> Row:
    ratio = run.throughput.messages_per_s / (plain.messages_per_s * CORES)
    beside = f"the plain loop on {CORES} cores; {run.note(CORES)}"
    return Row(name, run.throughput, ratio=ratio, ratio_of=beside)


def _timed(rows: int, row_bytes: int, run: Callable[[], Any]) -> Throughput:
    watch = Stopwatch()
    run()
    return Throughput(rows, rows * row_bytes, watch.elapsed_s())


def _read_twice(session: SparkSession, store: GeneratedStore, kind: str, columns: str) -> None:
    for _ in range(2):
        _consume(_read(session, store, kind, columns))


def _read(
    session: SparkSession, store: GeneratedStore, kind: str, columns: str = "", check: str = ""
) -> DataFrame:
    reader = session.read.format("aerobee.store").option("kind", kind).option("columns", columns)
    reader = reader.option("checkBodies", check)
    return reader.load(str(store.root))


def _consume(frame: DataFrame) -> None:
    """Read and discard every row and column."""
    frame.write.format("noop").mode("overwrite").save()


# ------------------------------------------------------------------------------- plain loops


def _sum_entries(store: GeneratedStore) -> int:
    total = 0
    for path in sorted((store.root / "consumequeue").glob("*/*/*")):
        entries = np.frombuffer(path.read_bytes(), ENTRY_DTYPE)
        entries = entries[entries["size"] > 0]
        total += int(entries["physical_offset"].astype(np.int64).sum())
        total += int(entries["tags_code"].astype(np.int64).sum())
    return total


def _sum_headers(store: GeneratedStore) -> int:
    """Possible only because all records are equally long."""
    total = 0
    for rows in _segments(store):
        total += int(rows[:, 28:36].copy().view(">i8").astype(np.int64).sum())
        total += int(rows[:, 56:64].copy().view(">i8").astype(np.int64).sum())
    return total


def _check_bodies(store: GeneratedStore) -> int:
    wrong = 0
    for rows in _segments(store):
        stored = rows[:, 8:12].copy().view(">i4")[:, 0].tolist()
        for row, crc in zip(rows, stored, strict=True):
            body = row[BODY_AT : BODY_AT + store.body_bytes]
            wrong += zlib.crc32(body) & 0x7FFFFFFF != crc
    return wrong


def _segments(store: GeneratedStore) -> Any:
    left = store.records
    for path in sorted((store.root / "commitlog").iterdir()):
        count = min(left, store.per_segment)
        left -= count
        step = max(1, (8 << 20) // store.record_bytes)
        with path.open("rb") as file:
            for first in range(0, count, step):
                rows = min(step, count - first)
                data = file.read(rows * store.record_bytes)
                yield np.frombuffer(data, np.uint8).reshape(rows, store.record_bytes)
