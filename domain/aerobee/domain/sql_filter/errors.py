"""What is wrong with an expression, and where."""

from __future__ import annotations

from aerobee.runtime.errors import FilterIllegal

_SHOWN_MAX = 24


class SqlIllegal(FilterIllegal):
    """An expression that is not in the language, or exceeds its limits."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        """`position`: of the first wrong character, from 0."""
        shown = text[position : position + _SHOWN_MAX]
        where = f"at character {position + 1}, {shown!r}" if shown else "at its end"
        super().__init__(f"the SQL filter is illegal {where}: {reason}")
        self.position = position
