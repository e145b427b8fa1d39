"""Pages of the log brought into the page cache before the append that fills them.

An append into pages that are not there yet makes the kernel find and clear memory, and on a virtual
machine the host find it, at a multiple of the price of the copy itself and on the event loop. Here
another thread does that ahead of the append, a few steps at a time, so that no more memory is held
than the next moments need. Nothing is written: bytes on the disk never change.
"""

from __future__ import annotations

import errno

from aerobee.broker.store.disk import DiskFile

STEP_BYTES = 4 * 1024 * 1024

_LOCK_REFUSED = frozenset({errno.ENOMEM, errno.EPERM, errno.EAGAIN})


class WarmUpWork:
    """Touches, or also locks, one step. `run` may be called on any thread."""

    __slots__ = ("_file", "_lock", "_offset", "_size", "end", "lock_error")

    def __init__(self, file: DiskFile, offset: int, size: int, *, end: int, lock: bool) -> None:
        """`offset` counts within the file, `end` is the same step's end within the log."""
        self._file = file
        self._offset = offset
        self._size = size
        self._lock = lock
        self.end = end
        self.lock_error: OSError | None = None

    def run(self) -> None:
        """[any thread] A refused lock is kept, not raised: the broker works without it."""
        if self._lock:
            try:
                self._file.lock_in_memory(self._offset, self._size)
                return
            except OSError as error:
                if error.errno not in _LOCK_REFUSED:
                    raise
                self.lock_error = error
        self._file.touch_pages(self._offset, self._size)
