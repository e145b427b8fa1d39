"""What the C library does with memory that Python has freed: it keeps some for reuse.

Source: mallopt(3). By default, glibc returns freed memory at the heap's end back to the kernel as
soon as there are a few MiB of it. A process that moves messages in frames of 512 KiB frees and
allocates constantly; each time the kernel clears the pages and maps them one by one, which costs
more than everything else done with the bytes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from aerobee.runtime.beat import next_beat

KEPT_BYTES: Final = 32 << 20
"""How much freed memory a process keeps at most."""

UNUSED_BYTES_MIN: Final = 48 << 20
"""Less is not worth a call, which takes about 0.2 ms for each MiB that it gives back."""
_LOOK_S: Final = 2.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = Path("/proc/self/statm")
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8


def keep_freed_memory() -> bool:
    """Applies to this process from now on; False if the C library has no such setting. Call it
    before starting threads: each would have a heap of its own, with its own freed memory."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl
        return False
    # Both thresholds: setting only one ends glibc's own adjustment of the other.
    settings = ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, 1))
    return all(mallopt(name, value) for name, value in settings)


class _Usage(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    )  # fmt: skip


class FreedMemory:
    """Gives back to the system what a peak has left behind: thousands of handshakes or requests
    that have ended leave free pages between what is still used, which the C library keeps for good.

    Does nothing where the C library is not glibc.
    """

    def __init__(self) -> None:
        self._libc: ctypes.CDLL | None = None
        if sys.platform.startswith("linux"):
            try:
                libc = ctypes.CDLL(None)
                libc.mallinfo2.restype = _Usage
                libc.malloc_trim.argtypes = (ctypes.c_size_t,)
                self._libc = libc
            except (OSError, AttributeError):  # musl, or a glibc before 2.33
                pass
        self._kept_bytes = 0
        """What could not be given back the last time."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """On the running loop: look every few seconds."""
        if self._libc is not None:
            self._look()

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def give_back(self) -> bool:
        """Give back what is not used, if it is much; whether it was."""
        unused_bytes = self._unused_bytes()
        if self._libc is None or unused_bytes < self._kept_bytes + UNUSED_BYTES_MIN:
            self._kept_bytes = min(self._kept_bytes, max(0, unused_bytes))
            return False
        self._libc.malloc_trim(0)
        self._kept_bytes = max(0, self._unused_bytes())
        return True

    def _unused_bytes(self) -> int:
        """Free pages of the C library's main heap that the process still holds; an estimate."""
        if self._libc is None:
            return 0
        usage = self._libc.mallinfo2()
        _, resident, shared, *_ = map(int, _STATM.read_text().split())
        return min(int(usage.fordblks), (resident - shared) * _PAGE_BYTES - int(usage.uordblks))

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(next_beat(loop.time(), _LOOK_S), self._look)
        self.give_back()
