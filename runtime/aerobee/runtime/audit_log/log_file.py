"""The files of one audit log: appended to, renamed when they get large, the oldest removed.

    audit.log                   is written
    audit.log.000000004712      earlier ones, by the number of their first line

Blocks, and belongs to one thread at a time. Invariant: a file ends with a whole line, or with a
torn one that the next `open` or `append` cuts off and that was never confirmed.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aerobee.runtime.audit_log.chain import (
    BEGINNING,
    LINE_BYTES_MAX,
    Key,
    Place,
    UnreadableLine,
    line_after,
    read_line,
)
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.private_files import FILE_MODE, make_private_folder

_DIGITS: Final = 12
Content = Mapping[str, Any]


def earlier_files(path: Path) -> list[Path]:
    """The renamed files, oldest first."""
    found = path.parent.glob(f"{path.name}.{'[0-9]' * _DIGITS}")
    return sorted(found)


class AuditLogFile:
    """The file being written; locked against other processes."""

    def __init__(self, path: Path, *, bytes_max: int, files_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._file = -1
        self._first = 1
        """Number of the first line in the file."""
        self._size = 0
        """Everything after this is torn."""
        self._has_rest = False
        """The rest of a failed append could not be cut off."""
        self.place = BEGINNING

    def open(self) -> int:
        """Continue the chain where it ends; returns how many bytes of a torn line were cut off.

        Raises:
            InvalidArgument: the file cannot be used; says why.
        """
        try:
            make_private_folder(self._path.parent)
            self._take()
            torn = self._read_end()
            os.ftruncate(self._file, self._size)
            self._sync_folder()
        except OSError as error:
            self.close()
            raise InvalidArgument(
                f"cannot write the audit log {self._path}: {error.strerror or error}; correct "
                "audit_log.file or its folder"
            ) from None
        return torn

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def append(self, contents: Sequence[Content], key: Key | None, *, is_durable: bool) -> Place:
        """Write lines, synced to disk if `is_durable`; returns the place of the chain.

        Raises:
            OSError: none of them is in the log.
        """
        contents = [*self._found_out(), *contents]
        if self._size >= self._bytes_max:
            self._begin_next()  # not before there is a line for it: an empty file was emptied
        place, lines = self.place, bytearray()
        for content in contents:
            line, place = line_after(place, content, key)
            lines += line
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if is_durable:
                os.fdatasync(self._file)
        except OSError:
            self._has_rest = True
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
                self._has_rest = False
            raise
        self.place = place
        self._size += len(lines)
        return place

    def _take(self) -> None:
        """Raises OSError, InvalidArgument."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._file = os.open(self._path, flags, FILE_MODE)
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise OSError(0, "it is not a regular file")
        os.fchmod(self._file, FILE_MODE)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(0, "another process writes it, and each node needs its own") from None

    def _read_end(self) -> int:
        """Find the end of chain and file; returns how many bytes come after the last whole line."""
        size = os.fstat(self._file).st_size
        first = os.pread(self._file, LINE_BYTES_MAX, 0).partition(b"\n")[0]
        last = os.pread(self._file, LINE_BYTES_MAX, max(0, size - LINE_BYTES_MAX))
        torn = len(last) - (last.rfind(b"\n") + 1)
        self._size = size - torn
        self.place = _last_place(last)
        if self.place is BEGINNING and (earlier := earlier_files(self._path)):
            # It was killed between renaming one file and creating the next; or nothing in this one
            # can be read, which a check of the chain reports.
            data = earlier[-1].read_bytes()[-LINE_BYTES_MAX:]
            self.place = _last_place(data)
        self._first = self.place.sequence + 1
        with suppress(UnreadableLine):
            self._first = read_line(first).place.sequence
        return torn

    def _found_out(self) -> list[Content]:
        """What others did to the file since the last append, as lines to write. Raises OSError."""
        try:
            is_there = self._file >= 0 and os.path.samestat(
                os.stat(self._path), os.fstat(self._file)
            )
        except FileNotFoundError:
            is_there = False
        if not is_there:
            self.close()
            make_private_folder(self._path.parent)
            self._take()
            self._first, self._size = self.place.sequence + 1, os.fstat(self._file).st_size
            self._end_line()
            return [{"event": "disturbed", "why": "the file was removed or replaced"}]
        if self._has_rest:
            os.ftruncate(self._file, self._size)
            self._has_rest = False
        size = os.fstat(self._file).st_size
        if size == self._size:
            return []
        why = f"the file had {size} bytes and not {self._size}"
        self._size = size
        self._end_line()
        return [{"event": "disturbed", "why": why}]

    def _end_line(self) -> None:
        """End a line that others wrote, so that ours begin on a new line."""
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._size += os.write(self._file, b"\n")

    def _sync_folder(self) -> None:
        """A new file is durable only once its folder is synced. Raises OSError."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _begin_next(self) -> None:
        """If this fails, nothing is lost: the file keeps growing."""
        with suppress(OSError):
            earlier = self._path.with_name(f"{self._path.name}.{self._first:0{_DIGITS}}")
            former = self._file
            os.rename(self._path, earlier)
            self._take()
            os.close(former)
            self._size, self._first = 0, self.place.sequence + 1
            self._sync_folder()
            for path in earlier_files(self._path)[: -(self._files_max - 1)]:
                path.unlink()


def written_as(path: Path) -> Path:
    """The name of a file while it was being written."""
    is_earlier = len(path.suffix) == _DIGITS + 1 and path.suffix[1:].isdigit()
    return path.with_suffix("") if is_earlier else path


def _last_place(data: bytes) -> Place:
    """The place of the last readable line near the end of a file."""
    for line in reversed(data.split(b"\n")):
        with suppress(UnreadableLine):
            return read_line(line).place
    return BEGINNING
