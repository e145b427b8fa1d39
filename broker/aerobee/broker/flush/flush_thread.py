"""Makes what was appended durable, off the loop.

Two threads. `flush` does nothing but sync the log: everything appended before its turn is covered
by one fdatasync, which is all there is to group commit. `upkeep` does what nobody waits for:
consume queues to their files, checkpoint, the next log segment, the disk's free space. Both get
finished plans from the store and post back to the loop; neither touches the store.

After a failed write or sync the store is failed, `run` raises StoreFailed, and the broker ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Never, Protocol

from aerobee.broker.flush.policy import FlushPolicy
from aerobee.broker.flush.work_thread import WorkThread
from aerobee.broker.store.config import StoreConfig
from aerobee.broker.store.disk import Disk
from aerobee.broker.store.flush_work import CheckpointWork, FlushWork
from aerobee.broker.store.log.preallocation import PrepareWork
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import StoreFailed

_MEASURE_INTERVAL_S = 1.0


class FlushableStore(Protocol):
    """What this needs of the store; all of it called on the loop."""

    @property
    def flushed_end(self) -> int: ...

    @property
    def unflushed_bytes(self) -> int: ...

    @property
    def checkpoint_due(self) -> bool: ...

    def take_flush_work(self) -> FlushWork | None: ...

    def finish_flush(self, work: FlushWork) -> None: ...

    def finish_checkpoint(self, work: CheckpointWork) -> None: ...

    def take_prepare_work(self) -> PrepareWork | None: ...

    def finish_prepare(self, work: PrepareWork) -> None: ...

    def observe_free_bytes(self, free_bytes: int) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class MeasureWork:
    """Asks the disk for its free space; a file system over a network may take its time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.free_bytes = 0

    def run(self) -> None:
        self.free_bytes = self._disk.free_bytes()


UpkeepWork = CheckpointWork | PrepareWork | MeasureWork


class FlushThread:
    """Owns the two threads while `run` runs."""

    def __init__(
        self,
        store: FlushableStore,
        disk: Disk,
        clock: Clock,
        config: StoreConfig,
        *,
        on_flushed: Callable[[int], None],
    ) -> None:
        """`on_flushed` is called on the loop with the log's new flushed end, after each flush."""
        self._store = store
        self._disk = disk
        self._clock = clock
        self._policy = FlushPolicy.of(config)
        self._on_flushed = on_flushed
        self._flushing = False
        self._flush_again = False
        self._flushed_s = clock.monotonic_s()
        self._measured_s = clock.monotonic_s()
        self._failed: asyncio.Future[Never] | None = None
        self._flush: WorkThread[FlushWork] | None = None
        self._upkeep: WorkThread[UpkeepWork] | None = None

    async def run(self) -> Never:
        """Flush until cancelled. On the way out both threads finish what they were handed.

        Raises StoreFailed once a write or sync has failed.
        """
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        self._flush = WorkThread("flush", loop.call_soon_threadsafe, self._finish_flush)
        self._upkeep = WorkThread("upkeep", loop.call_soon_threadsafe, self._finish_upkeep)
        self._flush.start()
        self._upkeep.start()
        try:
            self.request()  # for what came before
            while True:
                self._tick()
                await asyncio.wait((self._failed,), timeout=self._policy.tick_s)
                if self._failed.done():
                    self._failed.result()
        finally:
            await self._close()

    def appended(self) -> None:
        """[loop] Something was appended: flush if the policy wants it at once, and prepare the next
        segment in time. Call it once per turn of the loop rather than once per batch."""
        if self._policy.due_after_append(self._store.unflushed_bytes):
            self.request()
        self._prepare_segment()

    def request(self) -> None:
        """[loop] Flush all that is appended now: at once, or right after the flush under way."""
        if self._flush is None or self._has_failed():
            return
        if self._flushing:
            self._flush_again = True
            return
        self._flush_again = False
        try:
            work = self._store.take_flush_work()
        except StoreFailed as error:  # it failed elsewhere; `run` tells
            self._fail(error)
            return
        if work is not None:
            self._flushing = True
            self._flush.submit(work)

    # ------------------------------------------------------------------------------ by time

    def _tick(self) -> None:
        if self._has_failed():
            return
        now_s = self._clock.monotonic_s()
        if self._policy.due_by_time(
            self._store.unflushed_bytes,
            now_s - self._flushed_s,
            checkpoint_due=self._store.checkpoint_due,
        ):
            self.request()
        self._prepare_segment()
        if now_s - self._measured_s >= _MEASURE_INTERVAL_S and self._upkeep is not None:
            self._measured_s = now_s
            self._upkeep.submit(MeasureWork(self._disk))

    def _prepare_segment(self) -> None:
        if self._upkeep is None:
            return
        work = self._store.take_prepare_work()
        if work is not None:
            self._upkeep.submit(work)

    # ------------------------------------------------------------------------------ results

    def _finish_flush(self, work: FlushWork, error: BaseException | None) -> None:
        self._flushing = False
        if error is not None:
            self._fail_disk(error)
            return
        try:
            self._flushed_s = self._clock.monotonic_s()
            self._store.finish_flush(work)
            if work.checkpoint is not None and self._upkeep is not None:
                self._upkeep.submit(work.checkpoint)
            self._on_flushed(self._store.flushed_end)
        except Exception as bug:  # nobody else would hear of it
            self._fail(bug)
        if self._flush_again:
            self.request()

    def _finish_upkeep(self, work: UpkeepWork, error: BaseException | None) -> None:
        if error is not None:
            self._fail_disk(error)
            return
        try:
            if isinstance(work, CheckpointWork):
                self._store.finish_checkpoint(work)
            elif isinstance(work, PrepareWork):
                self._store.finish_prepare(work)
            else:
                self._store.observe_free_bytes(work.free_bytes)
        except Exception as bug:
            self._fail(bug)

    def _has_failed(self) -> bool:
        return self._failed is not None and self._failed.done()

    def _fail_disk(self, error: BaseException) -> None:
        failure = StoreFailed(f"the disk failed, the broker stops: {error}")
        failure.__cause__ = error
        self._fail(failure)

    def _fail(self, error: BaseException) -> None:
        """Let `run` raise the first error; the store takes nothing any more."""
        self._store.fail(error)
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _close(self) -> None:
        """Wait for both threads off the loop. The flush comes first: its end may still bring the
        upkeep a checkpoint."""
        flush, self._flush = self._flush, None
        assert flush is not None
        await _wait_for_end(flush)
        upkeep, self._upkeep = self._upkeep, None
        assert upkeep is not None
        await _wait_for_end(upkeep)


async def _wait_for_end(thread: WorkThread[Any]) -> None:
    """The thread's last result has reached the loop when this returns, also under cancellation."""
    closing = asyncio.get_running_loop().run_in_executor(None, thread.close)
    while not closing.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(closing)
