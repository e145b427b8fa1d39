"""What the store needs of a file system, and the real one.

Owns: every system call of the store. All paths are relative to the disk's root, with `/` between
the parts; `""` is the root itself. Nothing here retries or hides an error: an OSError reaches the
store, which decides what it means.

A file handle closes when `close` is called or when its last holder lets go, so a cache may forget a
handle while a reader still uses it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BytesLike = bytes | bytearray | memoryview

# struct flock as the kernel's 64-bit interface wants it: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")
_BUFFERS_PER_WRITE_MAX = 1024
_PREALLOCATION_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory; `size_bytes` is 0 for directories."""

    name: str
    size_bytes: int
    is_directory: bool


class DiskFile(Protocol):
    """An open file. Reads and writes name their offset, so threads may share a handle."""

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        """Write all of the buffers one after the other at `offset`, or raise OSError.

        After an error any part of the range may have been written."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """The bytes from `offset` on; fewer than `size` only at the end of the file. May block."""
        ...

    def read_into_nowait(self, offset: int, target: memoryview) -> bool:
        """Fill `target` from the page cache; False if any of it is not there."""
        ...

    def datasync(self) -> None:
        """Return once the file's bytes and length are on stable storage. May block."""
        ...

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, zero-filled, with its space reserved where possible.

        Raises OSError(ENOSPC) when the disk has not that much."""
        ...

    def truncate(self, size: int) -> None:
        """Set the length; growth is a hole."""
        ...

    def next_data(self, offset: int) -> int | None:
        """Where bytes may be non-zero, at or behind `offset`; None if only holes follow."""
        ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class DiskLock(Protocol):
    """An exclusive lock held until released or until the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A directory tree."""

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open for reading and writing (or reading only); FileNotFoundError without `create`."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def list(self, path: str) -> list[DirectoryEntry]:
        """The entries sorted by name; empty if the directory does not exist."""
        ...

    def exists(self, path: str) -> bool: ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new`."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def make_directory(self, path: str) -> None:
        """With its parents; nothing happens if it is there."""
        ...

    def fsync_directory(self, path: str) -> None:
        """Make created, renamed and removed names of the directory durable. May block."""
        ...

    def free_bytes(self) -> int:
        """What this user may still write."""
        ...

    def total_bytes(self) -> int: ...

    def lock_file(self, path: str, content: bytes) -> DiskLock:
        """Hold an exclusive lock on the first byte of `path`, which then contains `content`.

        Raises BlockingIOError if anybody else holds it, in this process or another."""
        ...


class RealDiskFile:
    """A file descriptor."""

    __slots__ = ("_descriptor", "_nowait_works")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._nowait_works = True

    def __del__(self) -> None:
        self.close()

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        if len(buffers) > _BUFFERS_PER_WRITE_MAX:
            buffers = (b"".join(buffers),)
        wanted = 0
        for buffer in buffers:
            wanted += len(buffer)
        written = os.pwritev(self._descriptor, buffers, offset)
        if written != wanted:
            self._write_rest(offset, b"".join(buffers), written)

    def _write_rest(self, offset: int, data: bytes, written: int) -> None:
        rest = memoryview(data)
        while written < len(rest):
            progress = os.pwrite(self._descriptor, rest[written:], offset + written)
            if progress == 0:
                raise OSError(errno.EIO, "the disk took no bytes and gave no reason")
            written += progress

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        read = len(data)
        while read < size and (part := os.pread(self._descriptor, size - read, offset + read)):
            parts.append(part)
            read += len(part)
        return b"".join(parts)

    def read_into_nowait(self, offset: int, target: memoryview) -> bool:
        if self._nowait_works:
            try:
                return os.preadv(self._descriptor, (target,), offset, os.RWF_NOWAIT) == len(target)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self._nowait_works = False  # a file system in memory: a plain read does not block
        return os.preadv(self._descriptor, (target,), offset) == len(target)

    def datasync(self) -> None:
        os.fdatasync(self._descriptor)

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            if error.errno not in _PREALLOCATION_UNSUPPORTED:
                raise
            os.ftruncate(self._descriptor, size)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def next_data(self, offset: int) -> int | None:
        # Clean cached pages of a pre-allocated range pass for data, and read-ahead brings ever more
        # of them: a walk over a gigabyte of holes would read it all. Dirty pages stay.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(self._descriptor, offset, 0, os.POSIX_FADV_DONTNEED)
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno == errno.EINVAL:  # not supported here: anything may be data
                return offset if offset < self.size() else None
            raise

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDiskLock:
    """A lock that belongs to the open file, not to the process, so it also guards against
    ourselves.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDisk:
    """The file system below one directory."""

    __slots__ = ("root",)

    def __init__(self, root: Path | str) -> None:
        self.root = os.fspath(root)

    def __repr__(self) -> str:
        return f"RealDisk({self.root!r})"

    def __str__(self) -> str:
        return self.root

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT
        return RealDiskFile(os.open(self._full(path), flags, 0o644))

    def read_file(self, path: str) -> bytes:
        with open(self._full(path), "rb") as file:
            return file.read()

    def list(self, path: str) -> list[DirectoryEntry]:
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._full(path)) as entries:
            for entry in entries:
                is_directory = entry.is_dir()
                size = 0 if is_directory else entry.stat().st_size
                found.append(DirectoryEntry(entry.name, size, is_directory))
        return sorted(found, key=lambda entry: entry.name)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._full(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._full(old), self._full(new))

    def remove(self, path: str) -> None:
        os.unlink(self._full(path))

    def remove_directory(self, path: str) -> None:
        os.rmdir(self._full(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(self._full(path), exist_ok=True)

    def fsync_directory(self, path: str) -> None:
        descriptor = os.open(self._full(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_blocks * status.f_frsize

    def lock_file(self, path: str, content: bytes) -> DiskLock:
        descriptor = os.open(self._full(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Conflicts with the process-wide record locks that a JVM takes, too.
            wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
            if os.pread(descriptor, len(content) + 1, 0) != content:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content, 0)
        except BaseException:
            os.close(descriptor)
            raise
        return RealDiskLock(descriptor)
