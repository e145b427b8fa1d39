"""Java's String.hashCode, the hash of tags codes and the key index.

The value depends on UTF-16 code units, not on code points or UTF-8 bytes: a character outside the
basic plane counts as two units.
"""

from __future__ import annotations

from typing import Final

_MASK_32: Final = 0xFFFF_FFFF
_SIGN_32: Final = 0x8000_0000


def java_string_hash(text: str) -> int:
    """The hash of `text` as a signed 32-bit number; 0 for the empty string."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & _MASK_32
    else:
        # surrogatepass: a lone surrogate is a unit like any other to Java.
        units = memoryview(text.encode("utf-16-be", "surrogatepass"))
        for index in range(0, len(units), 2):
            value = (31 * value + (units[index] << 8 | units[index + 1])) & _MASK_32
    return value - 0x1_0000_0000 if value & _SIGN_32 else value


def index_key_hash(full_key: str) -> int:
    """The non-negative hash under which the key index files `topic#key`.

    -2^31 has no positive counterpart in 32 bits; it is filed under 0.
    """
    value = abs(java_string_hash(full_key))
    return 0 if value == _SIGN_32 else value
