"""An open file of the simulated disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from aerobee.store.engine.disk import Advice, BytesLike
from aerobee.testing.simulated_nodes import PAGE, FileNode
from aerobee.testing.simulated_power import PowerSupply


class FileSystem(PowerSupply):
    """What a file needs of its disk."""

    def __init__(self) -> None:
        super().__init__()
        # What file systems differ in.
        self.finds_holes = True
        self.syncs_all = True
        self.now_ms: Callable[[], int] = lambda: 0


class SimulatedFile:
    """A handle; it keeps working when the file loses its name."""

    __slots__ = ("_disk", "_is_closed", "_read_only", "node", "path")

    def __init__(self, disk: FileSystem, node: FileNode, path: str, *, read_only: bool) -> None:
        self._disk = disk
        self.node = node
        self.path = path
        self._read_only = read_only
        self._is_closed = False

    def _check(self, *, writing: bool) -> None:
        self._disk.check_power()
        if self._is_closed or (writing and self._read_only):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        self._check(writing=True)
        data = b"".join(buffers)
        sequence = self._disk.step("write", self.path, f"@{offset}+{len(data)}")
        error = self._disk.fault_of("write", self.path)
        if error is not None:
            # A short write before the error: it ends at a page, like those of a page cache.
            end = offset + len(data) // 2
            data = data[: max(0, end - end % PAGE - offset)]
        if data:
            self.node.write(sequence, offset, data)
            self.node.modified_ms = self._disk.now_ms()
        if error is not None:
            raise error

    def read_at(self, offset: int, size: int) -> bytes:
        self._check(writing=False)
        return self.node.read(offset, size)

    def read_into_nowait(self, offset: int, target: memoryview) -> bool:
        self._check(writing=False)
        data = self.node.read(offset, len(target))
        target[: len(data)] = data
        return len(data) == len(target)

    def advise(self, offset: int, size: int, advice: Advice) -> None:
        self._check(writing=False)
        if advice is Advice.DONT_NEED:
            self.node.drop_clean_pages(offset, offset + size if size else self.node.size + PAGE)

    def touch_pages(self, offset: int, size: int) -> None:
        self._check(writing=False)

    def lock_in_memory(self, offset: int, size: int) -> None:
        self._check(writing=False)

    def datasync(self) -> None:
        self._check(writing=False)
        sequence = self._disk.step("datasync", self.path)
        error = self._disk.fault_of("datasync", self.path)
        if error is not None:
            self.node.fail_sync(sequence)
            raise error
        if not self._disk.ignores("datasync", self.path):
            self.node.sync()

    def allocate(self, size: int) -> None:
        self._check(writing=True)
        sequence = self._disk.step("allocate", self.path, str(size))
        error = self._disk.fault_of("allocate", self.path)
        if error is not None:
            raise error
        if size > self.node.size:
            self.node.resize(sequence, size)

    def truncate(self, size: int) -> None:
        self._check(writing=True)
        sequence = self._disk.step("truncate", self.path, str(size))
        if size != self.node.size:
            self.node.resize(sequence, size)

    def next_data(self, offset: int) -> int | None:
        self._check(writing=False)
        self.node.drop_clean_pages(offset, self.node.size + PAGE)  # as the real one does
        if offset >= self.node.size:
            return None
        if not self._disk.finds_holes:
            return offset
        first = offset // PAGE
        found = min((index for index in self.node.pages if index >= first), default=None)
        return None if found is None else max(offset, found * PAGE)

    def size(self) -> int:
        self._check(writing=False)
        return self.node.size

    def close(self) -> None:
        self._is_closed = True
