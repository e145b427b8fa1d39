"""What of Spark's plan for a question matters, as text that only changes when that does: each scan
with its columns and the filters that it takes over, joins by kind, and whether Python runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.data.compare import compare
from aerobee.offset_audit.checks.progress.journal import find_changes
from aerobee.offset_audit.checks.progress.judged import judge
from aerobee.offset_audit.checks.progress.moves import find_moves
from aerobee.offset_audit.checks.progress.replicas import find_replicas
from aerobee.offset_audit.checks.registry import all_checks
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.spark_frame import SparkFrame, data_of
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.tables import COLUMNS, KEY_ROWS, QUEUE_ROWS, Tables
from tests.offset_audit.table_builders import NOW_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMITS = Limits(now_ms=NOW_MS)
LOG_BEGINS = "store string, log_begin long"

_SCAN = re.compile(
    r"FileScan parquet \[(?P<columns>[^]]*)\].*Location: \S+ paths?\)\[[^]]*/(?P<table>\w+)\],"
    r".*PushedFilters: \[(?P<filters>.*)\], ReadSchema"
)
_JOIN = re.compile(r"(\w*Join|CartesianProduct)\b.*?\b(\w*Outer|Inner|LeftSemi|LeftAnti|Cross)\b")
_PYTHON = re.compile(r"\w*(?:Python|InArrow|InPandas)\w*")


def described(frame: DataFrame) -> str:
    """The plan of a question."""
    java: Any = frame._jdf
    text = java.queryExecution().sparkPlan().toString()
    scans = sorted(_scans(text))
    joins = Counter(" ".join(found) for found in _JOIN.findall(text))
    lines = [f"  scan {one}" for one in scans]
    lines += [f"  {count} x {kind}" for kind, count in sorted(joins.items())]
    lines += sorted({f"  python: {name}" for name in _PYTHON.findall(text)})
    return "\n".join(lines or ["  nothing is scanned"]) + "\n"


def _scans(text: str) -> Iterator[str]:
    lines = [line for line in text.splitlines() if "FileScan" in line]
    for line in lines:
        found = _SCAN.search(line)
        assert found is not None, line
        columns = ", ".join(sorted(re.sub(r"#\d+L?", "", found["columns"]).split(",")))
        filters = re.sub(r"\d{13,}", "TIME", found["filters"])
        yield f"{found['table']}: {columns or 'no column'}" + (f"; {filters}" if filters else "")


class StoredTables:
    """All tables of a run as files of Parquet, whose scans show what is asked of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.blocks: list[str] = []
        """Plans of the blocks that drills were asked for."""

    def frame(self, name: str, columns: StructType) -> SparkFrame:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        empty = to_arrow_schema(columns, timezone="UTC").empty_table()
        pq.write_table(pa.table(empty), folder / "part.parquet")
        return SparkFrame(self._spark.read.schema(columns).parquet(str(folder)))

    def read(self) -> Tables:
        frames: dict[str, Any] = {
            name: self.frame(name, schema(columns)) for name, columns in COLUMNS.items()
        }
        begins = self.frame("log_begins", schema(LOG_BEGINS))
        return Tables(
            **frames,
            queue_rows=self._drill("queue_rows", QUEUE_ROWS),
            key_rows=self._drill("key_rows", KEY_ROWS),
            log_begins=lambda: begins,
        )

    def _drill(self, name: str, columns: str) -> Callable[[Frame], Frame]:
        rows = self.frame(name, schema(columns))

        def drill(blocks: Frame) -> Frame:
            self.blocks.append(f"{name}, the blocks\n{described(data_of(blocks))}")
            return rows

        return drill


MADE: dict[str, Callable[[Tables, Limits], Frame]] = {
    "replicas": find_replicas,
    "changes": find_changes,
    "judged": judge,
    "moves": find_moves,
    "compared": compare,
}
"""Tables that a run makes on the way, each with those before it."""


def all_plans(spark: SparkSession, folder: Path) -> str:
    """Of each table that is made, of the blocks that are read again, and of each check."""
    stored = StoredTables(spark, folder)
    tables = stored.read()
    found: list[str] = []
    for name, make in MADE.items():
        frame = data_of(make(tables, LIMITS))
        found.append(f"{name}\n{described(frame)}")
        kept: dict[str, Any] = {name: stored.frame(f"made_{name}", frame.schema)}
        tables = replace(tables, **kept)
    found += [
        f"{check.name}\n{described(data_of(check.run(tables, LIMITS)))}" for check in all_checks()
    ]
    return "\n".join([*found, *dict.fromkeys(stored.blocks)])
