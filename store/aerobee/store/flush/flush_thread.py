"""Makes appended bytes durable, off the loop.

Three threads. `flush` only syncs the log: one fdatasync covers everything appended before it, and
that is all of group commit. `segments` makes the next log segment and brings the log's next pages
into memory, which must not wait for anything else. `upkeep` does what nobody waits for: it writes
consume queues to their files, writes checkpoints, and measures the disk's free space. All get
finished plans from the store and post back to the loop; none touches the store.

After a failed write or sync the store is failed, `run` raises StoreFailed, and the broker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Never

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import ShuttingDown, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.flush_work import CheckpointWork, FlushWork
from aerobee.store.engine.log.segment_supply import SupplyWork, WarmUpWork
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_policy import DiskSpace
from aerobee.store.engine.retention.retention_works import measure
from aerobee.store.flush.disk_watch import DiskWatch
from aerobee.store.flush.policy import FlushPolicy
from aerobee.store.flush.work_thread import Work
from aerobee.store.flush.workers import Threads, Worker, Workers

log = logging.getLogger(__name__)

_MEASURE_INTERVAL_S = 1.0
_IDLE_INTERVAL_S = 3.0
"""How often all time-driven work is checked while the log does not grow."""


class MeasureWork:
    """Asks how full the disk is; a network file system may take a while."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.space = DiskSpace()

    def run(self) -> None:
        self.space = measure(self._disk)


class AwaitedWork:
    """Another part's work; that part waits on the loop until it has run."""

    def __init__(self, work: Work, done: asyncio.Future[None]) -> None:
        self.work = work
        self.done = done

    def run(self) -> None:
        self.work.run()


UpkeepWork = CheckpointWork | MeasureWork | AwaitedWork


