"""Folders in memory, for tests that copy a store hundreds of times and break each copy.

For each new file, a file system such as ext4 skips the inodes of recently removed files one by one:
thousands of small files made and removed cost more time in the kernel than in the test. What these
tests check, the bytes and names of a folder, is the same in memory; tests of preallocation, of full
disks and of syncs use a disk.
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
    """An empty folder, deleted afterwards together with what is beside it."""
    with tempfile.TemporaryDirectory(prefix="aerobee-", dir=IN_MEMORY) as parent:
        folder = Path(parent) / "test"
        folder.mkdir()
        yield folder
