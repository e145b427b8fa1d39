"""What the source needs from a kind of rows: columns, a plan, and batches. Without Spark.

Each kind says which conditions its reader takes over completely; Spark checks all others itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aerobee.offset_audit.sources.store.columns import Columns
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.options import StoreOptions
from aerobee.offset_audit.sources.store.plan import Partition


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a kind."""

    options: StoreOptions
    columns: Columns
    conditions: Conditions


class Kind(Protocol):
    """One kind of rows."""

    @property
    def condition_columns(self) -> frozenset[str]:
        """Columns whose conditions the reader takes over."""

    def columns(self, options: StoreOptions) -> Columns:
        """All columns there are."""

    def default_columns(self, options: StoreOptions) -> Columns:
        """The columns for a user who asked for none."""

    def plan(self, stores: Sequence[StoreFolder], wanted: Wanted) -> list[Partition]:
        """What executors read; runs on the driver."""

    def batches(self, partition: Partition, wanted: Wanted) -> Iterator[Any]:
        """pyarrow.RecordBatches of `wanted.columns`; runs on executors."""
