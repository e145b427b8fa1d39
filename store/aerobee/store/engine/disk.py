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
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from aerobee.runtime.private_files import FILE_MODE, make_private_folder
from aerobee.store.engine.disk_lock import RealDiskLock, is_locked
from aerobee.store.engine.locked_pages import LockedPages
from aerobee.store.engine.whole_sync import WholeSync

BytesLike = bytes | bytearray | memoryview

_BUFFERS_PER_CALL_MAX = 1024
_TOUCH_BYTES = 64 * 1024
_ZEROS = bytes(1 << 20)
_PREALLOCATION_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory; `size_bytes` is 0 for directories. `modified_ms`: last write."""

    name: str
    size_bytes: int
    is_directory: bool
    modified_ms: int = field(default=0, compare=False)


class Advice(IntEnum):
    """How a range of a file will be used; the numbers are those of posix_fadvise."""

    NORMAL = os.POSIX_FADV_NORMAL
    RANDOM = os.POSIX_FADV_RANDOM  # for the whole handle: no read-ahead
    SEQUENTIAL = os.POSIX_FADV_SEQUENTIAL  # for the whole handle: twice the read-ahead
    WILL_NEED = os.POSIX_FADV_WILLNEED  # read it into the page cache, without waiting for it
    DONT_NEED = os.POSIX_FADV_DONTNEED  # drop its clean pages from the page cache


class DiskFile(Protocol):
    """An open file. Reads and writes name their offset, so threads may share a handle."""

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        """Write all of the buffers consecutively at `offset`, or raise OSError.

        After an error any part of the range may have been written."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """The bytes starting at `offset`; fewer than `size` only at the end of file. May block."""
        ...

    def read_into_nowait(self, offset: int, target: memoryview) -> bool:
        """Fill `target` from the page cache; False if any of it is not there."""
        ...

    def advise(self, offset: int, size: int, advice: Advice) -> None:
        """Tell the kernel what is coming; never changes bytes. `size` 0: to the end. May block."""
        ...

    def touch_pages(self, offset: int, size: int) -> None:
        """Bring the range's pages into the page cache, including space that was never written, so
        that a later write finds them there. Changes no bytes and dirties nothing. May block."""
        ...

    def lock_in_memory(self, offset: int, size: int) -> None:
        """Touch the range and keep it in memory until the handle closes. May block.

        Raises OSError: ENOMEM or EPERM above the process's limit (RLIMIT_MEMLOCK)."""
        ...

    def datasync(self) -> None:
        """Return once the file's bytes and length are on stable storage. May block."""
        ...

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, zero-filled, with its space reserved where possible.

        Raises OSError(ENOSPC) if the disk does not have that much."""
        ...

    def truncate(self, size: int) -> None:
        """Set the length; any growth is a hole."""
        ...

    def next_data(self, offset: int) -> int | None:
        """Where bytes may be non-zero, at or after `offset`; None if only holes follow."""
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
        """Creates parents, too; does nothing if it exists."""
        ...

    def fsync_directory(self, path: str) -> None:
        """Make created, renamed and removed names of the directory durable. May block."""
        ...

    def sync_all(self) -> bool:
        """True once every byte, length and name is on stable storage: one call instead of
        thousands. False if not supported: sync each file then. May block for long."""
        ...

    def is_apart(self, path: str) -> bool:
        """Whether a directory is on a file system other than the root's, so that nothing can be
        renamed between them. False if it does not exist."""
        ...

    def free_bytes(self) -> int:
        """How much this user may still write."""
        ...

    def total_bytes(self) -> int:
        """Used space plus what this user may still write: excludes what is reserved for the
        superuser, so that a disk is as full as `df` says."""
        ...

    def lock_file(self, path: str, content: bytes) -> DiskLock:
        """Take an exclusive lock on the first byte of `path`, which then contains `content`.

        Raises BlockingIOError if it is already held, in this process or another."""
        ...


class RealDiskFile:
    """A file descriptor."""

    __slots__ = ("_descriptor", "_locked", "_nowait_works")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._locked: LockedPages | None = None
        self._nowait_works = True

    def __del__(self) -> None:
        self.close()

    def write_at(self, offset: int, buffers: Sequence[BytesLike]) -> None:
        if len(buffers) > _BUFFERS_PER_CALL_MAX:
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
                self._nowait_works = False  # an in-memory file system: a plain read does not block
        return os.preadv(self._descriptor, (target,), offset) == len(target)

    def advise(self, offset: int, size: int, advice: Advice) -> None:
        os.posix_fadvise(self._descriptor, offset, size, advice)

    def touch_pages(self, offset: int, size: int) -> None:
        # Reading costs one more copy than populating a mapping, but populating holds the lock of
        # the whole address space, for which any large allocation of another thread would wait. One
        # call names the same small buffer many times, so that the interpreter's lock is not taken
        # between the pieces.
        scratch = memoryview(bytearray(_TOUCH_BYTES))
        end = offset + size
        while offset < end:
            pieces = [scratch] * min((end - offset) // _TOUCH_BYTES, _BUFFERS_PER_CALL_MAX)
            read = os.preadv(self._descriptor, pieces or (scratch[: end - offset],), offset)
            if read == 0:
                return
            offset += read

    def lock_in_memory(self, offset: int, size: int) -> None:
        if self._locked is None:
            self._locked = LockedPages()
        self._locked.lock(self._descriptor, offset, size)

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
        # Clean cached pages of a pre-allocated range look like data, and read-ahead brings in ever
        # more of them: a walk over a gigabyte of holes would read it all. Dirty pages stay.
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
        locked, self._locked = self._locked, None
        if locked is not None:
            locked.release()


def total_bytes(status: os.statvfs_result) -> int:
    """Used space plus free space that is not reserved for the superuser."""
    return (status.f_blocks - status.f_bfree + status.f_bavail) * status.f_frsize


class RealDisk:
    """The file system below one directory."""

    __slots__ = ("_whole_sync", "root")

    def __init__(self, root: Path | str) -> None:
        self.root = os.fspath(root)
        self._whole_sync: WholeSync | None = None

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
        return RealDiskFile(os.open(self._full(path), flags, FILE_MODE))

    def read_file(self, path: str) -> bytes:
        with open(self._full(path), "rb") as file:
            return file.read()

    def list(self, path: str) -> list[DirectoryEntry]:
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._full(path)) as entries:
            for entry in entries:
                is_directory = entry.is_dir()
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # removed meanwhile; this must not end the listing
                size = 0 if is_directory else status.st_size
                modified_ms = status.st_mtime_ns // 1_000_000
                found.append(DirectoryEntry(entry.name, size, is_directory, modified_ms))
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
        make_private_folder(self._full(path))

    def fsync_directory(self, path: str) -> None:
        descriptor = os.open(self._full(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def is_apart(self, path: str) -> bool:
        try:
            return os.stat(self._full(path)).st_dev != os.stat(self.root).st_dev
        except FileNotFoundError:
            return False

    def sync_all(self) -> bool:
        if any(self.is_apart(name) for name in os.listdir(self.root)):
            return False
        if self._whole_sync is None:
            self._whole_sync = WholeSync(self.root)
        return self._whole_sync.run()

    def free_bytes(self) -> int:
        status = os.statvfs(self.root)
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        return total_bytes(os.statvfs(self.root))

    def is_locked(self, path: str) -> bool:
        """Whether the lock of `lock_file` is held by anyone; takes and writes nothing."""
        return is_locked(self._full(path))

    def lock_file(self, path: str, content: bytes) -> DiskLock:
        return RealDiskLock(self._full(path), content)


def used_size(data: bytes) -> int:
    """The length of `data` without trailing zeros."""
    if len(data) <= len(_ZEROS) and data == _ZEROS[: len(data)]:  # compares at memory speed
        return 0
    return len(data.rstrip(b"\0"))
