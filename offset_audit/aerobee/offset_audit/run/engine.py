"""What a run needs of the engine that it uses: to read sources, to keep tables, to write documents.

There are two, with the same rules: `local_run` in this process, `spark_run` on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from aerobee.offset_audit.frames.frame import Engine, Frame
from aerobee.offset_audit.outputs.ledger import LedgerFiles
from aerobee.offset_audit.run.kept import Kept

LOCAL_ROWS = 50_000
"""How many rows may be part of a run's plans; larger tables stay where they were read."""

SMALL_ROWS = 500_000
"""Below this, planning a question takes longer than answering it."""


class TooManyRows(Exception):
    """The engine in this process should not hold what a run would read: Spark must."""


class RunEngine(Protocol):
    """One run's; `forget` ends what it keeps."""

    @property
    def name(self) -> str:
        """As in `--engine`."""

    @property
    def frames(self) -> Engine: ...

    @property
    def kept(self) -> Kept | None:
        """What a watch's next run need not read again; None: it reads everything."""

    def read(
        self,
        reader: DataSourceReader,
        columns: StructType,
        *,
        is_small: bool = False,
        is_bounded: bool = True,
    ) -> Frame:
        """What a reader gives. `is_small`: few rows are likely, so it is worth reading at once.
        Not `is_bounded`: the engine takes the rows, however many there are."""

    def load(self, options: Mapping[str, str], path: str) -> Frame:
        """What `aerobee.store` gives for a path."""

    def take(self, frame: Frame) -> Frame:
        """Read now, once, though several tables are made from it."""

    def keep_cut(self, frame: Frame) -> Frame:
        """For a table with a long plan that many questions share."""

    def at_hand(self, frame: Frame) -> tuple[Frame, int] | None:
        """The same rows, read, and their number; None: there are too many to have them at hand."""

    def expect(self, rows: int) -> None:
        """More rows arrive than `settings` was told."""

    def forget(self) -> None: ...

    def settings(self, rows: int) -> AbstractContextManager[None]:
        """What suits questions about this many rows."""

    def sums(self) -> AbstractContextManager[None]:
        """What suits sums and lists of rows at hand, none of which are left out."""

    def error_of(self, error: Exception, what: str) -> Exception:
        """What a person should be told of an error of the engine."""

    def ledger_files(self, path: str) -> LedgerFiles: ...

    def replace_document(self, path: str, text: str, *, for_all: bool = False) -> None:
        """Raises:
        OSError: it cannot be written.
        """
