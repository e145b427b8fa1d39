"""A disk that fails on command, and that knows what would be left of it after a power failure.

Everything happens on a RealDisk; in addition, what is known to be durable is tracked. A power
failure is modelled as on a journalling file system: changes of names and lengths reach the disk in
order, up to any point; written bytes reach it in any selection of sectors; only `datasync` and
`fsync_directory` give guarantees. A name is guaranteed only once its own directory was synced, so a
forgotten fsync of a directory loses files here.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.store.engine.disk import (
    Advice,
    BytesLike,
    DirectoryEntry,
    DiskFile,
    DiskLock,
    RealDisk,
)

SECTOR = 512
PathTest = Callable[[str], bool]


@dataclass(eq=False)
class Node:
    """A file or directory, whatever its present name."""

    is_directory: bool = False
    path: str = ""
    synced: bytes = b""
    # Since the last sync: (journal index, new length) and (offset, bytes).
    lengths: list[tuple[int, int]] = field(default_factory=list)
    writes: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass
class NameChange:
    """`node` appears under a name, or with None the name disappears."""

    path: str
    node: Node | None
    promised: bool = False


class FaultDisk:
    """The faults are plain attributes that a test sets and clears."""

    def __init__(self, root: Path) -> None:
        self._real = RealDisk(root)
        self.root = os.fspath(root)
        self._names: dict[str, Node] = {}
        self._journal: list[NameChange | None] = []
        self._adopt("")
        self.calls: list[tuple[str, str]] = []
        self.allocate_error: OSError | None = None
        self.read_error: tuple[PathTest, OSError] | None = None
        self.write_error: tuple[PathTest, OSError] | None = None
        self.datasync_error: tuple[PathTest, OSError] | None = None
        self.datasync_gate: threading.Event | None = None
        """Syncs wait until it is set."""
        self.lock_error: OSError | None = None
        self.free: int | None = None
        self.total: int | None = None
        self.can_sync_all = True
        # Weak references: a file that nothing holds any more is closed.
        self._files: weakref.WeakSet[FaultFile] = weakref.WeakSet()
        self._locks: list[DiskLock] = []

    def __str__(self) -> str:
        return self.root

    def _adopt(self, directory: str) -> None:
        """What already exists is durable."""
        for entry in self._real.list(directory):
            path = _join(directory, entry.name)
            if entry.is_directory:
                self._names[path] = Node(is_directory=True)
                self._adopt(path)
            else:
                self._names[path] = Node(path=path, synced=self._real.read_file(path))
            self._journal.append(NameChange(path, self._names[path], promised=True))

    # ------------------------------------------------------------------------------ Disk

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        file = self._real.open_file(path, create=create, read_only=read_only)
        if path not in self._names:
            self._name(path, Node())
        opened = FaultFile(self, self._names[path], file)
        self._files.add(opened)
        return opened

    def abandon(self) -> None:
        """What the kernel does when the process dies: closes every descriptor."""
        for file in list(self._files):
            file.close()
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    def read_file(self, path: str) -> bytes:
        return self._real.read_file(path)

    def list(self, path: str) -> list[DirectoryEntry]:
        return self._real.list(path)

    def exists(self, path: str) -> bool:
        return self._real.exists(path)

    def rename(self, old: str, new: str) -> None:
        self.calls.append(("rename", new))
        self._real.rename(old, new)
        # A file that is older than this disk object.
        node = self._names.pop(old, None) or Node()
        self._journal.append(NameChange(old, None))
        self._name(new, node)

    def remove(self, path: str) -> None:
        self.calls.append(("remove", path))
        self._real.remove(path)
        del self._names[path]
        self._journal.append(NameChange(path, None))

    def remove_directory(self, path: str) -> None:
        self._real.remove_directory(path)
        del self._names[path]
        self._journal.append(NameChange(path, None))

    def make_directory(self, path: str) -> None:
        self._real.make_directory(path)
        parts = path.split("/") if path else []
        for count in range(1, len(parts) + 1):
            part = "/".join(parts[:count])
            if part not in self._names:
                self._name(part, Node(is_directory=True))

    def fsync_directory(self, path: str) -> None:
        self.calls.append(("fsync_directory", path))
        self._real.fsync_directory(path)
        for change in self._journal:
            if change is not None and _parent(change.path) == path:
                change.promised = True

    def is_apart(self, path: str) -> bool:
        return False

    def sync_all(self) -> bool:
        self.calls.append(("sync_all", ""))
        if not self.can_sync_all:
            return False
        for path, node in self._names.items():
            if not node.is_directory and (node.writes or node.lengths):
                fault = self.datasync_error
                if fault is not None and fault[0](path):
                    raise fault[1]
                node.synced = self._real.read_file(path)
                node.writes.clear()
                node.lengths.clear()
        for change in self._journal:
            if change is not None:
                change.promised = True
        return True

    def free_bytes(self) -> int:
        return self._real.free_bytes() if self.free is None else self.free

    def total_bytes(self) -> int:
        return self._real.total_bytes() if self.total is None else self.total

    def lock_file(self, path: str, content: bytes) -> DiskLock:
        lock = self._real.lock_file(path, content)
        self._locks.append(lock)
        if path not in self._names:
            self._name(path, Node())
        self._names[path].synced = content
        return lock

    def _name(self, path: str, node: Node) -> None:
        self._names[path] = node
        node.path = path
        self._journal.append(NameChange(path, node))

    # ------------------------------------------------------------------------------ model

    def changed_length(self, node: Node, size: int) -> None:
        node.lengths.append((len(self._journal), size))
        self._journal.append(None)

    def cut_power(self, target: Path, chance: random.Random) -> None:
        """Write to `target` what the disk may hold after a power failure at this moment."""
        kept = chance.randint(0, len(self._journal))
        names: dict[str, Node] = {}
        for index, change in enumerate(self._journal):
            if change is None or not (change.promised or index < kept):
                continue
            if change.node is None:
                names.pop(change.path, None)
            else:
                names[change.path] = change.node
        target.mkdir()
        for path, node in sorted(names.items(), key=lambda item: item[0].count("/")):
            place = target / path
            if not place.parent.is_dir():
                continue  # the directory itself was lost
            if node.is_directory:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(_surviving_bytes(node, kept, chance))


class FaultFile:
    """A file of a FaultDisk."""

    def __init__(self, disk: FaultDisk, node: Node, file: DiskFile) -> None:
        self._disk = disk
        self._node = node
        self._file = file

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        self._disk.calls.append(("write", self._node.path))
        data = b"".join(buffers)
        fault = self._disk.write_error
        if fault is not None and fault[0](self._node.path):
            self._write(offset, data[: len(data) // 2])  # a short write before the error
            raise fault[1]
        self._write(offset, data)

    def _write(self, offset: int, data: bytes) -> None:
        size = self._file.size()
        self._file.write_at(offset, (data,))
        self._node.writes.append((offset, data))
        if offset + len(data) > size:
            self._disk.changed_length(self._node, offset + len(data))

    def read_at(self, offset: int, size: int) -> bytes:
        self._check_readable()
        return self._file.read_at(offset, size)

    def _check_readable(self) -> None:
        fault = self._disk.read_error
        if fault is not None and fault[0](self._node.path):
            raise fault[1]

    def read_into_nowait(self, offset: int, target: memoryview) -> bool:
        self._check_readable()
        return self._file.read_into_nowait(offset, target)

    def advise(self, offset: int, size: int, advice: Advice) -> None:
        self._file.advise(offset, size, advice)

    def touch_pages(self, offset: int, size: int) -> None:
        self._disk.calls.append(("touch", self._node.path))
        self._file.touch_pages(offset, size)

    def lock_in_memory(self, offset: int, size: int) -> None:
        self._disk.calls.append(("lock", self._node.path))
        if self._disk.lock_error is not None:
            raise self._disk.lock_error
        self._file.lock_in_memory(offset, size)

    def datasync(self) -> None:
        self._disk.calls.append(("datasync", self._node.path))
        fault = self._disk.datasync_error
        if fault is not None and fault[0](self._node.path):
            raise fault[1]
        gate = self._disk.datasync_gate
        if gate is not None:
            gate.wait(10)
        self._file.datasync()
        self._node.synced = self._file.read_at(0, self._file.size())
        self._node.writes.clear()
        self._node.lengths.clear()

    def allocate(self, size: int) -> None:
        if self._disk.allocate_error is not None:
            raise self._disk.allocate_error
        self._file.allocate(size)
        self._disk.changed_length(self._node, size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._disk.changed_length(self._node, size)

    def next_data(self, offset: int) -> int | None:
        return self._file.next_data(offset)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def broken() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


def _surviving_bytes(node: Node, kept: int, chance: random.Random) -> bytes:
    size = len(node.synced)
    for index, length in node.lengths:
        if index < kept:
            size = length
    data = bytearray(node.synced.ljust(size, b"\0"))
    for offset, written in node.writes:
        fate = chance.random()
        for start in range(0, len(written), SECTOR):
            if fate < 0.4 or (fate < 0.7 and chance.random() < 0.5):
                end = min(start + SECTOR, len(written), max(0, size - offset))
                data[offset + start : offset + end] = written[start:end]
    return bytes(data[:size])


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
