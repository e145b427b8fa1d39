"""The checksum in consumerOffset.json: whether something else than a broker of ours has changed it.

    "contentCheck":"3f2a90c1"

It is the CRC-32 of the whole file, with eight zeros in its place.
"""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

CHECK_MEMBER: Final = "contentCheck"
UNCHECKED: Final = f'"{CHECK_MEMBER}":"00000000"'
"""What is checked has this in place of the checksum."""
_CHECK: Final = re.compile(rb'"contentCheck":"([0-9a-f]{8})"')


def with_check(data: bytes) -> bytes:
    """A file that has `UNCHECKED`, with its checksum; any other file as it is."""
    place = UNCHECKED.encode()
    return data.replace(place, place.replace(b"00000000", b"%08x" % crc32(data)), 1)


def is_as_written(data: bytes) -> bool:
    """Whether the file has its right checksum; False, too, if it has none."""
    found = _CHECK.search(data)
    if found is None:
        return False
    unchecked = data[: found.start()] + UNCHECKED.encode() + data[found.end() :]
    return crc32(unchecked) == int(found[1], 16)
