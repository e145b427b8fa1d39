"""The values of a window function for all rows of a frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aerobee.offset_audit.frames.aggregates import Aggregate
from aerobee.offset_audit.frames.expressions import Over
from aerobee.offset_audit.frames.values import identity, order_key

_Rows = Sequence[Mapping[str, Any]]


def values_over(window: Over, rows: _Rows) -> list[Any]:
    """One value for each row, in the order of `rows`."""
    parts: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        parts.setdefault(tuple(identity(by(row)) for by in window.by), []).append(place)
    found: list[Any] = [None] * len(rows)
    for places in parts.values():
        for value, is_descending in reversed(window.order):
            places.sort(key=lambda at: order_key(value(rows[at])), reverse=is_descending)
        own = [rows[at] for at in places]
        for at, result in zip(places, _of_partition(window, own), strict=True):
            found[at] = result
    return found


def _of_partition(window: Over, rows: _Rows) -> list[Any]:
    function = window.function
    if isinstance(function, Aggregate):
        values = [[one(row) for one in window.arguments] for row in rows]
        return _folded(window, function, rows, values)
    if function == "row_number":
        return list(range(1, len(rows) + 1))
    values_ = [window.arguments[0](row) for row in rows]
    if function == "lag":
        return [None, *values_[:-1]]
    return [*values_[1:], None]


def _folded(
    window: Over, function: Aggregate, rows: _Rows, values: Sequence[Sequence[Any]]
) -> list[Any]:
    if window.rows is None and not window.order:
        return [function.of(values)] * len(rows)
    first, last = (None, 0) if window.rows is None else window.rows
    if first is None and last is not None and last <= 0:
        found = _running(function, values, last)
        return found if window.rows is not None else _shared_by_equals(window, rows, found)
    if first is not None and first >= 0 and last is None:
        assert not function.is_ordered or function.begin == (), "read backwards"
        backwards = _running(function, values[::-1], -first)[::-1]
        return [one[::-1] for one in backwards] if function.begin == () else backwards
    raise ValueError(f"no window from {first} to {last} is known here")


def _running(function: Aggregate, values: Sequence[Sequence[Any]], until: int) -> list[Any]:
    """Of all rows up to the row itself, or `-until` rows before it."""
    states = [function.begin]
    for row in values:
        states.append(function.step(states[-1], row))
    ends = (max(0, place + 1 + until) for place in range(len(values)))
    if function.result is None:
        return [states[end] for end in ends]
    return [function.result(states[end]) for end in ends]


def _shared_by_equals(window: Over, rows: _Rows, found: list[Any]) -> list[Any]:
    """Rows that the order does not tell apart have the value of the last of them."""
    keys = [tuple(order_key(value(row)) for value, _ in window.order) for row in rows]
    for place in range(len(rows) - 2, -1, -1):
        if keys[place] == keys[place + 1]:
            found[place] = found[place + 1]
    return found
