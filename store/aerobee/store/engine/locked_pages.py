"""Page-cache pages of a file that the kernel must not evict.

Owns: the mappings that hold the locks; unmapping releases them. The interpreter offers no mlock,
so the C library is called directly, which also lets other threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

_MAP_FAILED = ctypes.c_void_p(-1).value


class LockedPages:
    """The locked ranges of one file; made with the first `lock`."""

    __slots__ = ("_libc", "_mappings")

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        self._libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._mappings: list[tuple[int, int]] = []

    def lock(self, descriptor: int, offset: int, size: int) -> None:
        """Bring the pages of the range into memory and keep them there.

        Raises OSError: ENOMEM or EPERM if the process may not lock that much (RLIMIT_MEMLOCK).
        """
        start = offset - offset % mmap.PAGESIZE
        length = offset + size - start
        address = self._libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
        if address in (None, _MAP_FAILED):
            raise _last_error()
        if self._libc.mlock(address, length) != 0:
            error = _last_error()
            self._libc.munmap(address, length)
            raise error
        self._mappings.append((address, length))

    def release(self) -> None:
        """Release all locks."""
        for address, length in self._mappings:
            self._libc.munmap(address, length)
        self._mappings.clear()


def _last_error() -> OSError:
    code = ctypes.get_errno() or errno.ENOMEM
    return OSError(code, os.strerror(code))
