"""What a rule may do with a table; both engines give the same rows for it.

Names and meanings are those of Spark's DataFrame, whose subset this is. Texts are names of columns
in `select`, `groupBy`, `orderBy` and `partitionBy`, and SQL in `where`, `selectExpr`, `withColumn`,
`withColumns` and, with a name after it, in `agg`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Protocol

from aerobee.offset_audit.frames.functions import Column

Named = Column | str


class Engine(Protocol):
    """Makes frames from rows."""

    def frame(self, columns: str, rows: Sequence[Sequence[object]]) -> Frame:
        """A few rows. `columns`: names and types, as in `tables`."""

    def collect(
        self, parts: Mapping[str, Frame], *, keeps_nulls: bool
    ) -> dict[str, list[dict[str, Any]]]:
        """The rows of each part, which must be small, in as few jobs as the engine can. A null is
        None in a row, or left out."""


class Grouped(Protocol):
    """Rows of equal keys, not summed up yet."""

    def agg(self, *columns: Named) -> Frame: ...


class Frame(Protocol):
    """Rows with named columns; nothing changes it."""

    @property
    def engine(self) -> Engine:
        """That made it."""

    @property
    def columns(self) -> list[str]: ...

    def where(self, condition: Named) -> Frame: ...

    def select(self, *columns: Named) -> Frame: ...

    def selectExpr(self, *texts: str) -> Frame: ...

    def withColumn(self, name: str, column: Named) -> Frame: ...

    def withColumns(self, columns: Mapping[str, Named]) -> Frame: ...

    def withColumnRenamed(self, before: str, after: str) -> Frame: ...

    def with_json(self, name: str, declared: str) -> Frame:
        """A text column as the struct that it is in JSON; members that it lacks are null."""

    def drop(self, *names: str) -> Frame: ...

    def join(self, other: Frame, on: str | Sequence[str], how: str = "inner") -> Frame:
        """By equal columns, which the result has once. `how`: inner, left, right, full, left_semi
        (rows that have a partner), left_anti (those that have none)."""

    def join_where(self, other: Frame, conditions: Sequence[Column], how: str = "inner") -> Frame:
        """By conditions over the columns of both, whose names must differ."""

    def crossJoin(self, other: Frame) -> Frame: ...

    def groupBy(self, *columns: Named) -> Grouped: ...

    def agg(self, *columns: Named) -> Frame: ...

    def unionByName(self, other: Frame, allowMissingColumns: bool = False) -> Frame: ...

    def distinct(self) -> Frame: ...

    def dropDuplicates(self, names: Sequence[str]) -> Frame:
        """One row for each of equal ones in these columns, any of them."""

    def orderBy(self, *columns: Named) -> Frame: ...

    def limit(self, rows: int) -> Frame: ...

    def count(self) -> int: ...

    def collect(self) -> list[dict[str, Any]]:
        """Its rows, here."""

    def in_one_part(self) -> Frame:
        """The same, for a table that does not grow with queues: questions to such tables alone are
        then one task without any exchange."""

    def small(self) -> Frame:
        """The same; its rows are few, so an engine may copy them to wherever they are needed."""


def union(frames: Sequence[Frame], *, allow_missing: bool = False) -> Frame:
    """The rows of all; at least one frame."""
    return reduce(lambda one, other: one.unionByName(other, allow_missing), frames)
