"""A disk that stops answering, for a real process: while a file exists, nothing is made durable.

In place of the system calls: a thread that syncs waits inside the call, as below a dead controller
or an unreachable network disk, and no error comes. Writes go on into the page cache, as there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from aerobee.broker.store.whole_sync import WholeSync

POLL_S = 0.02


def make_syncs_hang(mark: Path) -> None:
    """From now on, in this process, a sync waits while `mark` exists."""

    def waiting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def wait_and_sync(descriptor: int) -> None:
            while mark.exists():
                time.sleep(POLL_S)
            sync(descriptor)

        return wait_and_sync

    os.fsync = waiting(os.fsync)  # type: ignore[assignment]
    os.fdatasync = waiting(os.fdatasync)  # type: ignore[assignment]
    # It calls the library on its own.
    WholeSync.run = lambda self: False  # type: ignore[method-assign]
