"""The files of the index folder: their names, which exist, and how a new one is created.

A file is named after the local time at which it was made, to the millisecond; names always rise,
whatever the clock does. It gets its name only once it has its full length (mostly a hole) and its
header, so the folder never has a file of another length, which Apache's broker would misread.

The file `index.end` beside the folder says how far the log is indexed, and the last entries then:

    <end in the log> <entries in the newest file, + 1> <offset of its last entry> <its name>
    crc32 of the line above, 8 hex digits

A header gives the last record with a key; only the mark knows how far records without keys were
covered after it. After a crash the mark also shows which entries were complete. It is valid only
together with the files it names, so it is harmless if another broker used the folder meanwhile, and
losing it only makes a start longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from zlib import crc32

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import FileTrouble
from aerobee.store.engine.log.segment_supply import spare_path
from aerobee.store.format.index_file import HEADER_SIZE, IndexGeometry, IndexHeader

INDEX_DIRECTORY: Final = "index"
INDEX_MARK_FILE: Final = "index.end"

_NEW_FILE: Final = "index"
_NAME_DIGITS: Final = 17
_MARK_BYTES: Final = 128
_NO_FILE: Final = "-"


@dataclass(frozen=True, slots=True)
class IndexFileInfo:
    """One file and its effective header: the one on disk may be newer by now."""

    name: str
    header: IndexHeader

    @property
    def path(self) -> str:
        return index_path(self.name)


@dataclass(slots=True)
class FoundFiles:
    """The content of the folder, oldest first."""

    files: list[IndexFileInfo] = field(default_factory=list)
    wrong_lengths: dict[str, int] = field(default_factory=dict)
    unreadable: list[FileTrouble] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)


def index_path(name: str) -> str:
    return f"{INDEX_DIRECTORY}/{name}"


def find_index_files(disk: Disk, geometry: IndexGeometry) -> FoundFiles:
    """Read names, lengths and headers."""
    found = FoundFiles()
    for entry in disk.list(INDEX_DIRECTORY):
        name = entry.name
        if entry.is_directory or not is_index_name(name):
            found.strays.append(name)
        elif entry.size_bytes != geometry.file_bytes:
            found.wrong_lengths[name] = entry.size_bytes
        else:
            try:
                file = disk.open_file(index_path(name), read_only=True)
                header = IndexHeader.decode(file.read_at(0, HEADER_SIZE))
                file.close()
                found.files.append(IndexFileInfo(name, header))
            except FileNotFoundError:
                pass  # a broker using the folder meanwhile may remove its oldest file
            except OSError as error:
                found.unreadable.append(FileTrouble("read", index_path(name), error))
    return found


def is_index_name(name: str) -> bool:
    return len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()


def next_index_name(now_ms: int, previous: str | None) -> str:
    """The name of a file made now, after `previous` even if the clock stepped back."""
    seconds, milliseconds = divmod(now_ms, 1_000)
    local = datetime.fromtimestamp(seconds, UTC).astimezone()
    name = f"{local:%Y%m%d%H%M%S}{milliseconds:03d}"
    if previous is None or name > previous:
        return name
    try:
        # The time zone does not matter for adding a millisecond.
        stem = datetime.strptime(previous[:-3], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:  # not a time, but a number that can be exceeded
        return f"{int(previous) + 1:0{_NAME_DIGITS}d}"
    after = stem + timedelta(milliseconds=int(previous[-3:]) + 1)
    return f"{after:%Y%m%d%H%M%S}{after.microsecond // 1_000:03d}"


def create_index_file(
    disk: Disk, name: str, geometry: IndexGeometry, header: IndexHeader
) -> IndexFileInfo:
    """[one thread at a time] A file without entries, durable. Raises OSError."""
    spare = spare_path(disk, INDEX_DIRECTORY, _NEW_FILE)
    file = disk.open_file(spare, create=True)
    try:
        file.truncate(0)
        file.truncate(geometry.file_bytes)
        file.write_at(0, (header.encode(),))
        file.datasync()
    finally:
        file.close()
    info = IndexFileInfo(name, header)
    if not disk.exists(INDEX_DIRECTORY):
        disk.make_directory(INDEX_DIRECTORY)
        disk.fsync_directory("")
    disk.rename(spare, info.path)
    disk.fsync_directory(INDEX_DIRECTORY)
    return info


def remove_index_files(disk: Disk, names: Sequence[str]) -> None:
    """[any thread] Durably; files that are already gone do not matter."""
    for name in names:
        if disk.exists(index_path(name)):
            disk.remove(index_path(name))
    if names:
        disk.fsync_directory(INDEX_DIRECTORY)


# ---------------------------------------------------------------------------------- the mark


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
    """None for bytes that are not a mark, or a damaged one."""
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
    """[one thread at a time] In place, less than a sector; its name becomes durable with the next
    fsync of the root."""
    file = disk.open_file(INDEX_MARK_FILE, create=True)
    file.write_at(0, (mark.encode(),))
    file.datasync()
    file.close()
