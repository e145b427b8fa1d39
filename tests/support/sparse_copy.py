"""Copies of folders whose files have holes: a timer log is 100 MiB long and has a few KiB of data.

`shutil.copytree` writes the holes, too.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def copy_folder(source: Path, target: Path, *unwanted: str) -> Path:
    """All of `source` but what has an unwanted name. `target` must not exist."""
    shutil.copytree(
        source, target, ignore=shutil.ignore_patterns(*unwanted), copy_function=copy_file
    )
    return target


def copy_file(source: str | Path, target: str | Path) -> None:
    """Content and times, as `shutil.copy2`; holes stay holes."""
    with open(source, "rb") as old, open(target, "wb") as new:
        size = os.fstat(old.fileno()).st_size
        for begin, end in _data(old.fileno(), size):
            new.seek(begin)
            new.write(os.pread(old.fileno(), end - begin, begin))
        new.truncate(size)
    shutil.copystat(source, target)


def _data(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file is no hole: begins and ends."""
    end = 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, end
