"""A disk that stops responding, for a real process: while a file exists, nothing becomes durable.

Replaces the system calls: a thread that syncs waits inside the call, as with a dead controller or
an unreachable network disk, and no error is raised. Writes still go into the page cache, as they
would there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from aerobee.store.engine.whole_sync import WholeSync

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
    # It calls the C library directly.
    WholeSync.run = lambda self: False  # type: ignore[method-assign]
