"""Property texts as numbers, parsed and compared as in Java, which is what RocketMQ's clients
expect.

`Long.valueOf` accepts digits with an optional sign. `Double.valueOf` accepts surrounding blanks,
`1.5d`, `0x1p4`, NaN and Infinity. Among doubles, NaN is the greatest and equal to itself, and -0.0
is below 0.0.
"""

from __future__ import annotations

import math
import re
from typing import Final

LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1

_SURE_DIGITS: Final = 18
_DIGITS_MAX: Final = 19
_ASTRAL: Final = "\U00010000"

# Possessive repetition: with backtracking, a value could take time quadratic in its length.
_DOUBLE: Final = re.compile(
    r"""
    [\x00-\x20]*+
    (?P<sign> [+-]? )
    (?: (?P<word> NaN | Infinity )
      | (?P<decimal> (?: [0-9]++ (?: \.[0-9]*+ )? | \.[0-9]++ ) (?: [eE][+-]?[0-9]++ )? ) [fFdD]?
      | (?P<hex> 0[xX] (?: [0-9a-fA-F]++ \.? | [0-9a-fA-F]*+ \.[0-9a-fA-F]++ ) [pP][+-]?[0-9]++ )
        [fFdD]?
    )
    [\x00-\x20]*+
    """,
    re.VERBOSE,
)


_ZEROS: Final = re.compile("0*+")


def _leading_zeros(digits: str) -> int:
    """How many; `lstrip` would take ten times as long."""
    found = _ZEROS.match(digits)
    assert found is not None
    return found.end()


class NoNumber(ValueError):
    """A text that is not a number of the wanted kind."""


def to_integer(text: str) -> int:
    """Raises NoNumber."""
    if len(text) <= _SURE_DIGITS and text.isdecimal() and text.isascii():
        return int(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if len(digits) > _DIGITS_MAX:
        digits = digits[_leading_zeros(digits) :] or "0"
        if len(digits) > _DIGITS_MAX:
            raise NoNumber
    if not digits.isdecimal() or max(digits) >= _ASTRAL:
        raise NoNumber
    value = -int(digits) if text[0] == "-" else int(digits)
    if not LONG_MIN <= value <= LONG_MAX:
        raise NoNumber
    return value


def to_double(text: str) -> float:
    """Raises NoNumber."""
    found = _DOUBLE.fullmatch(text)
    if found is None:
        raise NoNumber
    word = found["word"]
    if word is not None:
        value = math.nan if word == "NaN" else math.inf
    elif (decimal := found["decimal"]) is not None:
        value = float(decimal)
    else:
        try:
            value = float.fromhex(found["hex"])
        except OverflowError:
            value = math.inf
    return -value if found["sign"] == "-" else value


def compare_numbers(left: int | float, right: int | float) -> int:
    """Below 0, 0, or above 0. If one is a double, both are compared as doubles."""
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    left, right = float(left), float(right)
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(value: float) -> int:
    """Orders doubles that are neither below nor above each other."""
    if math.isnan(value):
        return 2
    return 0 if value == 0.0 and math.copysign(1.0, value) < 0 else 1
