"""What Spark's filters imply about where to read: topics, brokers, queues, offsets, store times.

A filter only ever narrows what is read; Spark applies all of them again. Times are looked up with a
margin, because a broker's clock may have been set back, and then compared message by message.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.place import Window

CLOCK_MARGIN_MS: Final = 10 * 60 * 1_000
_NAMES: Final = {"topic": "topics", "broker_name": "broker_names", "queue_id": "queue_ids"}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What can pass the filters; None: all."""

    topics: frozenset[Any] | None = None
    broker_names: frozenset[Any] | None = None
    queue_ids: frozenset[Any] | None = None
    offset_begin: int = 0
    offset_end: int = (1 << 63) - 1
    window: Window = field(default_factory=Window)

    def takes(self, queue: MessageQueue) -> bool:
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.broker_names is None or queue.broker_name in self.broker_names)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )


def narrow(filters: Iterable[Filter]) -> Narrowing:
    """From filters that must all hold; those that do not restrict the place are ignored."""
    found = Narrowing()
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        if len(attribute) != 1:
            continue
        column = attribute[0]
        if column in _NAMES:
            found = _narrow_names(found, _NAMES[column], one)
        elif column in ("queue_offset", "store_ms"):
            found = _narrow_numbers(found, column, one)
    return found


def _narrow_names(found: Narrowing, which: str, one: Filter) -> Narrowing:
    if isinstance(one, EqualTo | EqualNullSafe):
        values = frozenset({one.value})
    elif isinstance(one, In):
        values = frozenset(one.value)
    else:
        return found
    known = getattr(found, which)
    changes: dict[str, Any] = {which: values if known is None else known & values}
    return replace(found, **changes)


def _narrow_numbers(found: Narrowing, column: str, one: Filter) -> Narrowing:
    first, last = _span(one)
    if column == "store_ms":
        window = Window(max(found.window.first_ms, first), min(found.window.last_ms, last))
        return replace(found, window=window)
    return replace(
        found,
        offset_begin=max(found.offset_begin, first),
        offset_end=min(found.offset_end, last + 1),
    )


def _span(one: Filter) -> tuple[int, int]:
    """The first and the last number that pass."""
    lowest, highest = -(1 << 63), (1 << 63) - 1
    value = getattr(one, "value", None)
    if isinstance(one, In):
        numbers = [each for each in one.value if isinstance(each, int)]
        return (min(numbers), max(numbers)) if numbers else (1, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        return lowest, highest
    if isinstance(one, EqualTo | EqualNullSafe):
        return value, value
    if isinstance(one, GreaterThan):
        return value + 1, highest
    if isinstance(one, GreaterThanOrEqual):
        return value, highest
    if isinstance(one, LessThan):
        return lowest, value - 1
    if isinstance(one, LessThanOrEqual):
        return lowest, value
    return lowest, highest
