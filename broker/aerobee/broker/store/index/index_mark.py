"""The file `index.end`: up to where the log is in the index files, and which entries say so.

A header tells the last record that has a key; how many without any were looked at after it, only
this file knows. It also tells after a crash which entries were complete. It counts only together
with the files it speaks of, so it does no harm where another broker used the folder meanwhile, and
losing it costs a longer start.

    <end in the log> <entries in the newest file, + 1> <offset of its last entry> <its name>
    crc32 of the line above, 8 hex digits
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from aerobee.broker.store.disk import Disk

INDEX_MARK_FILE: Final = "index.end"

_MARK_BYTES: Final = 128
_NO_FILE: Final = "-"


@dataclass(frozen=True, slots=True)
class IndexMark:
    """All records before `indexed_end` are in the index, whose newest file has `count`."""

    indexed_end: int
    name: str | None
    count: int
    last_physical_offset: int

    def encode(self) -> bytes:
        line = (
            f"{self.indexed_end} {self.count} {self.last_physical_offset} {self.name or _NO_FILE}\n"
        ).encode()
        return (line + b"%08x\n" % crc32(line)).ljust(_MARK_BYTES, b"\0")


def decode_mark(data: bytes) -> IndexMark | None:
    """None for bytes that are no mark, or a damaged one."""
    line, _, rest = data.rstrip(b"\0").partition(b"\n")
    line += b"\n"
    if rest != b"%08x\n" % crc32(line):
        return None
    indexed_end, count, last_physical_offset, name = line.decode().split()
    return IndexMark(
        int(indexed_end), None if name == _NO_FILE else name, int(count), int(last_physical_offset)
    )


def read_mark(disk: Disk) -> IndexMark | None:
    try:
        return decode_mark(disk.read_file(INDEX_MARK_FILE))
    except OSError:
        return None


def write_mark(disk: Disk, mark: IndexMark) -> None:
    """[one thread at a time] In place, less than a sector; its name is durable with the next fsync
    of the root."""
    file = disk.open_file(INDEX_MARK_FILE, create=True)
    file.write_at(0, (mark.encode(),))
    file.datasync()
    file.close()
