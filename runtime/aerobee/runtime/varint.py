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


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number and its end. Raises IndexError at the end of the bytes, or beyond 64 bits.

    >>> read_varint(bytes.fromhex("ac02"), 0)
    (300, 2)
    """
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    for shift in range(7, 70, 7):
        digit = data[at]
        at += 1
        value |= (digit & 0x7F) << shift
        if digit < 0x80:
            return value, at
    raise IndexError
