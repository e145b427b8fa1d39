"""What a subscription wants from a topic, in either language."""

from __future__ import annotations

from aerobee.domain.sql_filter.expression import SqlExpression

Wish = tuple[str, ...] | SqlExpression | None
"""Messages that have one of these tags, or for which the expression is true; None: all."""
