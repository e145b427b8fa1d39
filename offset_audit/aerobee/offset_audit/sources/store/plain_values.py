"""Values from files and messages of unknown origin, limited to what columns can hold.

Python's integers are unbounded and its texts may contain lone surrogates; what does not fit a
column is None here, because one such value must not stop the reading of all others.
"""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 18
"""This many decimal digits always fit 64 bits."""


def int64(value: object) -> int | None:
    """A 64-bit integer; booleans do not count."""
    return value if type(value) is int and -INT64_MAX <= value <= INT64_MAX else None


def queue_number(value: object) -> int | None:
    """A queue's id."""
    return value if type(value) is int and 0 <= value <= INT32_MAX else None


def decimal(text: str | None) -> int | None:
    """A number written in digits 0 to 9, without sign."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
        return None
    return int(text)


def text_of(value: object) -> str | None:
    """A text that can be encoded and is not empty."""
    if not isinstance(value, str) or not value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value
