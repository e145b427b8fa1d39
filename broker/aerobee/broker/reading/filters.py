"""The filters that the store's reads use, made from one subscription or several."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.reading.sql_filter import JUDGED_MAX, SqlFilter
from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.domain.sql_filter.wish import Wish
from aerobee.store.engine.queues.reading import BoolArray, Filter, Int64Array
from aerobee.store.format.record import Record


def filter_of(wish: Wish, *, is_exact: bool) -> Filter | None:
    """None: everything passes. Unless `is_exact`, the reader compares tags itself; an SQL
    expression always filters exactly."""
    if wish is None:
        return None
    if isinstance(wish, SqlExpression):
        return SqlFilter(wish)
    return TagFilter(wish, is_exact=is_exact)


class AnyFilter:
    """Passes messages that any of several filters passes."""

    __slots__ = ("_filters", "judged_max")

    is_exact = True

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = filters
        self.judged_max = min(each.judged_max or JUDGED_MAX for each in filters)

    def may_match(self, tags_codes: Int64Array) -> BoolArray:
        found = self._filters[0].may_match(tags_codes)
        for each in self._filters[1:]:
            found |= each.may_match(tags_codes)
        return found

    def verdict(self, record: Record) -> tuple[bool, int]:
        """Raises RecordCorrupt."""
        steps = 0
        for each in self._filters:
            matches, price = each.verdict(record)
            steps += price
            if matches:
                return True, steps
        return False, steps
