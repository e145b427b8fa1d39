"""Aggregates of SQL, each as a fold: what it begins with, and what one more row makes of it.

So a sum over a group and a running sum over a window are the same three functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aerobee.offset_audit.frames.values import identity, long_or_none, order_key

Step = Callable[[Any, Sequence[Any]], Any]
"""From what was folded so far and the arguments' values in one row."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    step: Step
    begin: Any = None
    result: Callable[[Any], Any] | None = None
    is_ordered: bool = False
    """Whether the order of rows shows in the result."""

    def of(self, values: Sequence[Sequence[Any]]) -> Any:
        folded = self.begin
        for row in values:
            folded = self.step(folded, row)
        return folded if self.result is None else self.result(folded)


def _is_less(left: Any, right: Any) -> bool:
    if isinstance(left, dict | list):
        return bool(order_key(left) < order_key(right))
    return bool(left < right)


def _least(folded: Any, values: Sequence[Any]) -> Any:
    one = values[0]
    return one if one is not None and (folded is None or _is_less(one, folded)) else folded


def _most(folded: Any, values: Sequence[Any]) -> Any:
    one = values[0]
    return one if one is not None and (folded is None or _is_less(folded, one)) else folded


def _by(is_better: Callable[[Any, Any], bool]) -> Step:
    def step(folded: Any, values: Sequence[Any]) -> Any:
        one, by = values
        if by is None:
            return folded
        return (one, by) if folded is None or is_better(by, folded[1]) else folded

    return step


def _sum(folded: Any, values: Sequence[Any]) -> Any:
    one = values[0]
    if one is None:
        return folded
    return one if folded is None else folded + one


def _count(folded: int, values: Sequence[Any]) -> int:
    return folded + (None not in values)


def _count_if(folded: int, values: Sequence[Any]) -> int:
    return folded + (values[0] is True)


def _any(folded: Any, values: Sequence[Any]) -> Any:
    return values[0] if folded is None else folded or bool(values[0])


def _all(folded: Any, values: Sequence[Any]) -> Any:
    if values[0] is None:
        return folded
    return values[0] if folded is None else folded and values[0]


def _first(folded: Any, values: Sequence[Any]) -> Any:
    one, skips_nulls = values if len(values) == 2 else (values[0], False)
    return (one,) if folded is None and not (skips_nulls and one is None) else folded


def _last(folded: Any, values: Sequence[Any]) -> Any:
    one, skips_nulls = values if len(values) == 2 else (values[0], False)
    return folded if skips_nulls and one is None else (one,)


def _listed(folded: tuple[Any, ...], values: Sequence[Any]) -> tuple[Any, ...]:
    return folded if values[0] is None else (*folded, values[0])


def _distinct(folded: Mapping[Any, Any], values: Sequence[Any]) -> Mapping[Any, Any]:
    if None in values:
        return folded
    key = identity(list(values))
    return folded if key in folded else {**folded, key: values[0]}


def _chosen(folded: Any) -> Any:
    return None if folded is None else folded[0]


AGGREGATES: Final[Mapping[str, Aggregate]] = {
    "min": Aggregate(_least),
    "max": Aggregate(_most),
    "sum": Aggregate(_sum),
    "try_sum": Aggregate(_sum, result=lambda one: None if one is None else long_or_none(one)),
    "count": Aggregate(_count, 0),
    "count_if": Aggregate(_count_if, 0),
    "bool_or": Aggregate(_any),
    "bool_and": Aggregate(_all),
    "min_by": Aggregate(_by(_is_less), result=_chosen),
    "max_by": Aggregate(_by(lambda one, best: not _is_less(one, best)), result=_chosen),
    "first": Aggregate(_first, result=_chosen, is_ordered=True),
    "last": Aggregate(_last, result=_chosen, is_ordered=True),
    "collect_list": Aggregate(_listed, (), list, is_ordered=True),
    "collect_set": Aggregate(_distinct, {}, lambda found: list(found.values())),
}
COUNT_DISTINCT: Final = Aggregate(_distinct, {}, len)
