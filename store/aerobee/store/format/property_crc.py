"""The CRC of a whole record, stored as the last of its properties.

   ... 0x02 | `__CRC32#` 0x01 | 10 digits, least significant first | 0x02 |      20 bytes at the end

It covers every byte before those 20, including stamped fields, so the broker writes the digits
after it stamps. Readers that do not know it see one more property.
"""

from __future__ import annotations

from typing import Final

from isal.isal_zlib import crc32

PROPERTY_CRC_SIZE: Final = 20
# The property's name as one number.
PROPERTY_CRC_NAME: Final = int.from_bytes(b"__CRC32#", "big")

PROPERTY_CRC_PREFIX: Final = b"__CRC32#\x01"
_MASK: Final = 0x7FFF_FFFF


def reserve_property_crc(properties: bytes) -> bytes:
    """`properties` without an older CRC, and with room for a new one at the end."""
    if PROPERTY_CRC_PREFIX in properties:
        segments = properties.split(b"\x02")
        properties = b"\x02".join(
            part for part in segments if not part.startswith(PROPERTY_CRC_PREFIX)
        )
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    return properties + PROPERTY_CRC_PREFIX + b"0" * 10 + b"\x02"


def has_property_crc(buffer: bytes | bytearray, properties_start: int, end: int) -> bool:
    """Whether the properties at [properties_start, end) end with the 20 bytes."""
    start = end - PROPERTY_CRC_SIZE
    return (
        start >= properties_start
        and buffer[start : start + len(PROPERTY_CRC_PREFIX)] == PROPERTY_CRC_PREFIX
        and buffer[end - 1] == 2
        and (start == properties_start or buffer[start - 1] == 2)
    )


def write_property_crc(buffer: bytearray | memoryview, start: int, end: int) -> None:
    """Write the reserved digits of the stamped record at [start, end)."""
    buffer[end - 11 : end - 1] = _digits(buffer, start, end)


def property_crc_matches(
    buffer: bytes | bytearray, start: int, properties_start: int, end: int
) -> bool | None:
    """Whether the record at [start, end) is unchanged since it was stamped; None if it has no
    CRC."""
    if not has_property_crc(buffer, properties_start, end):
        return None
    return buffer[end - 11 : end - 1] == _digits(buffer, start, end)


def _digits(buffer: bytes | bytearray | memoryview, start: int, end: int) -> bytes:
    with memoryview(buffer) as whole, whole[start : end - PROPERTY_CRC_SIZE] as covered:
        value = crc32(covered) & _MASK
    return f"{value:010d}"[::-1].encode()