class FlushThread:
    """Owns the three threads while `run` runs."""

    def __init__(
        self,
        store: MessageStore,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        watch: DiskWatch | None = None,
        workers: Workers | None = None,
    ) -> None:
        """`watch` is notified of each flush; `workers` replaces threads."""
        self._workers: Workers = Threads() if workers is None else workers
        self._watch = DiskWatch(clock, hung_after_s=0) if watch is None else watch
        self._watched = -1
        self._store = store
        self._disk = disk
        self._clock = clock
        self._policy = FlushPolicy.of(config)
        self._on_flushed: list[Callable[[int], None]] = []
        self._flushing = False
        self._flush_again = False
        self._flushed_s = clock.monotonic_s()
        self._measured_s = clock.monotonic_s()
        self._failed: asyncio.Future[Never] | None = None
        self._woken = asyncio.Event()
        self._is_idle = False
        self._ticked_end = -1
        self._flush: Worker | None = None
        self._segments: Worker | None = None
        self._upkeep: Worker | None = None
        self._awaited: dict[asyncio.Future[None], None] = {}

    def on_flushed(self, told: Callable[[int], None]) -> None:
        """Call this on the loop with the log's new flushed end, after each flush."""
        self._on_flushed.append(told)

    async def run(self) -> Never:
        """Flush until cancelled. On the way out the threads finish what they were handed.

        Raises StoreFailed once a write or sync has failed.
        """
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        post, worker = loop.call_soon_threadsafe, self._workers.worker
        self._flush = worker("flush", post, self._finish_flush)
        self._upkeep = worker("upkeep", post, self._finish_upkeep)
        self._segments = worker("segments", post, self._finish_segment)
        self._flush.start()
        self._segments.start()
        self._upkeep.start()
        try:
            self.request()  # for what was appended before
            while True:
                self._tick()
                await self._pause()
                if self._failed.done():
                    self._failed.result()
        finally:
            await self._close()

    def appended(self) -> None:
        """[loop] Something was appended: flush if the policy calls for it, and prepare what the
        next appends need. Call it once per turn of the loop, not once per batch."""
        if self._is_idle:
            self._woken.set()
        if self._policy.due_after_append(self._store.unflushed_bytes):
            self.request()
        self._prepare_segment()

    def request(self) -> None:
        """[loop] Flush all that is appended now: at once, or right after the running flush."""
        if self._flush is None or self._has_failed():
            return
        if self._flushing:
            self._flush_again = True
            return
        self._flush_again = False
        try:
            work = self._store.ledger.take_flush()
        except StoreFailed as error:  # it failed elsewhere; `run` raises
            self._fail(error)
            return
        if work is not None:
            self._flushing = True
            size = work.end - self._store.flushed_end
            self._watched = self._watch.begin(size_bytes=size)
            self._flush.submit(work)

    async def upkeep(self, work: Work) -> None:
        """[loop] Return once `work` has run on the upkeep thread, which also writes the queues'
        files. A cancellation, even a second one, waits for it, so that started work can be
        finished. A failure takes precedence over a cancellation.

        Raises:
            ShuttingDown: the thread is not running.
            StoreFailed: it failed; the broker ends.
        """
        if self._upkeep is None or self._has_failed():
            raise ShuttingDown("the broker is stopping: its store is left as it is")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[done] = None
        self._upkeep.submit(AwaitedWork(work, done))
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            while not done.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((done,))
            done.result()
            raise
        finally:
            self._awaited.pop(done, None)

    # ------------------------------------------------------------------------------ by time

    def _tick(self) -> None:
        if self._has_failed():
            return
        now_s = self._clock.monotonic_s()
        if self._policy.due_by_time(
            self._store.unflushed_bytes,
            now_s - self._flushed_s,
            checkpoint_due=self._store.ledger.checkpoint_due,
        ):
            self.request()
        self._prepare_segment()
        if now_s - self._measured_s >= _MEASURE_INTERVAL_S and self._upkeep is not None:
            self._measured_s = now_s
            self._upkeep.submit(MeasureWork(self._disk))

    async def _pause(self) -> None:
        """Until the next tick or a failure. A store that has nothing to write and has not grown
        since the last tick is left alone for longer, or until it grows."""
        store = self._store
        self._is_idle = store.appended_end == self._ticked_end and store.ledger.is_settled
        self._ticked_end = store.appended_end
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IDLE_INTERVAL_S if self._is_idle else self._policy.tick_s):
                await self._woken.wait()
        self._woken.clear()

    def _prepare_segment(self) -> None:
        if self._segments is None or self._has_failed():
            return
        supply = self._store.supply
        for work in (supply.take_prepare(), supply.take_warm_up()):
            if work is not None:
                self._segments.submit(work)

    # ------------------------------------------------------------------------------ results

    def _finish_flush(self, work: FlushWork, error: BaseException | None) -> None:
        self._flushing = False
        self._watch.end(self._watched)
        if error is not None:
            self._fail_disk(error)
            return
        try:
            self._flushed_s = self._clock.monotonic_s()
            self._store.ledger.finish_flush(work)
            if work.checkpoint is not None and self._upkeep is not None:
                self._upkeep.submit(work.checkpoint)
            for told in self._on_flushed:
                told(self._store.flushed_end)
        except Exception as bug:  # nobody else would see it
            self._fail(bug)
        if self._flush_again:
            self.request()

    def _finish_upkeep(self, work: UpkeepWork, error: BaseException | None) -> None:
        if error is not None:
            self._fail_disk(error)
            return
        try:
            if isinstance(work, CheckpointWork):
                self._store.ledger.finish_checkpoint(work)
            elif isinstance(work, AwaitedWork):
                work.done.set_result(None)
            else:
                self._store.retention.observe(work.space)
        except Exception as bug:
            self._fail(bug)

    def _finish_segment(self, work: SupplyWork, error: BaseException | None) -> None:
        if error is not None:
            self._fail_disk(error)
            return
        try:
            if isinstance(work, WarmUpWork):
                self._finish_warm_up(work)
            else:
                self._store.supply.finish_prepare(work)
            self._prepare_segment()  # the next step, if there is one
        except Exception as bug:
            self._fail(bug)

    def _finish_warm_up(self, work: WarmUpWork) -> None:
        self._store.supply.finish_warm_up(work)
        if work.lock_error is not None:
            log_event(
                log,
                "the log is not locked in memory: raise RLIMIT_MEMLOCK or unset "
                "lock_segments_in_memory",
                level=logging.WARNING,
                reason=work.lock_error,
            )

    def _has_failed(self) -> bool:
        return self._failed is not None and self._failed.done()

    def _fail_disk(self, error: BaseException) -> None:
        failure = StoreFailed(f"the disk failed, so the broker stops: {error}")
        failure.__cause__ = error
        self._fail(failure)

    def _fail(self, error: BaseException) -> None:
        """Let `run` raise the first error; the store takes nothing from here on."""
        self._store.fail(error)
        for done in self._awaited:
            if not done.done():
                done.set_exception(error)
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
            self._woken.set()

    async def _close(self) -> None:
        """Wait for the threads off the loop. Flush before upkeep: the end of a flush may still give
        upkeep a checkpoint to write."""
        segments, self._segments = self._segments, None
        assert segments is not None
        await _wait_for_end(segments)
        flush, self._flush = self._flush, None
        assert flush is not None
        await _wait_for_end(flush)
        upkeep, self._upkeep = self._upkeep, None
        assert upkeep is not None
        await _wait_for_end(upkeep)


async def _wait_for_end(thread: Worker) -> None:
    """When this returns, even under cancellation, the thread's last result has reached the loop."""
    closing = asyncio.get_running_loop().run_in_executor(None, thread.close)
    while not closing.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(closing)
