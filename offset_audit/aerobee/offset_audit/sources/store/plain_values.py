"""Values out of files and messages that anybody may have written: only those that columns can hold.

Python's whole numbers have no bound and its texts may hold halves of characters; what does not fit
a column is None here, for one such value must not end the reading of all others.
"""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 18
"""This many decimal digits always fit 64 bits."""


def int64(value: object) -> int | None:
    """A whole number of 64 bits; truth values are none."""
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
    """A text that has an encoding and is not empty."""
    if not isinstance(value, str) or not value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value
