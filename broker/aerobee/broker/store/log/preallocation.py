"""The next log segment, made before it is needed.

A spare is a file of the segment's size under a name outside the log's folder; it gets its place in
the log by a rename, at the moment the active segment is full. So the log's folder never holds a
file of the wrong length, whatever happens in between.
"""

from __future__ import annotations

import contextlib
import errno

from aerobee.broker.store.disk import Disk, DiskFile

SPARE_PREFIX = "preallocated-"
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Spare:
    """A file that waits for its offset."""

    __slots__ = ("file", "path")

    def __init__(self, path: str, file: DiskFile) -> None:
        self.path = path
        self.file = file


def create_spare(disk: Disk, path: str, size: int, *, keep_free_bytes: int) -> Spare:
    """Allocate `size` bytes at `path`; OSError leaves nothing behind.

    A disk that would have less than `keep_free_bytes` left counts as full: the broker's small files
    need that room when the log has taken all it may.

    Durable only with the first datasync of the file and of the folder it is renamed into.
    """
    if keep_free_bytes and disk.free_bytes() - size < keep_free_bytes:
        raise OSError(errno.ENOSPC, f"{keep_free_bytes} bytes must stay free")
    file = disk.open_file(path, create=True)
    try:
        file.allocate(size)
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):
            disk.remove(path)
        raise
    return Spare(path, file)


def remove_strays(disk: Disk) -> None:
    """Remove what an earlier run prepared and did not use."""
    for entry in disk.list(""):
        if entry.name.startswith(SPARE_PREFIX) and not entry.is_directory:
            disk.remove(entry.name)


class PrepareWork:
    """Creates one spare. `run` may be called on any thread; the rest belongs to the loop."""

    __slots__ = ("_disk", "_keep_free_bytes", "_path", "_size", "error", "spare")

    def __init__(self, disk: Disk, path: str, size: int, *, keep_free_bytes: int) -> None:
        self._disk = disk
        self._path = path
        self._size = size
        self._keep_free_bytes = keep_free_bytes
        self.spare: Spare | None = None
        self.error: OSError | None = None

    def run(self) -> None:
        """[any thread] A full disk is kept, not raised: appends go on while the segment lasts."""
        try:
            self.spare = create_spare(
                self._disk, self._path, self._size, keep_free_bytes=self._keep_free_bytes
            )
            self.spare.file.datasync()  # here it costs nobody's time
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.error = error
