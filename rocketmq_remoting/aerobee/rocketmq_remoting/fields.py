"""Reading the fields of a header, which are all text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aerobee.runtime.errors import InvalidArgument

_DIGITS_MAX: Final = 19
_I64_END: Final = 1 << 63
_SHOWN: Final = 40


def text(fields: Mapping[str, str], name: str) -> str:
    """A text that must be there. Raises InvalidArgument."""
    value = fields.get(name)
    if not value:
        raise InvalidArgument(f"the request lacks its field {name}")
    return value


def number(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A 64-bit number; without a default it must be there. Raises InvalidArgument."""
    value = fields.get(name)
    if not value:
        if default is None:
            raise InvalidArgument(f"the request lacks its field {name}")
        return default
    digits = value.removeprefix("-")
    if len(digits) <= _DIGITS_MAX and digits.isascii() and digits.isdigit():
        found = int(value)
        if -_I64_END <= found < _I64_END:
            return found
    raise InvalidArgument(f"field {name} of the request is {value[:_SHOWN]!r}, no 64-bit number")


def flag(fields: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """As Java reads it: `true` in any case, anything else is false."""
    value = fields.get(name)
    return default if value is None else value.lower() == "true"
