"""The results of the reductions: Arrow batches with the columns of the tables that checks read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aerobee.offset_audit import tables
from aerobee.offset_audit.sources.store.columns import Columns, together
from aerobee.offset_audit.sources.store.folders import StoreFolder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LOG_RANGES: Final = "log_ranges"
QUEUE_RANGES: Final = "queue_ranges"
INDEX_RANGES: Final = "index_ranges"
FAULTS: Final = "faults"
PENDING: Final = "pending"
MINUTES: Final = "minutes"
FAILED: Final = "failed"
JOURNAL: Final = "journal"
QUEUE_ROWS: Final = "queue_rows"
KEY_ROWS: Final = "key_rows"

LOG_SOURCE: Final = "LOG"
ENTRIES_SOURCE: Final = "ENTRIES"
INDEX_SOURCE: Final = "INDEX"

SUMMARIES: Final = "summaries"
"""All tables below from one reading: `table` says which one a row belongs to, and columns that it
does not have are null."""
SUMMARY_TABLES: Final = (LOG_RANGES, QUEUE_RANGES, INDEX_RANGES, FAULTS, MINUTES, FAILED, JOURNAL)

COLUMNS: Final[Mapping[str, Columns]] = {
    table: Columns.parse(declared)
    for table, declared in {
        **tables.COLUMNS,
        QUEUE_ROWS: tables.QUEUE_ROWS,
        KEY_ROWS: tables.KEY_ROWS,
    }.items()
}

SUMMARY_COLUMNS: Final = together([COLUMNS[table] for table in SUMMARY_TABLES])

RecordBatch: TypeAlias = Any
"""A pyarrow.RecordBatch; pyarrow has no types."""

Column: TypeAlias = Any
"""An array or list of values, `Codes`, or the one value of all rows."""


class Codes:
    """Texts of many rows: the distinct ones, and which of them each row has."""

    def __init__(self, numbers: npt.NDArray[Any], texts: Sequence[str]) -> None:
        self.numbers = numbers
        self.texts = texts

    def to_arrow(self) -> Any:
        """Plain strings: Spark accepts no dictionaries."""
        codes = pa.array(self.numbers.astype(np.int32))
        return pa.array(list(self.texts), pa.string()).take(codes)


def make_batch(
    table: str, store: StoreFolder, count: int, columns: Mapping[str, Column]
) -> RecordBatch:
    """`count` rows of a table; missing columns are null."""
    schema = COLUMNS[table].schema
    origin = store.origin
    given: dict[str, Any] = {
        "cluster": origin.cluster,
        "broker_name": origin.broker_name,
        "broker_id": origin.broker_id,
        "store": store.root,
        **columns,
    }
    arrays = [_array(given.get(field.name), count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batch_of(table: str, store: StoreFolder, rows: Sequence[DataclassInstance]) -> RecordBatch:
    """Rows whose fields are columns of the table."""
    names = [one.name for one in fields(rows[0])]
    columns = {name: [getattr(row, name) for row in rows] for name in names}
    return make_batch(table, store, len(rows), columns)


def of_columns(table: str, batch: RecordBatch, wanted: Columns) -> RecordBatch:
    """The wanted columns of a table's batch, or of all tables'; missing ones are null."""
    arrays = []
    for field in wanted.schema:
        if field.name == "table":
            arrays.append(_array(table, batch.num_rows, field.type))
        elif field.name in batch.schema.names:
            arrays.append(batch.column(field.name))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)


def _array(values: Any, count: int, kind: Any) -> Any:
    if isinstance(values, Codes):
        return values.to_arrow()
    if isinstance(values, pa.Array):
        return values
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, str | int):
        return pa.repeat(pa.scalar(values, kind), count)
    return pa.array(values, kind)
