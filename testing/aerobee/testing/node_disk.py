"""The disk of one life of a broker, in front of the disk that outlives it: it can hang, be full, or
be gone because the process is.

Faults are shared by all lives of a broker (`DiskFaults`); each life has its own `NodeDisk`, so that
whatever a killed broker still tries to do has no effect.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Sequence

from aerobee.store.engine.disk import Advice, BytesLike, DirectoryEntry, Disk, DiskFile, DiskLock


class Killed(BaseException):
    """The process is dead: whatever runs in it ends here. Not an Exception, so that no handler
    catches it."""


class DiskFaults:
    """The faults of a broker's disk. Set by a test, from any thread."""

    def __init__(self) -> None:
        self.is_full = False
        self._answers = threading.Event()
        self._answers.set()

    @property
    def is_hung(self) -> bool:
        return not self._answers.is_set()

    def hang(self) -> None:
        self._answers.clear()

    def answer(self) -> None:
        self._answers.set()

    def wait(self) -> None:
        """Anything that must reach the disk waits here."""
        self._answers.wait()

    def need_room(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class NodeDisk:
    """A `Disk`. With `waits`, a hung disk blocks the calling thread; otherwise its caller holds its
    jobs back."""

    def __init__(self, disk: Disk, faults: DiskFaults, *, waits: bool) -> None:
        self._disk = disk
        self.faults = faults
        self._waits = waits
        self._is_dead = False
        # Weak references: a file that nobody holds any more is closed.
        self._files: weakref.WeakSet[_NodeFile] = weakref.WeakSet()
        self._locks: list[DiskLock] = []

    def __str__(self) -> str:
        return str(self._disk)

    def kill(self) -> None:
        """What the kernel does for a dead process: descriptors are closed, locks are released."""
        self._is_dead = True
        for file in list(self._files):
            file.close()
        for lock in self._locks:
            lock.release()

    def check(self) -> None:
        if self._is_dead:
            raise Killed

    def sync(self) -> None:
        """Called before something is made durable."""
        self.check()
        if self._waits:
            self.faults.wait()
            self.check()

    # ---------------------------------------------------------------------------------- Disk

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        self.check()
        file = _NodeFile(self, self._disk.open_file(path, create=create, read_only=read_only), path)
        self._files.add(file)
        return file

    def read_file(self, path: str) -> bytes:
        self.check()
        return self._disk.read_file(path)

    def list(self, path: str) -> list[DirectoryEntry]:
        self.check()
        return self._disk.list(path)

    def exists(self, path: str) -> bool:
        self.check()
        return self._disk.exists(path)

    def rename(self, old: str, new: str) -> None:
        self.check()
        self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        self.check()
        self._disk.remove(path)

    def remove_directory(self, path: str) -> None:
        self.check()
        self._disk.remove_directory(path)

    def make_directory(self, path: str) -> None:
        self.check()
        self._disk.make_directory(path)

    def fsync_directory(self, path: str) -> None:
        self.sync()
        self._disk.fsync_directory(path)

    def sync_all(self) -> bool:
        self.sync()
        return self._disk.sync_all()

    def is_apart(self, path: str) -> bool:
        self.check()
        return self._disk.is_apart(path)

    def free_bytes(self) -> int:
        self.check()
        return 0 if self.faults.is_full else self._disk.free_bytes()

    def total_bytes(self) -> int:
        self.check()
        return self._disk.total_bytes()

    def lock_file(self, path: str, content: bytes) -> DiskLock:
        self.check()
        lock = self._disk.lock_file(path, content)
        self._locks.append(lock)
        return lock


class _NodeFile:
    """A file of a NodeDisk."""

    def __init__(self, disk: NodeDisk, file: DiskFile, path: str) -> None:
        self._disk = disk
        self._file = file
        self._path = path

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        self._disk.check()
        self._file.write_at(offset, buffers)

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.check()
        return self._file.read_at(offset, size)

    def read_into_nowait(self, offset: int, target: memoryview) -> bool:
        self._disk.check()
        return self._file.read_into_nowait(offset, target)

    def advise(self, offset: int, size: int, advice: Advice) -> None:
        self._disk.check()
        self._file.advise(offset, size, advice)

    def touch_pages(self, offset: int, size: int) -> None:
        self._disk.check()
        self._file.touch_pages(offset, size)

    def lock_in_memory(self, offset: int, size: int) -> None:
        self._disk.check()
        self._file.lock_in_memory(offset, size)

    def datasync(self) -> None:
        self._disk.sync()
        self._file.datasync()

    def allocate(self, size: int) -> None:
        self._disk.check()
        self._disk.faults.need_room(self._path)
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        self._disk.check()
        self._file.truncate(size)

    def next_data(self, offset: int) -> int | None:
        self._disk.check()
        return self._file.next_data(offset)

    def size(self) -> int:
        self._disk.check()
        return self._file.size()

    def close(self) -> None:
        self._file.close()
