"""What a subscription wants of a topic, whichever language it says it in."""

from __future__ import annotations

from aerobee.sql_filter.expression import SqlExpression

Wish = tuple[str, ...] | SqlExpression | None
"""Messages that have one of these tags, or for which the expression is true; None: all."""
