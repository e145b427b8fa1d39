"""What the store's reads are given for what a subscription wants."""

from __future__ import annotations

from aerobee.broker.reading.sql_filter import SqlFilter
from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.broker.store.queues.reading import Filter
from aerobee.sql_filter.expression import SqlExpression
from aerobee.sql_filter.wish import Wish


def filter_of(wish: Wish, *, is_exact: bool) -> Filter | None:
    """None: everything passes. Unless `is_exact`, the reader compares tags itself; what an SQL
    expression lets through is always exact."""
    if wish is None:
        return None
    if isinstance(wish, SqlExpression):
        return SqlFilter(wish)
    return TagFilter(wish, is_exact=is_exact)
