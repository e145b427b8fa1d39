"""Which messages of a queue a consumer wants, by an SQL92 expression over their properties.

Queue entries do not contain properties, so each record is evaluated; only the properties that the
expression names are searched for.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.store.engine.queues.reading import STEPS_MAX, BoolArray, Int64Array
from aerobee.store.format.properties import NAME_END
from aerobee.store.format.record import Record

JUDGED_MAX: Final = 1_000
"""Records evaluated per read."""
COUNTED_PER_STEP: Final = 2
BYTES_PER_STEP: Final = 512
"""Looking for one name costs a step for this many properties, and for this many bytes of them."""
_SOUGHT_NAMES_MAX: Final = 8
"""Searching for more names one by one would cost more than decoding all properties."""


class SqlFilter:
    """Passes messages for which an expression is true."""

    __slots__ = ("_expression", "_needles", "judged_max")

    is_exact = True

    def __init__(self, expression: SqlExpression) -> None:
        self._expression = expression
        self._needles: tuple[bytes, ...] | None = None
        if len(expression.names) <= _SOUGHT_NAMES_MAX:
            self._needles = tuple(name.encode() + NAME_END for name in expression.names)
        self.judged_max = max(1, min(JUDGED_MAX, STEPS_MAX // expression.size))

    def __repr__(self) -> str:
        return f"SqlFilter({self._expression.text!r})"

    def may_match(self, tags_codes: Int64Array) -> BoolArray:
        """Any message may."""
        return np.ones(len(tags_codes), np.bool_)

    def verdict(self, record: Record) -> tuple[bool, int]:
        """Whether the expression is true for the message. Raises RecordCorrupt."""
        expression, needles = self._expression, self._needles
        if needles is None:
            properties = record.properties
            row = [properties.get(name) for name in expression.names]
            sought = 1
        else:
            row = record.property_values(needles)
            sought = len(needles)
        count, size = record.properties_extent()
        # A name is searched for in all properties, and may be found inside of each.
        steps = expression.steps(row) + sought * (
            count // COUNTED_PER_STEP + size // BYTES_PER_STEP
        )
        return expression.judges(row), steps
