"""A file of a store, read at positions, while a broker may grow, zero or delete it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from aerobee.offset_audit.sources.store.files import StoreFile


class OpenFile:
    """An open file; positions are those of the sequence of files it belongs to.

    It stays readable when it is deleted. Reads end early where the file ends.
    """

    def __init__(self, file: StoreFile) -> None:
        """Raises FileNotFoundError if it was deleted."""
        self._descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        self.base = file.base

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def read(self, begin: int, end: int) -> bytes:
        """The bytes [begin, end), fewer if the file ends before."""
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

    def next_data(self, begin: int) -> int | None:
        """Where, from `begin` on, the file may hold other bytes than zeros; None: nowhere."""
        try:
            return self.base + os.lseek(self._descriptor, begin - self.base, os.SEEK_DATA)
        except OSError as error:
            # ENXIO: behind the last data. Others: this file system cannot say.
            return None if error.errno == 6 else begin
