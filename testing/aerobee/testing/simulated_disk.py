"""A disk wholly in memory, whose power can be cut between any two operations.

It behaves like a file system while it has power, and knows what would survive: see power_failure.py
for the rules. Every change is a step, see simulated_power.py. Nothing here depends on time or
chance, so the same calls lead to the same disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from aerobee.store.engine.disk import DirectoryEntry, DiskFile, DiskLock
from aerobee.testing.power_failure import Fate, surviving_tree
from aerobee.testing.simulated_file import FileSystem, SimulatedFile
from aerobee.testing.simulated_nodes import DirectoryNode, FileNode, NameChange, Node


class SimulatedDisk(FileSystem):
    def __init__(self, root: DirectoryNode | None = None) -> None:
        super().__init__()
        self._root = root or DirectoryNode()
        self._journal: list[NameChange] = []
        # Name changes up to this one were promised to survive in at least one directory.
        self._promised = 0
        self.free = 1 << 40
        self.total = 1 << 41

    def __str__(self) -> str:
        return "the simulated disk"

    # ------------------------------------------------------------------------------ power

    def revive(self) -> None:
        """The process that used the disk is gone, the machine is not: what was visible remains."""
        self.is_dead = False
        self.power_ends_at = None
        for node, _ in self._files():
            node.is_locked = False

    @property
    def sequence_range(self) -> tuple[int, int]:
        """The arguments of `draw_fate`: promised up to, and the end."""
        return self._promised, self.sequence

    def after_power_failure(self, fate: Fate) -> SimulatedDisk:
        """A new disk with what survives; this one must not be used any more."""
        self.is_dead = True
        tree, _ = surviving_tree(self._root, self._journal, fate)
        disk = SimulatedDisk(tree)
        return disk._like(self)

    def _like(self, other: SimulatedDisk) -> SimulatedDisk:
        self.finds_holes, self.syncs_all = other.finds_holes, other.syncs_all
        self.free, self.total, self.now_ms = other.free, other.total, other.now_ms
        return self

    def copy(self) -> SimulatedDisk:
        """Another disk with the visible content, all of it durable."""

        def copied(node: Node) -> Node:
            if isinstance(node, FileNode):
                file = FileNode()
                file.pages = {index: bytearray(page) for index, page in node.pages.items()}
                file.size, file.modified_ms = node.size, node.modified_ms
                file.dirty.update(file.pages)
                file.sync()
                return file
            directory = DirectoryNode()
            directory.names = {name: copied(child) for name, child in node.names.items()}
            directory.durable = dict(directory.names)
            return directory

        root = copied(self._root)
        assert isinstance(root, DirectoryNode)
        disk = SimulatedDisk(root)
        return disk._like(self)

    def state(self) -> object:
        """Equal for two disks that look the same to a process. For comparing or hashing."""
        directories: list[tuple[str, DirectoryNode]] = [("", self._root)]
        found: list[tuple[object, ...]] = []
        for path, directory in directories:
            for name, node in sorted(directory.names.items()):
                place = f"{path}/{name}"
                if isinstance(node, DirectoryNode):
                    directories.append((place, node))
                    found.append((place,))
                else:
                    pages = tuple((index, bytes(node.pages[index])) for index in sorted(node.pages))
                    found.append((place, node.size, node.modified_ms, pages))
        return tuple(found)

    # ------------------------------------------------------------------------------ Disk

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        self.check_power()
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            if not create:
                raise _missing(path)
            sequence = self.step("create", path)
            self._raise_fault("create", path)
            node = FileNode()
            node.modified_ms = self.now_ms()
            self._rename(NameChange(sequence, directory, ((name, node),)))
        if isinstance(node, DirectoryNode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return SimulatedFile(self, node, path, read_only=read_only)

    def read_file(self, path: str) -> bytes:
        self.check_power()
        node = self._node(path)
        if not isinstance(node, FileNode):
            raise _missing(path)
        return node.read(0, node.size)

    def list(self, path: str) -> list[DirectoryEntry]:
        self.check_power()
        node = self._node(path)
        if not isinstance(node, DirectoryNode):
            return []
        return [
            DirectoryEntry(name, child.size, False, child.modified_ms)
            if isinstance(child, FileNode)
            else DirectoryEntry(name, 0, True)
            for name, child in sorted(node.names.items())
        ]

    def exists(self, path: str) -> bool:
        self.check_power()
        return self._node(path) is not None

    def rename(self, old: str, new: str) -> None:
        directory, name = self._parent(old)
        target, new_name = self._parent(new)
        if name not in directory.names:
            raise _missing(old)
        sequence = self.step("rename", old, f"-> {new}")
        self._raise_fault("rename", new)
        node = directory.names[name]
        if target is directory:
            self._rename(NameChange(sequence, directory, ((name, None), (new_name, node))))
        else:
            self._rename(NameChange(sequence, target, ((new_name, node),)))
            self._rename(NameChange(sequence, directory, ((name, None),)))

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        if not isinstance(directory.names.get(name), FileNode):
            raise _missing(path)
        sequence = self.step("remove", path)
        self._rename(NameChange(sequence, directory, ((name, None),)))

    def remove_directory(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if not isinstance(node, DirectoryNode):
            raise _missing(path)
        if node.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        sequence = self.step("rmdir", path)
        self._rename(NameChange(sequence, directory, ((name, None),)))

    def make_directory(self, path: str) -> None:
        self.check_power()
        directory = self._root
        parts = path.split("/") if path else []
        for count, name in enumerate(parts, start=1):
            node = directory.names.get(name)
            if node is None:
                sequence = self.step("mkdir", "/".join(parts[:count]))
                self._raise_fault("mkdir", path)
                node = DirectoryNode()
                self._rename(NameChange(sequence, directory, ((name, node),)))
            if isinstance(node, FileNode):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def fsync_directory(self, path: str) -> None:
        node = self._node(path)
        if not isinstance(node, DirectoryNode):
            raise _missing(path)
        sequence = self.step("fsync_directory", path or ".")
        self._raise_fault("fsync_directory", path)
        if self.ignores("fsync_directory", path):
            return
        rest = []
        for change in self._journal:
            if change.directory is not node:
                rest.append(change)
                continue
            _make_durable(change)
        if len(rest) < len(self._journal):
            self._promised = sequence
        self._journal = rest

    def is_apart(self, path: str) -> bool:
        return False

    def sync_all(self) -> bool:
        self.check_power()
        if not self.syncs_all:
            return False
        sequence = self.step("sync_all", ".")
        error = self.fault_of("sync_all", "")
        if error is not None:
            for node, _ in self._files():
                node.fail_sync(sequence)
            raise error
        if self.ignores("sync_all", ""):
            return True
        for node, _ in self._files():
            node.sync()
        for change in self._journal:
            _make_durable(change)
        self._journal = []
        self._promised = sequence
        return True

    def free_bytes(self) -> int:
        self.check_power()
        return self.free

    def total_bytes(self) -> int:
        return self.total

    def lock_file(self, path: str, content: bytes) -> DiskLock:
        file = self.open_file(path, create=True)
        assert isinstance(file, SimulatedFile)
        if file.node.is_locked:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if file.read_at(0, len(content) + 1) != content:
            file.truncate(0)
            file.write_at(0, (content,))
        file.node.is_locked = True
        return _Lock(file.node)

    def is_locked(self, path: str) -> bool:
        node = self._node(path)
        return isinstance(node, FileNode) and node.is_locked

    # ------------------------------------------------------------------------------ names

    def _rename(self, change: NameChange) -> None:
        for name, node in change.names:
            if node is None:
                change.directory.names.pop(name, None)
            else:
                change.directory.names[name] = node
        self._journal.append(change)

    def _raise_fault(self, operation: str, path: str) -> None:
        error = self.fault_of(operation, path)
        if error is not None:
            raise error

    def _node(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in path.split("/") if path else ():
            if not isinstance(node, DirectoryNode):
                return None
            node = node.names.get(name)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        self.check_power()
        directory, _, name = path.rpartition("/")
        node = self._node(directory)
        if not isinstance(node, DirectoryNode):
            raise _missing(path)
        return node, name

    def _files(self) -> Iterator[tuple[FileNode, str]]:
        waiting: list[tuple[Node, str]] = [(self._root, "")]
        while waiting:
            node, path = waiting.pop()
            if isinstance(node, FileNode):
                yield node, path
            else:
                for name, child in node.names.items():
                    waiting.append((child, f"{path}/{name}" if path else name))

    def contents(self, prefix: str = "") -> dict[str, bytes]:
        """Path -> bytes of all files whose path starts like this."""
        return {
            path: node.read(0, node.size) for node, path in self._files() if path.startswith(prefix)
        }


class _Lock:
    def __init__(self, node: FileNode) -> None:
        self._node = node

    def release(self) -> None:
        self._node.is_locked = False


def _make_durable(change: NameChange) -> None:
    for name, node in change.names:
        if node is None:
            change.directory.durable.pop(name, None)
        else:
            change.directory.durable[name] = node


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
