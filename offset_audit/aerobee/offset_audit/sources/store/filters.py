"""Spark's filters as conditions of a reader."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from aerobee.offset_audit.sources.store.conditions import Conditions, Numbers


def with_filter(conditions: Conditions, one: Filter, columns: Container[str]) -> Conditions | None:
    """`conditions` and what the filter says; None if these columns cannot decide that. None of them
    is ever null."""
    path: Sequence[str] = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in columns:
        return None
    column = path[0]
    if isinstance(one, IsNotNull):
        return conditions
    if isinstance(one, EqualTo | EqualNullSafe):
        return _among(conditions, column, (one.value,))
    if isinstance(one, In):
        return _among(conditions, column, one.value)
    if isinstance(one, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        value = one.value
        if isinstance(value, int):
            return conditions.with_numbers(column, _side(one, value))
    return None


def _side(one: Filter, value: int) -> Numbers:
    if isinstance(one, GreaterThan):
        return Numbers(low=value + 1)
    if isinstance(one, GreaterThanOrEqual):
        return Numbers(low=value)
    return Numbers(high=value - 1 if isinstance(one, LessThan) else value)


def _among(conditions: Conditions, column: str, values: Sequence[Any]) -> Conditions | None:
    if all(isinstance(value, str) for value in values):
        return conditions.with_texts(column, values)
    if all(isinstance(value, int) for value in values):
        return conditions.with_numbers(column, Numbers(among=frozenset(values)))
    return None
