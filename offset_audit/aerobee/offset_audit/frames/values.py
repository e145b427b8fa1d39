"""Values of SQL without Spark: their order, their equality, and how they become text.

Null is None, a struct a dict, an array a list. Whole numbers have no limit, except in the `try_`
functions, which give null beyond 64 bits as Spark's do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

Row = Mapping[str, Any]
Value = Callable[[Row], Any]

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1


class Struct(dict[str, Any]):
    """The value of `struct(...)`; ordered by its members, of which null is the least."""

    def __lt__(self, other: object) -> bool:
        return bool(order_key(self) < order_key(other))

    def __le__(self, other: object) -> bool:
        return bool(order_key(self) <= order_key(other))

    def __gt__(self, other: object) -> bool:
        return bool(order_key(self) > order_key(other))

    def __ge__(self, other: object) -> bool:
        return bool(order_key(self) >= order_key(other))


def long_or_none(number: int) -> int | None:
    """Null if it does not fit 64 bits, as from Spark's `try_` functions."""
    return number if _LONG_MIN <= number <= _LONG_MAX else None


def text_of(value: Any) -> Any:
    """As Spark casts a value to a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join('null' if one is None else text_of(one) for one in value)}]"
    if isinstance(value, dict):
        inner = ("null" if one is None else text_of(one) for one in value.values())
        return f"{{{', '.join(inner)}}}"
    return str(value)


def order_key(value: Any) -> Any:
    """Sorts as Spark does in ascending order: null first, also within structs and arrays."""
    if isinstance(value, dict):
        value = tuple(map(order_key, value.values()))
    elif isinstance(value, list):
        value = tuple(map(order_key, value))
    elif isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    return (False, 0) if value is None else (True, value)


def identity(value: Any) -> Any:
    """Equal for equal values, hashable, also of structs and arrays."""
    if isinstance(value, dict):
        return tuple(map(identity, value.values()))
    if isinstance(value, list):
        return tuple(map(identity, value))
    return value


def cast(value: Any, kind: str) -> Any:
    """`kind`: as in the columns of a table."""
    if value is None:
        return None
    if kind == "string":
        return text_of(value)
    if kind in ("int", "long", "bigint", "integer"):
        return _whole(value)
    if kind == "boolean" and isinstance(value, int):
        return bool(value)
    if kind == "double":
        return float(value)
    return value


def _whole(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value)
    return int(value) if isinstance(value, int | float | Decimal) else None
