"""The engine of a run in this process: readers are called here, tables are rows in memory,
documents are files of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.local_frame import LocalEngine, LocalFrame
from aerobee.offset_audit.outputs.local_files import LocalLedgerFiles, replace_file
from aerobee.offset_audit.run.engine import Facts, TooManyRows
from aerobee.offset_audit.sources.live.journal import OffsetJournalSource
from aerobee.offset_audit.sources.store import drills
from aerobee.offset_audit.sources.store.columns import Columns
from aerobee.offset_audit.sources.store.source import StoreSource
from aerobee.offset_audit.tables import Drill

AT_ONCE: Final = 8
"""How many partitions are read at the same time."""
_SOURCES: Final[Mapping[str, type[DataSource]]] = {
    source.name(): source for source in (StoreSource, OffsetJournalSource)
}


class LocalRun:
    """Reads up to `rows_max` rows from each source; None: as many as there are."""

    name = "local"

    def __init__(self, rows_max: int | None = None) -> None:
        self.frames = LocalEngine()
        self._rows_max = rows_max

    def read(
        self, reader: DataSourceReader, columns: StructType, *, is_small: bool = False
    ) -> Frame:
        return self._read(reader, columns.names)

    def load(self, source: str, options: Mapping[str, str], path: str) -> Frame:
        made = _SOURCES[source]({**options, "path": path})
        declared = made.schema()
        if isinstance(declared, StructType):
            return self._read(made.reader(declared), declared.names)
        names = [name.strip("`") for name in Columns.parse(declared).names]
        columns = StructType()
        for name in names:
            columns = columns.add(name, "string")
        return self._read(made.reader(columns), names)

    def _read(self, reader: DataSourceReader, names: list[str]) -> LocalFrame:
        found: list[Mapping[str, Any]] = []

        def of_partition(partition: InputPartition) -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = []
            batches: Iterator[Any] = reader.read(partition)
            for batch in batches:
                rows += batch.to_pylist()
                self._bound(len(rows))
            return rows

        pool = ThreadPoolExecutor(AT_ONCE, "audit-reader")
        try:
            for rows in pool.map(of_partition, reader.partitions()):
                found += rows
                self._bound(len(found))
        finally:
            pool.shutdown(cancel_futures=True)
        return LocalFrame(names, found)

    def _bound(self, rows: int) -> None:
        if self._rows_max is not None and rows > self._rows_max:
            raise TooManyRows(f"more than {self._rows_max:,} rows: Spark is needed")

    def queue_drill(self, facts: Facts) -> Drill:
        return drills.queue_drill(facts)

    def key_drill(self, facts: Facts) -> Drill:
        return drills.key_drill(facts)

    def keep(self, frame: Frame) -> Frame:
        return frame

    def take(self, frame: Frame) -> Frame:
        return frame

    def keep_cut(self, frame: Frame) -> Frame:
        return frame

    def at_hand(self, frame: Frame) -> tuple[Frame, int] | None:
        return frame, frame.count()

    def expect(self, rows: int) -> None:
        """Nothing changes: there is one way to judge rows here."""

    def forget(self) -> None:
        """Nothing is kept."""

    def settings(self, rows: int) -> AbstractContextManager[None]:
        return nullcontext()

    def sums(self) -> AbstractContextManager[None]:
        return nullcontext()

    def error_of(self, error: Exception, what: str) -> Exception:
        return error

    def ledger_files(self, path: str) -> LocalLedgerFiles:
        return LocalLedgerFiles(Path(path))

    def replace_document(self, path: str, text: str, *, for_all: bool = False) -> None:
        replace_file(Path(path), text, for_all=for_all)
