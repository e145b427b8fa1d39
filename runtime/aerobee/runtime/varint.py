"""Protobuf's integers, for messages that are encoded by hand."""

from __future__ import annotations

_ONE_DIGIT = tuple(bytes((value,)) for value in range(128))


def varint(value: int) -> bytes:
    """A non-negative number in base 128, lowest digit first.

    >>> varint(300).hex()
    'ac02'
    """
    if value < 128:
        return _ONE_DIGIT[value]
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)
