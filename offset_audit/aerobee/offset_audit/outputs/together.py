"""Several small results from one job, and ordering by a list, for what is made from a run's
tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def rank(column: str, order: tuple[str, ...]) -> Column:
    """The position in `order`, as a number; anything else comes last."""
    places = F.array_position(F.array(*map(F.lit, order)), F.col(column))
    return F.when(places > 0, places - 1).otherwise(F.lit(len(order))).cast("int")


def collect_together(
    parts: Mapping[str, DataFrame], *, keeps_nulls: bool
) -> dict[str, list[dict[str, Any]]]:
    """The rows of each part, in one job; the parts must be small.

    Args:
        keeps_nulls: whether a null is None in a row, or left out.
    """
    together: DataFrame | None = None
    nulls = {"ignoreNullFields": "false" if keeps_nulls else "true"}
    for part, frame in parts.items():
        rows = frame.select(F.lit(part).alias("part"), F.to_json(F.struct("*"), nulls).alias("row"))
        together = rows if together is None else together.unionByName(rows)
    assert together is not None
    found: dict[str, list[dict[str, Any]]] = {part: [] for part in parts}
    for row in together.collect():
        found[row["part"]].append(json.loads(row["row"]))
    return found
