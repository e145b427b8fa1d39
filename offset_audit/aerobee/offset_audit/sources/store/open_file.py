"""A file of a store, read by position, while a broker may grow, zero or delete it."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from aerobee.offset_audit.sources.store.files import StoreFile

_READ_BYTES: Final = 4 * 1024 * 1024
_OPEN_MAX: Final = 64


class _Closing:
    """Closed when a `with` is left."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class OpenFile(_Closing):
    """An open file; positions are those of the sequence of files to which it belongs.

    It stays readable when it is deleted. Reads end early where the file ends.
    """

    def __init__(self, file: StoreFile) -> None:
        """Raises FileNotFoundError if it was deleted."""
        self._descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        self.base = file.base

    def close(self) -> None:
        os.close(self._descriptor)

    def read(self, begin: int, end: int) -> bytes:
        """The bytes [begin, end), fewer if the file ends earlier."""
        at = begin - self.base
        left = end - begin
        parts: list[bytes] = []
        while left > 0:
            part = os.pread(self._descriptor, left, at)
            if not part:
                break
            parts.append(part)
            at += len(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def used_end(self, begin: int, end: int) -> int:
        """The end of the last byte in [begin, end) that is not zero; `begin` if there is none.

        What was never written is not read, so a file created at its full length costs no more than
        a short one, on file systems that can tell.
        """
        end = min(end, self._data_end(begin, end))
        while end > begin:
            at = max(begin, end - _READ_BYTES)
            if used := used_size(self.read(at, end)):
                return at + used
            end = at
        return begin

    def _data_end(self, begin: int, end: int) -> int:
        """The end of the last byte in [begin, end) that may not be zero."""
        return max((until for _, until in self.data_ranges(begin, end)), default=begin)

    def data_ranges(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Where [begin, end) may have other bytes than zeros: beginnings and ends, the last of
        which may be after `end`."""
        at = begin
        try:
            while at < end:
                data = os.lseek(self._descriptor, at - self.base, os.SEEK_DATA)
                at = self.base + os.lseek(self._descriptor, data, os.SEEK_HOLE)
                yield self.base + data, at
        except OSError as error:
            # ENXIO: after the last data. Others: this file system cannot say.
            if error.errno != errno.ENXIO:
                yield at, end

    def next_data(self, begin: int) -> int | None:
        """Where, from `begin` on, the file may contain other bytes than zeros; None: nowhere."""
        try:
            return self.base + os.lseek(self._descriptor, begin - self.base, os.SEEK_DATA)
        except OSError as error:
            # ENXIO: after the last data. Others: this file system cannot say.
            return None if error.errno == errno.ENXIO else begin


class OpenFiles(_Closing):
    """A sequence of files, each opened when it is first read, and closed together."""

    def __init__(self, files: Iterable[StoreFile]) -> None:
        self.files = list(files)
        self.bases = [file.base for file in self.files]
        self._open: dict[int, OpenFile | None] = {}

    def close(self) -> None:
        """They are opened again on demand."""
        for file in self._open.values():
            if file is not None:
                file.close()
        self._open.clear()

    def index_of(self, position: int) -> int:
        """The last file that begins at or before a position; -1 if all begin later."""
        return bisect_right(self.bases, position) - 1

    def opened(self, index: int) -> OpenFile | None:
        """None if it was deleted before it was first read."""
        if index not in self._open:
            if len(self._open) >= _OPEN_MAX:
                self.close()
            try:
                self._open[index] = OpenFile(self.files[index])
            except FileNotFoundError:
                self._open[index] = None
        return self._open[index]

    def read(self, position: int, size: int) -> bytes:
        """Fewer bytes at a file's end, and none if it was deleted."""
        index = self.index_of(position)
        file = None if index < 0 else self.opened(index)
        return b"" if file is None else file.read(position, position + size)


def read_used(file: StoreFile, spare: int) -> bytes:
    """A whole file without the zeros at its end, but for `spare` bytes of them.

    Raises:
        FileNotFoundError: it was deleted.
    """
    with OpenFile(file) as opened:
        used = opened.used_end(file.base, file.base + file.size)
        return opened.read(file.base, min(used + spare, file.base + file.size))


def used_size(data: bytes) -> int:
    """How many bytes there are up to the last that is not zero."""
    # Comparing is much faster than stripping, and most of the input is zeros.
    return 0 if data == bytes(len(data)) else len(data.rstrip(b"\0"))
