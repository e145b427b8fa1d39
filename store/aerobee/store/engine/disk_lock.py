"""The lock that keeps two processes out of one folder."""

from __future__ import annotations

import fcntl
import os
import struct

from aerobee.runtime.private_files import FILE_MODE

# struct flock as in the kernel's 64-bit interface: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")


class RealDiskLock:
    """A lock that belongs to the open file, not to the process, so it also excludes other opens by
    this process.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, path: str, content: bytes) -> None:
        """Lock the first byte of the file at `path`, which then holds `content`.

        Raises BlockingIOError if it is already held; OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            # Also conflicts with the process-wide record locks that a JVM takes.
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _first_byte())
            if os.pread(descriptor, len(content) + 1, 0) != content:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content, 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def is_locked(path: str) -> bool:
    """Whether anyone holds that lock; takes and writes nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _first_byte())
    finally:
        os.close(descriptor)
    kind: int = _FLOCK.unpack(found)[0]
    return kind != fcntl.F_UNLCK


def _first_byte() -> bytes:
    return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
