"""Documents and the tables of runs as files of this machine, private to their owner."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.local_frame import LocalFrame
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.outputs.ledger import COLUMNS, SCHEMA_VERSION, RunEntry
from aerobee.runtime.private_files import make_private_folder, private_opener

MODE_FOR_ALL: Final = 0o644
_NO_NAME: Final = "__HIVE_DEFAULT_PARTITION__"
"""As Spark writes an empty name in a path."""
_PLAIN: Final = " !$&()+,-.;<>@[]^_`|~"
"""Characters that Spark leaves as they are in a path, in addition to letters and digits."""


def replace_file(path: Path, text: str, *, for_all: bool = False) -> None:
    """Written beside, synced, moved into place; missing folders are created. Folder and file are
    private to their owner, except a file that is `for_all`.

    Raises:
        OSError: it cannot be written.
    """
    replace_bytes(path, text.encode(), for_all=for_all)


def replace_bytes(path: Path, content: bytes, *, for_all: bool = False) -> None:
    """The same for bytes."""
    make_private_folder(path.parent)
    # The textfile collector reads every *.prom: an unfinished one must have another name.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with open(unfinished, "wb", opener=private_opener) as file:
            if for_all:
                os.fchmod(file.fileno(), MODE_FOR_ALL)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


class LocalLedgerFiles:
    """A folder of this machine; its tables are as Spark would write them, so that either reads what
    the other wrote."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, name: str = "") -> str:
        return str(self._root / name)

    def names(self, name: str = "") -> list[str]:
        """Files and folders directly below; empty if there is no such folder."""
        folder = self._root / name
        return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        replace_bytes(self._root / name, content)

    def read_table(self, table: str, files: Iterable[str]) -> Frame:
        names = names_of(COLUMNS[table])
        rows: list[Mapping[str, Any]] = []
        for name in files:
            try:
                found = pq.read_table(self._root / name, partitioning=None).to_pylist()
            except FileNotFoundError:
                continue
            cluster = _cluster_of(name)
            rows += [{**{one: row.get(one) for one in names}, "cluster": cluster} for row in found]
        return LocalFrame(names, rows)

    def write_tables(self, run: RunEntry, tables: Mapping[str, Frame]) -> dict[str, list[str]]:
        files: dict[str, list[str]] = {}
        try:
            for table, frame in tables.items():
                files[table] = []
                for name, rows in _parts(run, table, frame):
                    files[table].append(name)
                    self._write_rows(self._root / name, table, rows)
        except BaseException:
            for name in (one for each in files.values() for one in each):
                (self._root / name).unlink(missing_ok=True)
            raise
        return files

    def _write_rows(self, path: Path, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        own = [name for name in names_of(COLUMNS[table]) if name != "cluster"]
        kinds = {one.name: one.type for one in to_arrow_schema(schema(COLUMNS[table]))}
        arrays = {name: pa.array([row[name] for row in rows], kinds[name]) for name in own}
        arrays["schema_version"] = pa.array([SCHEMA_VERSION] * len(rows), pa.int32())
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(arrays), sink)
        replace_bytes(path, sink.getvalue().to_pybytes())


def _parts(
    run: RunEntry, table: str, frame: Frame
) -> Iterable[tuple[str, list[Mapping[str, Any]]]]:
    """The rows by the file that they belong to."""
    filled = {"run_id": run.run_id, "run_at_ms": run.run_at_ms}
    names = names_of(COLUMNS[table])
    clusters: dict[str, list[Mapping[str, Any]]] = {}
    for row in frame.collect():
        known = {name: filled.get(name, row.get(name)) for name in names}
        clusters.setdefault(row["cluster"] or "", []).append(known)
    day = f"{datetime.fromtimestamp(run.run_at_ms / 1_000, UTC):%Y-%m-%d}"
    for number, (cluster, rows) in enumerate(clusters.items()):
        place = quote(cluster, safe=_PLAIN) if cluster else _NO_NAME
        yield f"{table}/cluster={place}/date={day}/{run.run_id}-{number}.parquet", rows


def _cluster_of(name: str) -> str:
    text = name.split("/cluster=", 1)[1].split("/", 1)[0]
    return "" if text == _NO_NAME else unquote(text)
