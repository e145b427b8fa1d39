"""What the log needs ahead of time: the next segments, and memory for the next bytes.

A spare is a file of the segment's size under a name outside the log's folder; it is renamed into
the log when the active segment is full. So the log's folder never has a file of the wrong length,
whatever happens in between. One spare is enough if filling half a segment takes longer than making
one; each time a roll finds none, one more is kept from then on, up to a limit.

An append into pages that are not in memory makes the kernel find and clear memory, and on a virtual
machine the host too, at several times the cost of the copy itself and on the event loop. So another
thread brings the pages in ahead of the append, a few steps at a time, so that no more memory is
held than is needed soon. Nothing is written: bytes on disk never change.

Owns: the spares, the works under way, at most one of each kind, and how far the log's pages are
warm. A work is taken on the loop, run on another thread, and finished on the loop.
"""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from typing import TYPE_CHECKING

from aerobee.runtime.clock import Clock
from aerobee.store.engine.admission import Admission
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk, DiskFile
from aerobee.store.engine.errors import DISK_FULL
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY

if TYPE_CHECKING:  # the log holds the spares
    from aerobee.store.engine.log.commit_log import CommitLog

SPARE_PREFIX = "preallocated-"
SPARES_MAX = 4
STEP_BYTES = 4 * 1024 * 1024

_LOCK_REFUSED = frozenset({errno.ENOMEM, errno.EPERM, errno.EAGAIN})

# After a spare segment could not be made, how long until the next attempt.
_PREPARE_PAUSE_S = 1.0


def spare_path(disk: Disk, directory: str, name: str) -> str:
    """Where to prepare a file that will be renamed into `directory`: outside of it, unless that is
    on a file system of its own, into which nothing can be renamed from outside."""
    path = f"{SPARE_PREFIX}{name}"
    return f"{directory}/{path}" if disk.is_apart(directory) else path


class Spare:
    """A file that waits for its offset."""

    __slots__ = ("file", "path")

    def __init__(self, path: str, file: DiskFile) -> None:
        self.path = path
        self.file = file


def create_spare(disk: Disk, path: str, size: int, *, keep_free_bytes: int) -> Spare:
    """Allocate `size` bytes at `path`; OSError leaves nothing behind.

    A disk that would have less than `keep_free_bytes` left counts as full: the broker's small files
    need that room when the log has taken all that it may.

    Durable only with the first datasync of the file and of the folder it is renamed into.
    """
    if keep_free_bytes and disk.free_bytes() - size < keep_free_bytes:
        raise OSError(errno.ENOSPC, f"{keep_free_bytes} bytes must stay free")
    file = disk.open_file(path, create=True)
    try:
        file.allocate(size)
    except BaseException:
        _remove(disk, path, file)
        raise
    return Spare(path, file)


def _remove(disk: Disk, path: str, file: DiskFile) -> None:
    """Remove what could not be completed; if the disk refuses even that, a stray file stays."""
    with contextlib.suppress(OSError):
        file.close()
    with contextlib.suppress(OSError):
        disk.remove(path)


def remove_strays(disk: Disk) -> None:
    """Remove what an earlier run prepared and did not use."""
    apart = [entry.name for entry in disk.list("") if disk.is_apart(entry.name)]
    for directory in ("", *apart):
        for entry in disk.list(directory):
            if entry.name.startswith(SPARE_PREFIX) and not entry.is_directory:
                disk.remove(f"{directory}/{entry.name}" if directory else entry.name)


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
        """[any thread] A full disk is recorded, not raised: appends continue while the segment
        lasts.

        `spare` is set only if it is durable."""
        try:
            spare = create_spare(
                self._disk, self._path, self._size, keep_free_bytes=self._keep_free_bytes
            )
            try:
                spare.file.datasync()  # nobody waits for it here
            except BaseException:
                _remove(self._disk, spare.path, spare.file)
                raise
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self.error = error
        else:
            self.spare = spare


