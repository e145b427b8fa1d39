"""The engine of a run on Spark: readers become tasks, tables are cached, documents go wherever
Spark's paths point."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.spark_frame import (
    SparkEngine,
    SparkFrame,
    data_of,
)
from aerobee.offset_audit.outputs.folder import replace_document
from aerobee.offset_audit.outputs.spark_ledger import SparkLedgerFiles
from aerobee.offset_audit.run.cutting import at_hand, cut
from aerobee.offset_audit.run.engine import LOCAL_ROWS
from aerobee.offset_audit.run.session import settings_for, settings_for_sums, suit_more
from aerobee.offset_audit.run.spark_errors import error_of
from aerobee.offset_audit.sources.direct import rows_by

# A cluster larger than memory spills to disk; nothing is read twice.
_KEPT = StorageLevel.MEMORY_AND_DISK


class SparkRun:
    """Uses a session, and what it caches until `forget`."""

    name = "spark"
    kept = None

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.frames = SparkEngine(session)
        self._kept: list[DataFrame] = []
        self._is_large = False

    def read(
        self,
        reader: DataSourceReader,
        columns: StructType,
        *,
        is_small: bool = False,
        is_bounded: bool = True,
    ) -> Frame:
        rows_here = LOCAL_ROWS if is_small else 0
        return SparkFrame(rows_by(self.session, reader, columns, rows_here=rows_here))

    def load(self, options: Mapping[str, str], path: str) -> Frame:
        return SparkFrame(self.session.read.format("aerobee.store").options(**options).load(path))

    def take(self, frame: Frame) -> Frame:
        kept = data_of(frame).persist(_KEPT)
        with settings_for(self.session, LOCAL_ROWS):
            found = at_hand(kept)
        if found is not None:
            kept.unpersist()
            return SparkFrame(found[0])
        self._kept.append(kept)
        return SparkFrame(kept)

    def keep_cut(self, frame: Frame) -> Frame:
        if not self._is_large and (found := at_hand(data_of(frame))) is not None:
            return SparkFrame(found[0])
        kept = cut(data_of(frame)).persist(_KEPT)
        self._kept.append(kept)
        return SparkFrame(kept)

    def at_hand(self, frame: Frame) -> tuple[Frame, int] | None:
        with settings_for(self.session, LOCAL_ROWS):
            found = at_hand(data_of(frame))
        self._is_large |= found is None
        return None if found is None else (SparkFrame(found[0]), found[1])

    def expect(self, rows: int) -> None:
        suit_more(self.session, rows)

    def forget(self) -> None:
        for kept in self._kept:
            kept.unpersist()
        self._kept.clear()

    def settings(self, rows: int) -> AbstractContextManager[None]:
        return settings_for(self.session, rows)

    def sums(self) -> AbstractContextManager[None]:
        return settings_for_sums(self.session)

    def error_of(self, error: Exception, what: str) -> Exception:
        return error_of(error, what) if isinstance(error, PySparkException) else error

    def ledger_files(self, path: str) -> SparkLedgerFiles:
        return SparkLedgerFiles(self.session, path)

    def replace_document(self, path: str, text: str, *, for_all: bool = False) -> None:
        replace_document(self.session, path, text, for_all=for_all)
