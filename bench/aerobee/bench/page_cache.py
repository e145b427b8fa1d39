"""Files made cold again, as far as this process is allowed to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def sealed_files(store: Path) -> list[Path]:
    """A store's log segments without the one that is being written, and its consume queues."""
    segments = sorted((store / "commitlog").iterdir())
    queues = [path for path in sorted((store / "consumequeue").rglob("*")) if path.is_file()]
    return [*segments[:-1], *queues]


def drop_from_page_cache(files: Iterable[Path]) -> int:
    """Sync the files and drop them from the page cache; the number of bytes."""
    dropped = 0
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            dropped += os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    return dropped
