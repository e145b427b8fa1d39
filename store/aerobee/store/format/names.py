"""Names in a store: of files, the offset of the first byte in the sequence, as 20 digits; and of
queues that hold records of other topics."""

from __future__ import annotations

from typing import Final

FILE_NAME_DIGITS: Final = 20
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
"""The prefix of Apache's light message queues, whose records belong to other topics."""
_OFFSET_END: Final = 1 << 63


class FileNameIllegal(ValueError):
    """A file name that is not the 20-digit offset of a store file."""


def file_name(offset: int) -> str:
    """The name of the file that begins at byte `offset` of its sequence."""
    if not 0 <= offset < _OFFSET_END:
        raise FileNameIllegal(f"file offset {offset} is not in [0, 2^63)")
    return f"{offset:020d}"


def parse_file_name(name: str) -> int:
    """The offset of the first byte of the file called `name`.

    Raises FileNameIllegal for every other name: stray files in a store folder must not go
    unnoticed.
    """
    if len(name) != FILE_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        raise FileNameIllegal(f"{name!r:.80} is not a store file's name: 20 digits are expected")
    offset = int(name)
    if offset >= _OFFSET_END:
        raise FileNameIllegal(f"{name!r} names an offset beyond 2^63")
    return offset


def is_file_name(name: str) -> bool:
    """Whether `parse_file_name` accepts `name`."""
    try:
        parse_file_name(name)
    except FileNameIllegal:
        return False
    return True
