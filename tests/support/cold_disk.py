"""A real folder whose sealed files are never in the page cache, and whose reads wait for a gate.

Files open for writing count as hot, as in reality. Counts where reads were waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from aerobee.store.engine.disk import Advice, BytesLike, DiskFile, RealDisk

GATE_TIMEOUT_S = 20.0


class ColdDisk(RealDisk):
    """`gate` is open at first; once closed, reads of cold files wait until it opens."""

    __slots__ = ("advices", "gate", "is_cold", "read_error", "reading_threads")

    def __init__(self, root: Path, is_cold: Callable[[str], bool] = lambda path: True) -> None:
        super().__init__(root)
        self.is_cold = is_cold
        self.gate = threading.Event()
        self.gate.set()
        self.read_error: OSError | None = None
        self.reading_threads: set[str] = set()
        self.advices: list[tuple[str, int, int, Advice]] = []

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = super().open_file(path, create=create, read_only=read_only)
        return ColdFile(self, path, file) if read_only and self.is_cold(path) else file


class ColdFile:
    """A file whose reads must be waited for."""

    def __init__(self, disk: ColdDisk, path: str, file: DiskFile) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.reading_threads.add(threading.current_thread().name)
        assert self._disk.gate.wait(GATE_TIMEOUT_S), "the test forgot to open the gate"
        if self._disk.read_error is not None:
            raise self._disk.read_error
        return self._file.read_at(offset, size)

    def read_into_nowait(self, offset: int, target: memoryview) -> bool:
        return False

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        self._file.write_at(offset, buffers)

    def advise(self, offset: int, size: int, advice: Advice) -> None:
        self._disk.advices.append((self._path, offset, size, advice))
        self._file.advise(offset, size, advice)

    def touch_pages(self, offset: int, size: int) -> None:
        self._file.touch_pages(offset, size)

    def lock_in_memory(self, offset: int, size: int) -> None:
        self._file.lock_in_memory(offset, size)

    def datasync(self) -> None:
        self._file.datasync()

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def next_data(self, offset: int) -> int | None:
        return self._file.next_data(offset)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()
