"""The tables of runs, read and written by Spark on whatever file system its paths point to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.spark_frame import SparkFrame, data_of
from aerobee.offset_audit.frames.spark_rows import empty_frame, schema
from aerobee.offset_audit.outputs.folder import Folder
from aerobee.offset_audit.outputs.ledger import COLUMNS, SCHEMA_VERSION, RunEntry


class SparkLedgerFiles:
    """A ledger's folder."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._folder = Folder(session, path)

    def path(self, name: str = "") -> str:
        return self._folder.path(name)

    def names(self, name: str = "") -> list[str]:
        return self._folder.names(name)

    def read(self, name: str) -> bytes:
        return self._folder.read(name)

    def write(self, name: str, content: bytes) -> None:
        self._folder.write(name, content)

    def read_table(self, table: str, files: Sequence[str]) -> Frame:
        paths = [self._folder.path(name) for name in files if self._folder.exists(name)]
        columns = schema(COLUMNS[table])
        if not paths:
            return SparkFrame(empty_frame(self._session, COLUMNS[table]))
        frame = (
            self._session.read.schema(columns)
            .option("basePath", self._folder.path(table))
            .parquet(*paths)
        )
        # Spark's path for an empty name reads back as null.
        cluster = F.coalesce("cluster", F.lit("")).alias("cluster")
        return SparkFrame(
            frame.select(*(cluster if name == "cluster" else name for name in columns.names))
        )

    def write_tables(self, run: RunEntry, tables: Mapping[str, Frame]) -> dict[str, list[str]]:
        staging = f".staging-{run.run_id}"  # its own: other runs may be writing theirs
        files: dict[str, list[str]] = {}
        try:
            for table, frame in tables.items():
                self._write(run, table, data_of(frame), f"{staging}/{table}")
            for table in tables:
                files[table] = self._take_in(run, table, f"{staging}/{table}")
        finally:
            self._folder.remove(staging)
        return files

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
