"""What the log needs before it needs it: the next segments, and memory for the next bytes.

Owns: the works under way, at most one of each kind, and up to where the log's pages are warm. A
work is taken on the loop, run on another thread, and finished on the loop.
"""

from __future__ import annotations

from aerobee.broker.store.admission import Admission
from aerobee.broker.store.config import StoreConfig
from aerobee.broker.store.log.commit_log import CommitLog
from aerobee.broker.store.log.preallocation import PrepareWork
from aerobee.broker.store.log.warm_up import STEP_BYTES, WarmUpWork
from aerobee.runtime.clock import Clock

# After a spare segment could not be made, how long until the next try.
_PREPARE_PAUSE_S = 1.0

SupplyWork = PrepareWork | WarmUpWork


class SegmentSupply:
    """See the module; loop thread only."""

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
        self._warm_end = 0

    @property
    def warm_end(self) -> int:
        """Up to which log offset pages were brought in; may lie past the log's end."""
        return self._warm_end

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
        """`work.run` returned; without success it is tried again after a pause."""
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
        start = max(self._warm_end, log_end)
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
        """`work.run` returned; a refused lock is not asked for again."""
        assert work is self._warm_up_work
        self._warm_up_work = None
        self._warm_end = work.end
        if work.lock_error is not None:
            self._locks = False
