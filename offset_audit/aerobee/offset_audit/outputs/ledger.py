"""The tables of all runs, as Parquet: `TABLE/cluster=NAME/date=YYYY-MM-DD/RUN-N.parquet`.

Invariants: files are only added. A run counts once its entry `runs/RUN.json` exists, which is
written last and names every file, so that a reader that follows the entries never sees half a run,
and two runs at the same time do not disturb each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aerobee.offset_audit.outputs.folder import Folder
from aerobee.offset_audit.tables import (
    FINDINGS,
    INDEX_RANGES,
    LOG_RANGES,
    QUEUE_RANGES,
    STATES,
    empty_frame,
    schema,
)

SCHEMA_VERSION = 1
"""For the columns of all tables here; readers skip runs with a higher version."""

_OF_RUN = "run_id string, run_at_ms long, "
COLUMNS = {
    "findings": FINDINGS,
    "state": STATES,
    "log_ranges": _OF_RUN + LOG_RANGES,
    "queue_ranges": _OF_RUN + QUEUE_RANGES,
    "index_ranges": _OF_RUN + INDEX_RANGES,
}
"""What is kept of each run; the files also hold `schema_version`, the paths cluster and date."""

_ENTRY = ".json"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """The content of `runs/RUN.json`."""

    run_id: str
    run_at_ms: int
    schema_version: int
    depth: str
    scope: str
    """What was audited; runs of one scope can be compared finding by finding."""
    clusters: tuple[str, ...]
    findings: int
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By table; relative to the ledger's folder."""


class Ledger:
    """All runs of one folder."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._folder = Folder(session, path)

    @property
    def path(self) -> str:
        return self._folder.path()

    def newest_runs(self, clusters: Sequence[str], count: int) -> list[RunEntry]:
        """The newest runs, newest first, that judged any of these clusters."""
        found: list[RunEntry] = []
        names = [name for name in self._folder.names("runs") if name.endswith(_ENTRY)]
        for name in reversed(names):
            if len(found) == count:
                break
            entry = _entry_of(self._folder.read(f"runs/{name}"))
            if entry is not None and set(entry.clusters) & set(clusters):
                found.append(entry)
        return found

    def read(self, table: str, runs: Sequence[RunEntry]) -> DataFrame:
        """Rows of these runs; files removed since are silently missing."""
        names = [name for run in runs for name in run.files.get(table, ())]
        paths = [self._folder.path(name) for name in names if self._folder.exists(name)]
        columns = schema(COLUMNS[table])
        if not paths:
            return empty_frame(self._session, COLUMNS[table])
        frame = (
            self._session.read.schema(columns)
            .option("basePath", self._folder.path(table))
            .parquet(*paths)
        )
        # Spark's path for an empty name reads back as null.
        cluster = F.coalesce("cluster", F.lit("")).alias("cluster")
        return frame.select(*(cluster if name == "cluster" else name for name in columns.names))

    def append(self, run: RunEntry, tables: Mapping[str, DataFrame]) -> RunEntry:
        """Add a run's tables, then its entry; returns the entry with the files' names.

        A run that fails here leaves nothing that counts.
        """
        staging = f".staging-{run.run_id}"  # its own: other runs may be writing theirs
        files: dict[str, list[str]] = {}
        try:
            for table, frame in tables.items():
                self._write(run, table, frame, f"{staging}/{table}")
            for table in tables:
                files[table] = self._take_in(run, table, f"{staging}/{table}")
        finally:
            self._folder.remove(staging)
        entry = RunEntry(**{**asdict(run), "files": files})
        content = json.dumps(asdict(entry), indent=1, sort_keys=True)
        self._folder.write(f"runs/{run.run_id}{_ENTRY}", content.encode())
        return entry

    def _write(self, run: RunEntry, table: str, frame: DataFrame, staging: str) -> None:
        own = schema(COLUMNS[table]).names
        filled = frame.withColumns(
            {
                "run_id": F.lit(run.run_id),
                "run_at_ms": F.lit(run.run_at_ms),
                "cluster": F.coalesce("cluster", F.lit("")),
            }
        ).select(
            *own,
            F.lit(SCHEMA_VERSION).alias("schema_version"),
            F.to_date(F.timestamp_millis(F.lit(run.run_at_ms))).alias("date"),
        )
        # Few files for small tables, more for large ones, however they were partitioned.
        filled.hint("rebalance").write.partitionBy("cluster", "date").parquet(
            self._folder.path(staging)
        )

    def _take_in(self, run: RunEntry, table: str, staging: str) -> list[str]:
        moved = []
        written = [name for name in self._folder.files_below(staging) if name.endswith(".parquet")]
        for number, name in enumerate(written):
            partition = name.rpartition("/")[0]
            target = f"{table}/{partition}/{run.run_id}-{number}.parquet"
            self._folder.move(f"{staging}/{name}", target)
            moved.append(target)
        return moved


def _entry_of(content: bytes) -> RunEntry | None:
    """None: written by a newer version, whose columns may have other meanings."""
    fields: dict[str, Any] = json.loads(content)
    if fields.get("schema_version", 0) > SCHEMA_VERSION:
        return None
    return RunEntry(
        run_id=fields["run_id"],
        run_at_ms=fields["run_at_ms"],
        schema_version=fields["schema_version"],
        depth=fields["depth"],
        scope=fields["scope"],
        clusters=tuple(fields["clusters"]),
        findings=fields["findings"],
        files=fields["files"],
    )
