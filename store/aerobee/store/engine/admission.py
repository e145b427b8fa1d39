"""Whether the store takes appends now, and why not.

Owns: the reasons against it. The send path only checks `writable`; it is recomputed whenever a
reason comes or goes. Reasons that time or free space can remove are rechecked when an append is
refused.
"""

from __future__ import annotations

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, NotWritable, ShuttingDown, StoreFailed
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.retention.retention_policy import DiskSpace, FullDisk
from aerobee.store.engine.statistics import StoreState

# After a segment could not be allocated, how long to wait before asking the disk again.
_ALLOCATION_PAUSE_S = 1.0


class Admission:
    """Loop thread only."""

    __slots__ = (
        "_allocation_failure",
        "_allocation_pause_end_s",
        "_checkpoint_behind",
        "_clock",
        "_closing",
        "_config",
        "_failure",
        "_full_disk",
        "_has_room",
        "_hung_disk",
        "_queue_files_full",
        "_read_only",
        "held_by",
        "writable",
    )

    def __init__(self, clock: Clock, config: StoreConfig, *, read_only: bool) -> None:
        self._clock = clock
        self._config = config
        self._read_only = read_only
        self._failure: BaseException | None = None
        self._closing = False
        self._queue_files_full = False
        self._checkpoint_behind = ""
        self._hung_disk = ""
        self._has_room = True
        self._allocation_failure = ""
        self._allocation_pause_end_s = 0.0
        self._full_disk = FullDisk(config.retention)
        self.held_by = ""
        """Why retention frees nothing, for errors that refuse messages because the disk is full."""
        self.writable = not read_only

    @property
    def state(self) -> StoreState:
        if self._failure is not None:
            return StoreState.FAILED
        if self._closing:
            return StoreState.CLOSING
        if self._read_only:
            return StoreState.READ_ONLY
        if self._hung_disk:
            return StoreState.DISK_HUNG
        return StoreState.WRITABLE if self._has_room else StoreState.DISK_FULL

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def is_in_use(self) -> bool:
        """Whether the store's files may be changed at all."""
        return self._failure is None and not self._closing and not self._read_only

    @property
    def space(self) -> DiskSpace:
        """The disk space as last measured."""
        return self._full_disk.space

    def check_not_failed(self) -> None:
        """Raises StoreFailed after the first failed write or fsync."""
        if self._failure is not None:
            raise StoreFailed(
                f"the store failed and the broker must restart: {self._failure}"
            ) from self._failure

    # ------------------------------------------------------------------------------ reasons

    def fail(self, error: BaseException) -> None:
        """Never undone; the first error counts."""
        if self._failure is None:
            self._failure = error
        self._update()

    def close(self) -> None:
        self._closing = True
        self._update()

    def measured(self, space: DiskSpace) -> None:
        self._full_disk.measured(space)
        self._update()

    def queue_files_full(self, full: bool) -> None:
        """Consume queue entries could not be written for lack of space, or could be again."""
        self._queue_files_full = full
        self._update()

    def checkpoint_behind(self, waiting: str) -> None:
        """What takes too much memory until a checkpoint has written it; empty if nothing does."""
        if waiting != self._checkpoint_behind:
            self._checkpoint_behind = waiting
            self._update()

    def disk_hung(self, reason: str) -> None:
        """The disk does not respond; empty: it does again."""
        self._hung_disk = reason
        self._update()

    def allocation_failed(self, reason: str) -> None:
        """The log could not grow. Until that is tried again, senders get the same reason."""
        self._allocation_failure = reason
        self._allocation_pause_end_s = self._clock.monotonic_s() + _ALLOCATION_PAUSE_S
        self._update()

    def _update(self) -> None:
        self._has_room = (
            not self._queue_files_full
            and self._allocation_pause_end_s == 0.0
            and not self._is_below_minimum()
            and not self._full_disk.is_full
        )
        is_kept_up_with = not self._hung_disk and not self._checkpoint_behind
        self.writable = self.is_in_use and self._has_room and is_kept_up_with

    def _is_below_minimum(self) -> bool:
        return 0 <= self.space.free_bytes < self._config.disk_free_bytes_min

    @property
    def why_full(self) -> str:
        """What the disk has no room for; empty while it has room, or while that is to be tried."""
        if self._is_below_minimum():
            return (
                f"the disk has {self.space.free_bytes} bytes free, less than the "
                f"{self._config.disk_free_bytes_min} that must stay: free space"
            )
        if self._full_disk.is_full:
            return self._full_disk.describe(self.held_by)
        if self._queue_files_full:
            return "the disk is too full to write consume queues and the index: free space"
        if self._clock.monotonic_s() < self._allocation_pause_end_s:
            return self._allocation_failure
        return ""

    def _leaves_reserve(self, fits: bool) -> bool:
        """Whether a disk that is too full for messages still takes what frees space."""
        if self._queue_files_full:
            return False
        is_hard = self._is_below_minimum() or self._allocation_pause_end_s != 0.0
        return fits or not is_hard

    # ------------------------------------------------------------------------------ refusing

    def refuse(self, waiting_bytes: int, size: int, *, reserve_fits: bool | None = None) -> None:
        """Raise the reason against an append of `size` while `waiting_bytes` wait for the disk.

        Returns if there is none any more. `reserve_fits`, for what may use the reserved space:
        whether it needs no new segment; None: it may not use it.
        """
        self.check_not_failed()
        if self._closing:
            raise ShuttingDown("the store is closing: send to another broker")
        if self._read_only:
            raise NotWritable("the store was opened for reading only")
        if self._hung_disk:
            raise NotWritable(f"{self._hung_disk}: send to another broker group")
        why_full = self.why_full
        if why_full and (reserve_fits is None or not self._leaves_reserve(reserve_fits)):
            raise NotWritable(why_full)
        if not why_full:
            self._allocation_pause_end_s = 0.0
            self._update()
        if self._checkpoint_behind:
            raise Busy(
                f"too many {self._checkpoint_behind} wait in memory for the disk: send more slowly"
            )
        if waiting_bytes + size > self._config.unflushed_bytes_max:
            raise Busy(
                f"{waiting_bytes} bytes wait for the disk; at most "
                f"{self._config.unflushed_bytes_max} may: send more slowly"
            )
