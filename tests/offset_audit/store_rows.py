"""Rows of a store as Python sees them, read as an executor reads them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.folders import find_stores
from aerobee.offset_audit.sources.store.kinds import KINDS, Wanted
from aerobee.offset_audit.sources.store.options import StoreOptions

Row = dict[str, Any]


def store_rows(
    kind: str,
    root: Path | Sequence[str],
    *,
    conditions: Conditions | None = None,
    **options: str,
) -> list[Row]:
    """All rows of a kind, in the order of the partitions."""
    paths = [str(root)] if isinstance(root, Path) else list(root)
    parsed = StoreOptions.parse({"path": paths[0], "kind": kind, **options})
    reader = KINDS[kind]
    columns = reader.default_columns(parsed)
    if parsed.columns:
        columns = reader.columns.chosen(parsed.columns)
    wanted = Wanted(parsed, columns, conditions or Conditions())
    rows: list[Row] = []
    for partition in reader.plan(find_stores(paths, parsed.names), wanted):
        for batch in reader.batches(partition, wanted):
            assert batch.num_rows, "no batch is empty"
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows
