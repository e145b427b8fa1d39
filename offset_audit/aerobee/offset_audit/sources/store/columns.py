"""Columns by name: their Spark and Arrow types, and the order in which a reader gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from aerobee.offset_audit.frames.columns_of_tables import columns_of
from aerobee.offset_audit.sources.messages.pieces import constant
from aerobee.offset_audit.sources.store.folders import Origin, StoreUnreadable

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 16 * 1024 * 1024

ARROW_TYPES: Final[dict[str, Any]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "binary": pa.binary(),
    "array<int>": pa.list_(pa.field("element", pa.int32())),
    "array<string>": pa.list_(pa.field("element", pa.string())),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "decimal(38,0)": pa.decimal128(38, 0),
}
"""The possible types of columns, as named in a table's description."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names with types, as `name type` text says it."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Columns:
        """From a description such as `topic string, queue_id int`."""
        return cls(tuple(columns_of(text)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.pairs)

    @property
    def ddl(self) -> str:
        """For Spark."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.pairs)

    @property
    def schema(self) -> Any:
        """For Arrow."""
        return pa.schema([pa.field(name, ARROW_TYPES[kind]) for name, kind in self.pairs])

    def chosen(self, names: Iterable[str]) -> Columns:
        """These, in the order of `names`. Raises StoreUnreadable for one that is not there."""
        kinds = dict(self.pairs)
        wanted = tuple(names)
        for name in wanted:
            if name not in kinds:
                raise StoreUnreadable(
                    f"there is no column {name!r}; known are: {', '.join(self.names)}"
                )
        return Columns(tuple((name, kinds[name]) for name in wanted))

    def without(self, *names: str) -> Columns:
        return Columns(tuple(pair for pair in self.pairs if pair[0] not in names))


def together(each: Iterable[Columns]) -> Columns:
    """Those of several tables in one frame, whose `table` says which one a row belongs to."""
    pairs: dict[str, str] = {"table": "string"}
    for columns in each:
        for name, kind in columns.pairs:
            assert pairs.setdefault(name, kind) == kind, f"{name} has two types"
    return Columns(tuple(pairs.items()))


def origin_column(name: str, origin: Origin, count: int) -> Any:
    """One of `cluster`, `broker_name` and `broker_id` for each row."""
    if name == "broker_id":
        return pa.array(np.full(count, origin.broker_id, np.int32))
    return constant(origin.cluster if name == "cluster" else origin.broker_name, count)


def batch(columns: Columns, arrays: Sequence[Any]) -> Any:
    """A pyarrow.RecordBatch."""
    return pa.RecordBatch.from_arrays(list(arrays), schema=columns.schema)


def merged(batches: Iterable[Any]) -> Iterator[Any]:
    """The same rows in fewer batches: for Spark a batch costs much more than a row."""
    waiting: list[Any] = []
    rows = size = 0
    for one in batches:
        if waiting and (rows + one.num_rows > BATCH_ROWS or size + one.nbytes > BATCH_BYTES):
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(one)
        rows += one.num_rows
        size += one.nbytes
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
