"""The engine of a run in this process: readers are called here, tables are rows in memory,
documents are files of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.local_frame import LocalEngine, LocalFrame
from aerobee.offset_audit.outputs.local_files import LocalLedgerFiles, replace_file
from aerobee.offset_audit.run.engine import TooManyRows
from aerobee.offset_audit.run.kept import Kept, Rows
from aerobee.offset_audit.sources.live.journal import (
    LiveJournalReader,
    OneJournal,
)
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.source import StoreReader

AT_ONCE: Final = 8
"""How many partitions are read at the same time."""


class LocalRun:
    """Reads up to `rows_max` rows from each source; None: as many as there are."""

    name = "local"

    def __init__(self, rows_max: int | None = None, kept: Kept | None = None) -> None:
        """`kept`: of earlier runs."""
        self.frames = LocalEngine()
        self.kept = kept
        self._rows_max = rows_max

    def read(
        self,
        reader: DataSourceReader,
        columns: StructType,
        *,
        is_small: bool = False,
        is_bounded: bool = True,
    ) -> Frame:
        reading = self if is_bounded else LocalRun()
        return reading._read(reader, columns.names)

    def load(self, options: Mapping[str, str], path: str) -> Frame:
        reader = StoreReader(StoreOptions.parse({**options, "path": path}))
        return self._read(reader, list(reader.names))

    def _read(self, reader: DataSourceReader, names: list[str]) -> LocalFrame:
        found: list[Mapping[str, Any]] = []
        of_partition = self._read_anew if self.kept is None else self._read_new
        pool = ThreadPoolExecutor(AT_ONCE, "audit-reader")
        try:
            for rows in pool.map(partial(of_partition, reader), reader.partitions()):
                found += rows
                self._bound(len(found))
        finally:
            pool.shutdown(cancel_futures=True)
        return LocalFrame(names, found)

    def _read_anew(self, reader: DataSourceReader, partition: InputPartition) -> Rows:
        rows: Rows = []
        batches: Iterator[Any] = reader.read(partition)
        for batch in batches:
            rows += batch.to_pylist()
            self._bound(len(rows))
        return rows

    def _read_new(self, reader: DataSourceReader, partition: InputPartition) -> Rows:
        """The same, from what is kept as far as that is still so."""
        kept = self.kept
        assert kept is not None
        if isinstance(reader, LiveJournalReader) and isinstance(partition, OneJournal):
            address = partition.asked.address
            rows, known = reader.read_on(partition.asked, kept.journals.pop(address, None))
            if known is not None:
                kept.journals[address] = known
            return rows
        if not isinstance(reader, StoreReader):
            return self._read_anew(reader, partition)
        mark = reader.mark(partition)
        if mark is not None and (known_rows := kept.rows(mark)) is not None:
            return known_rows
        rows = self._read_anew(reader, partition)
        # A file that was written to while it was read has another mark now.
        if mark is not None and reader.mark(partition) == mark:
            kept.keep(mark, rows)
        return rows

    def _bound(self, rows: int) -> None:
        if self._rows_max is not None and rows > self._rows_max:
            raise TooManyRows(f"more than {self._rows_max:,} rows: Spark is needed")

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
