"""Confirmed messages of the waiting queues are fed to the index and the levels' windows.

This runs on every replica, so that a new master has them ready. Owns: the index and the windows,
and the jobs in which the index reads and writes its files; each turn of the loop takes a bounded
part of a queue. Continues when more is confirmed, on request, and after a failure; nothing here
polls.

Invariant: the index receives the queue in order, without a gap. A damaged index is rebuilt from the
beginning of the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from functools import partial

from aerobee.broker.delayed.waiting_log import STEP_RECORDS, WaitingLog
from aerobee.broker.reading.confirmed_records import ConfirmedRecords
from aerobee.broker.timers.entries import TIMER_QUEUE
from aerobee.broker.timers.index import IndexLimits, PendingIndex, reset_index
from aerobee.broker.timers.index_works import IndexWork
from aerobee.broker.timers.level_window import WINDOW_ENTRIES, LevelWindow
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.record_rows import HandedTimers, rows_of
from aerobee.broker.timers.runs import IndexDamaged
from aerobee.broker.timers.state import TimerJournalState
from aerobee.runtime.errors import Busy, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import Waiters
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import DISK_FULL, EntryMismatch
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.format.delayed_records import TIMER_TOPIC
from aerobee.store.format.tags import SCHEDULE_TOPIC

log = logging.getLogger(__name__)

HANDED_RECORDS = 4_096
"""About this many rows that need not be read are fed before others get the loop."""
RETRY_S = 1.0
"""Pause after a failure."""
FED_TIMEOUT_S = 5.0
FULL_RETRY_S = 10.0
"""Pause after the index found the disk full."""


class Feeder:
    """On the loop, while `run` runs."""

    def __init__(
        self,
        disk: Disk,
        index: PendingIndex,
        levels: Mapping[int, LevelWindow],
        state: TimerJournalState,
        waiting: WaitingLog,
        works: Executor,
        *,
        handed: HandedTimers,
        limits: IndexLimits | None = None,
        on_fed: Callable[[], None],
        on_index: Callable[[PendingIndex], None],
    ) -> None:
        """`works` runs what may wait for the disk. `handed`: what this broker has written itself.
        `on_fed` is called when more waits or was loaded; `on_index` when the index was replaced."""
        self._disk = disk
        self._limits = limits or IndexLimits()
        self._state = state
        self._waiting = waiting
        self._works = works
        self._handed = handed
        self._on_fed = on_fed
        self._on_index = on_index
        self._worker = Worker(
            self._feed, warns(log, "delayed messages are not indexed yet"), retry_s=RETRY_S
        )
        self._grown: set[int] = {TIMER_QUEUE, *levels}
        """Queues that may have entries not looked at yet."""
        self._unconfirmed: set[int] = set()
        self._running: set[asyncio.Future[None]] = set()
        self._fed = Waiters()
        self._rests = False
        """The index could not be written a moment ago."""
        self._failed: StoreFailed | None = None
        self._progress: Callable[[], TimerProgress] = lambda: state.progress
        self.index = index
        self.levels = levels

    def __repr__(self) -> str:
        return f"Feeder({self.index!r}, unconfirmed={sorted(self._unconfirmed)})"

    def follow(self, progress: Callable[[], TimerProgress]) -> None:
        """Where the levels' windows learn what is done: a master knows more than the journal's
        confirmed records say."""
        self._progress = progress

    @property
    def is_complete(self) -> bool:
        """Whether everything that waits in the timer queue has been fed."""
        return self.index.fed_end >= self._waiting.bounds(TIMER_QUEUE).max_offset

    async def until_fed(self) -> None:
        """Until the index has all that is in the timer queue now. Raises Busy: it takes too
        long."""
        end = self._waiting.timers_end
        try:
            async with asyncio.timeout(FED_TIMEOUT_S):
                while self.index.fed_end < end:
                    await self._fed.wait()
        except TimeoutError:
            raise Busy(
                "the newest delayed messages are not confirmed, or are still being read; try again "
                "in a moment"
            ) from None

    def wake(self) -> None:
        """The index may have work to do, or a window may want more entries."""
        self._grown |= self.levels.keys()
        self._worker.wake()

    def on_grown(self, names: Iterable[QueueName]) -> None:
        """Queues of the store have received messages."""
        for topic, queue_id in names:
            if topic == TIMER_TOPIC and queue_id == 0:
                self._grown.add(TIMER_QUEUE)
                self._worker.wake()
            elif topic == SCHEDULE_TOPIC and queue_id + 1 in self.levels:
                self._grown.add(queue_id + 1)
                self._worker.wake()

    def on_confirmed(self) -> None:
        """More of the log is confirmed: look again at what waited for that."""
        if self._unconfirmed:
            self._grown |= self._unconfirmed
            self._unconfirmed.clear()
            self._worker.wake()

    # ------------------------------------------------------------------------------ running

    async def run(self) -> None:
        """Until cancelled; returns only when no job is running any more.

        Raises:
            StoreFailed: the disk failed.
        """
        try:
            await self._worker.run()
        finally:
            await _end_of(self._running)

    async def _feed(self) -> None:
        """All that has grown. Raises AerobeeError."""
        if self._failed is not None:
            raise self._failed
        self._start_works()
        while await self._feed_part():
            self._start_works()
            await asyncio.sleep(0)  # let others run

    async def _feed_part(self) -> bool:
        """Feed a part of one queue that has grown; False if none has. Raises AerobeeError."""
        if not self._grown:
            return False
        queue = min(self._grown)
        fed = await (self._feed_timers() if queue == TIMER_QUEUE else self._feed_level(queue))
        if fed:
            self._on_fed()
        else:
            self._grown.discard(queue)
        return True

    async def _feed_timers(self) -> bool:
        index = self.index
        begin = index.fed_end
        if begin >= self._waiting.bounds(TIMER_QUEUE).max_offset:
            return False
        count = self._handed.begins_after(begin)
        if count == 0:
            return self._feed_handed(index)
        found = await self._timer_records(begin, min(STEP_RECORDS, count or STEP_RECORDS))
        if index is not self.index:
            return True  # it has been rebuilt
        if found.is_unconfirmed:
            self._unconfirmed.add(TIMER_QUEUE)
        rows, refused = rows_of(found.records)
        for offset, reason in refused:
            _tell_refused(offset, reason)
        if found.next_offset > begin:
            index.feed(rows, found.next_offset)
            self._fed.wake()
        return found.next_offset > begin

    def _feed_handed(self, index: PendingIndex) -> bool:
        """What need not be read, as far as it is confirmed."""
        begin, confirmed_end = index.fed_end, self._waiting.confirmed_end
        while index.fed_end - begin < HANDED_RECORDS:
            rows = self._handed.take(index.fed_end, confirmed_end)
            if rows is None:
                break
            index.feed(rows, index.fed_end + len(rows))
        if index.fed_end == begin:
            self._unconfirmed.add(TIMER_QUEUE)
            return False
        self._fed.wake()
        return True

    async def _timer_records(self, begin: int, records_max: int) -> ConfirmedRecords:
        for count in (records_max, 1):
            try:
                return await self._waiting.timer_records(begin, count=count)
            except EntryMismatch as error:
                damage = str(error)
        _tell_refused(begin, damage)
        return ConfirmedRecords([], begin + 1, False)

    async def _feed_level(self, level: int) -> bool:
        window = self.levels[level]
        bounds = self._waiting.bounds(level)
        window.skip_to(bounds.min_offset)
        window.queue_end = max(window.queue_end, bounds.max_offset)
        begin = window.wants(self._progress().of(level))
        if begin is None or begin >= bounds.max_offset:
            return False
        found = await self._waiting.entries(level, begin, WINDOW_ENTRIES)
        if found.is_unconfirmed:
            self._unconfirmed.add(level)
        window.feed(begin, found.times_ms, found.positions, found.sizes)
        return len(found) > 0

    # ------------------------------------------------------------------------------ the index

    def _start_works(self) -> None:
        while (work := self._next_work()) is not None:
            running = asyncio.get_running_loop().run_in_executor(self._works, work.run)
            self._running.add(running)
            running.add_done_callback(partial(self._ended, self.index, work))

    def _next_work(self, *, saves: bool = False) -> IndexWork | None:
        if self._rests:
            return None
        return self.index.next_work(self._state.view, self._state.next_offset, saves=saves)

    def _ended(self, index: PendingIndex, work: IndexWork, running: asyncio.Future[None]) -> None:
        self._running.discard(running)
        error = None if running.cancelled() else running.exception()
        if index is not self.index:
            return
        if error is None:
            index.finish(work)
            self._on_fed()
        elif isinstance(error, IndexDamaged):
            self._begin_anew(str(error))
        else:
            index.give_up(work)
            self._look_at(error)
        self._worker.wake()

    def _look_at(self, error: BaseException) -> None:
        if isinstance(error, FileNotFoundError):
            return  # a merge has removed the file meanwhile
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            self._rests = True
            asyncio.get_running_loop().call_later(FULL_RETRY_S, self._go_on)
            return
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        self._failed = StoreFailed(f"the index of delayed messages cannot be written: {reason}")

    def _go_on(self) -> None:
        self._rests = False
        self._worker.wake()

    def damaged(self, index: PendingIndex, reason: str) -> None:
        """A reader of the index found damage."""
        if index is self.index:
            self._begin_anew(reason)

    def _begin_anew(self, reason: str) -> None:
        """Removes a few small files on the loop; this is rare."""
        log_event(
            log, "the index of delayed messages is rebuilt", level=logging.WARNING, reason=reason
        )
        begin = max(
            self._waiting.bounds(TIMER_QUEUE).min_offset,
            self._state.progress.of(TIMER_QUEUE).floor,
        )
        try:
            self.index = reset_index(self._disk, begin=begin, limits=self._limits)
        except OSError as error:
            self._failed = StoreFailed(f"the index of delayed messages cannot be removed: {error}")
        self._grown.add(TIMER_QUEUE)
        self._on_index(self.index)
        self._worker.wake()

    async def save(self) -> None:
        """Write what was fed to files for the next start; call it once nothing more is fed."""
        await _end_of(self._running)
        while (work := self._next_work(saves=True)) is not None:
            running = asyncio.get_running_loop().run_in_executor(self._works, work.run)
            self._running.add(running)
            running.add_done_callback(partial(self._ended, self.index, work))
            await _end_of(self._running)


async def _end_of(running: set[asyncio.Future[None]]) -> None:
    """Jobs cannot be stopped, and must not run while the folder is opened again."""
    cancelled: asyncio.CancelledError | None = None
    while running:
        try:
            await asyncio.wait(set(running))
            await asyncio.sleep(0)  # let their callbacks run
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _tell_refused(offset: int, reason: str) -> None:
    log_event(
        log,
        "the record of a delayed message cannot be delivered and stays where it is",
        level=logging.ERROR,
        offset=offset,
        reason=reason,
    )
