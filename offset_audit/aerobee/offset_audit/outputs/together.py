"""Ordering by a list."""

from __future__ import annotations

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.functions import Column


def rank(column: str, order: tuple[str, ...]) -> Column:
    """The position in `order`, as a number; anything else comes last."""
    places = F.array_position(F.array(*map(F.lit, order)), F.col(column))
    return F.when(places > 0, places - 1).otherwise(F.lit(len(order))).cast("int")
