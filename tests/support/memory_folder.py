"""Folders in memory, for tests that copy a store hundreds of times and break each copy.

A file system such as ext4 passes over the inodes of what was removed within the last minutes, one
by one, at each new file: thousands of small files made and removed cost more time in the kernel
than in the test. What these tests look at, the bytes and names of a folder, is the same in memory;
those of preallocation, of full disks and of what a sync does have a disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_MEMORY = Path("/dev/shm")


def has_memory() -> bool:
    return IN_MEMORY.is_dir()


@contextmanager
def memory_folder() -> Iterator[Path]:
    """An empty folder that is gone afterwards, with what lies beside it."""
    with tempfile.TemporaryDirectory(prefix="aerobee-", dir=IN_MEMORY) as parent:
        folder = Path(parent) / "test"
        folder.mkdir()
        yield folder
