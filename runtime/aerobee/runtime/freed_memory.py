"""What the C library does with memory that Python has freed: it keeps some for reuse.

Source: mallopt(3). By default, glibc returns freed memory at the heap's end back to the kernel as
soon as there are a few MiB of it. A process that moves messages in frames of 512 KiB frees and
allocates constantly; each time the kernel clears the pages and maps them one by one, which costs
more than everything else done with the bytes.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

KEPT_BYTES: Final = 32 << 20
"""How much freed memory a process keeps at most."""

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