class Spares:
    """The spares that are ready; loop thread only."""

    def __init__(self, disk: Disk, segment_bytes: int, *, keep_free_bytes: int) -> None:
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._keep_free_bytes = keep_free_bytes
        self._ready: deque[Spare] = deque()
        self._made = 0
        self._wanted = 1

    def __len__(self) -> int:
        return len(self._ready)

    def file(self, index: int) -> DiskFile:
        """The file that becomes the segment after `index` others."""
        return self._ready[index].file

    def wanted(self, *, is_half_full: bool) -> bool:
        """Whether one more should be made now; `is_half_full` is about the active segment."""
        if len(self._ready) >= self._wanted:
            return False
        return is_half_full or self._wanted > 1

    def prepare_work(self) -> PrepareWork:
        return PrepareWork(
            self._disk,
            self._next_path(),
            self._segment_bytes,
            keep_free_bytes=self._keep_free_bytes,
        )

    def add(self, spare: Spare) -> None:
        """Keep a prepared spare."""
        self._ready.append(spare)

    def first(self, *, is_late: bool) -> Spare:
        """The next spare, made synchronously if none is ready; it stays until `pop_first`.

        `is_late`: if none is ready, they were not made in time. Raises OSError.
        """
        if not self._ready:
            self._ready.append(
                create_spare(
                    self._disk,
                    self._next_path(),
                    self._segment_bytes,
                    keep_free_bytes=self._keep_free_bytes,
                )
            )
            if is_late:
                self._wanted = min(self._wanted + 1, SPARES_MAX)
        return self._ready[0]

    def pop_first(self) -> None:
        """The first spare has become a segment."""
        self._ready.popleft()

    def drop_all(self) -> None:
        """Give their space back."""
        while self._ready:
            spare = self._ready.popleft()
            spare.file.close()
            self._disk.remove(spare.path)

    def _next_path(self) -> str:
        self._made += 1
        return spare_path(self._disk, COMMIT_LOG_DIRECTORY, str(self._made))


class WarmUpWork:
    """Touches, and possibly locks, one step. `run` may be called on any thread."""

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
        """[any thread] A refused lock is recorded, not raised: the broker works without it."""
        if self._lock:
            try:
                self._file.lock_in_memory(self._offset, self._size)
                return
            except OSError as error:
                if error.errno not in _LOCK_REFUSED:
                    raise
                self.lock_error = error
        self._file.touch_pages(self._offset, self._size)


SupplyWork = PrepareWork | WarmUpWork


class SegmentSupply:
    """Hands out the works; loop thread only."""

    def __init__(
        self, clock: Clock, config: StoreConfig, *, log: CommitLog, admission: Admission
    ) -> None:
        self._clock = clock
        self._log = log
        self._admission = admission
        self._locks = config.lock_segments_in_memory
        self._warms = config.warm_up_segments or self._locks
        self._ahead_bytes = config.warm_up_ahead_bytes
        self._prepare_work: PrepareWork | None = None
        self._warm_up_work: WarmUpWork | None = None
        self._prepare_due_s = 0.0
        self.warm_end = 0
        """Pages were brought in up to this log offset; may be after the log's end."""

    # ------------------------------------------------------------------------------ segments

    def take_prepare(self) -> PrepareWork | None:
        """The next segment, once the active one is half full."""
        if self._prepare_work is not None or not self._log.spare_wanted:
            return None
        if not self._admission.writable or self._clock.monotonic_s() < self._prepare_due_s:
            return None
        self._prepare_work = self._log.spares.prepare_work()
        return self._prepare_work

    def finish_prepare(self, work: PrepareWork) -> None:
        """`work.run` returned; after a failure it is retried after a pause."""
        assert work is self._prepare_work
        self._prepare_work = None
        if work.spare is not None:
            self._log.spares.add(work.spare)
        else:
            self._prepare_due_s = self._clock.monotonic_s() + _PREPARE_PAUSE_S

    # ------------------------------------------------------------------------------ pages

    def take_warm_up(self) -> WarmUpWork | None:
        """The next pages to bring in: a whole step that is not too far ahead of the log's end, or
        the rest of a file."""
        if not self._warms or self._warm_up_work is not None:
            return None
        log_end = self._log.end
        start = max(self.warm_end, log_end)
        place = self._log.place_ahead(start)
        if place is None:
            return None
        file, offset, left_in_file = place
        size = min(STEP_BYTES, left_in_file)
        if start + size > log_end + self._ahead_bytes:
            return None
        self._warm_up_work = WarmUpWork(file, offset, size, end=start + size, lock=self._locks)
        return self._warm_up_work

    def finish_warm_up(self, work: WarmUpWork) -> None:
        """`work.run` returned; a refused lock is not requested again."""
        assert work is self._warm_up_work
        self._warm_up_work = None
        self.warm_end = work.end
        if work.lock_error is not None:
            self._locks = False
