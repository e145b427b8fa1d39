"""Calls the listener: which messages next, and how many at a time.

Owns: a fixed set of workers, and the line of queues with waiting messages. No task is created per
message; a plain function is called in a loop by one worker, and only a listener that awaits
something starts another worker. What follows a failure is in `failed_calls.py`.
Invariants: before every call the queue's deadline is checked, so that no call begins after this
consumer's right to the queue has ended; a message is finished only by its listener's success or by
an explicit decision to skip it; with ordered handling, a queue is with one worker at a time; a
message that may have killed a process is handled alone. Workers yield the loop after a time slice,
whatever the listener costs.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.answers import Batch
from aerobee.consumer_client.attempts import Attempts
from aerobee.consumer_client.calls import ANSWERS, ListenerCounters, Work, awaited
from aerobee.consumer_client.failed_calls import Exit, FailedCalls
from aerobee.consumer_client.listener import (
    ConsumeResult,
    Listener,
    ListenerOptions,
    Messages,
    Ordering,
    Result,
)
from aerobee.consumer_client.listener_shape import illegal_result
from aerobee.consumer_client.process_queue import Entry
from aerobee.consumer_client.push_queue import PushQueue
from aerobee.consumer_client.sending_back import MESSAGES_PER_REQUEST_MAX, FailedWork
from aerobee.runtime.clock import Clock

SLICE_S = 0.005
"""How long workers may run without yielding the loop."""


class ListenerPool:
    """Workers between the owned queues and the user's listener."""

    def __init__(
        self,
        listener: Listener,
        options: ListenerOptions,
        *,
        clock: Clock,
        attempts: Attempts | None = None,
        group: str = "",
        send_back: Callable[[FailedWork], None] | None = None,
        reject: Callable[[FailedWork], None] | None = None,
        on_exit: Callable[[Exit], None] | None = None,
    ) -> None:
        """`attempts`: where they are counted; in memory by default. `group`: for the log.
        `send_back`: gets failed messages; None: they wait here for another attempt. `reject`: gets
        messages that are to be dead letters; None: they are skipped.
        `on_exit`: gets an exception that ends the program, raised by the listener or
        `on_exhausted`; None: it ends the worker."""
        self._attempts = attempts or Attempts()
        self._call: Callable[[list[ReceivedMessage]], Result | Awaitable[Result]]
        self._call = cast(Any, listener)
        self._options = options
        self._batch = (
            Batch if options.gets_batches or options.consume_batch_max > 1 else _plain_list
        )
        self._is_orderly = options.ordering is Ordering.ORDERLY
        self._in_order = options.in_order
        # With ordered handling, messages of one call stay together, including when their broker is
        # told.
        self._batch_max = (
            min(options.consume_batch_max, MESSAGES_PER_REQUEST_MAX)
            if self._in_order
            else options.consume_batch_max
        )
        # One message after another without a `Work` for each.
        self._is_run = (
            self._batch_max == 1 and self._batch is _plain_list and options.order_by is None
        )
        self._clock = clock
        self._ready: deque[PushQueue] = deque()
        self._due: deque[Work] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        # For the worker that has a suspect: done when all others are waiting.
        self._alone: asyncio.Future[None] | None = None
        self._alone_worker = -1
        self._slice_end_s = 0.0
        self._slice_begun = asyncio.Event()
        self._slice_begun.set()
        self.counters = ListenerCounters()
        self.failed = FailedCalls(
            options,
            clock=clock,
            attempts=self._attempts,
            counters=self.counters,
            group=group,
            on_due=self._on_due,
            on_finished=self._on_finished,
            send_back=send_back,
            reject=reject,
            on_exit=on_exit,
        )

    def __repr__(self) -> str:
        return f"ListenerPool(ready={len(self._ready)}, retrying={self.retrying})"

    @property
    def retrying(self) -> int:
        """Calls waiting to be repeated."""
        return len(self.failed) + len(self._due)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._options.max_concurrency):
                    workers.create_task(self._work(number), name=f"listener:{number}")
        finally:
            self._attempts.nothing_in_hand()
            self.failed.close()

    def on_ready(self, queue: PushQueue) -> None:
        """A queue that was not in line has waiting messages."""
        queue.is_ready = True
        self._ready.append(queue)
        self._wake_one()

    def forget(self, queue: PushQueue) -> None:
        """A queue was dropped: its failed messages need no further attempt here."""
        self.failed.forget(queue)

    # ------------------------------------------------------------------------------ workers

    async def _work(self, number: int) -> None:
        listener, batch_of = self._call, self._batch
        cells, mine = self._attempts.cells, self._attempts.worker_cell(number)
        now = self._clock.monotonic_s
        while True:
            work = self._next_work(number)
            if work is None:
                # The next message overwrites the previous one: only here does nothing follow.
                cells[mine] = 0
                await self._wait_for_work()
                continue
            queue, entries, _ = work
            messages: Messages = ()
            if (now() >= queue.trust.deadline_s and not queue.trust.check_deadline()) or (
                queue.past and await self._is_held_back(work, number)
            ):
                continue
            try:
                if entries:
                    cells[mine + 1] = entries[-1][0] - entries[0][0]
                    cells[mine] = queue.mark + entries[0][0]
                    messages = batch_of([entry[2] for entry in entries])
                    outcome = listener(messages)
                else:
                    outcome = self._run(queue, cells, mine)
                    if outcome is not None:
                        work = self._end_of_run(queue)
                if outcome is not None and not isinstance(outcome, ANSWERS):
                    outcome = await self._await_listener(queue, outcome)
            except BaseException as error:
                work = work if work.entries else self._end_of_run(queue)
                await self.failed.on_raised(work, error, messages)
            else:
                if outcome is not None and outcome is not ConsumeResult.SUCCESS:
                    await self.failed.on_answered(work, outcome, messages)
                elif work.entries:
                    await self._on_done(work, messages)
                else:
                    self._line_up_rest(queue)
            if now() >= self._slice_end_s:
                cells[mine] = 0
                await self._leave_loop()

    def _run(self, queue: PushQueue, cells: memoryview, mine: int) -> Awaitable[Result] | Result:
        """Give the listener one message after another while it is a plain function that succeeds.

        Each leaves the waiting ones when it is done. Returns None for a pause; otherwise, or if it
        raises, the listener is not done with the first waiting one.
        """
        listener = self._call
        mark = queue.mark
        now = self._clock.monotonic_s
        pause_s = min(queue.trust.deadline_s, self._slice_end_s)
        waiting = queue.messages.waiting
        take = waiting.popleft
        count = size = 0
        try:
            while True:
                entry = waiting[0]
                cells[mine] = mark + entry[0]
                outcome = listener([entry[2]])
                if outcome is not None and outcome is not ConsumeResult.SUCCESS:
                    return outcome
                take()
                count += 1
                size += entry[1]
                if not waiting or now() >= pause_s or queue.is_stopped:
                    return None
        finally:
            if count:
                self.counters.handled += count
                queue.finish_first(count, size)

    def _end_of_run(self, queue: PushQueue) -> Work:
        """The message that ended a run becomes separate work."""
        work = Work(queue, queue.messages.take(1), 0)
        if not self._is_orderly:
            self._line_up_rest(queue)
        return work

    def _on_success(self, work: Work) -> None:
        self.counters.handled += len(work.entries)
        work.queue.finish(work.entries)
        if work.failures or work.queue.past:
            self.failed.forget_attempts(work)
        self._on_finished(work.queue)

    def _next_work(self, worker: int) -> Work | None:
        """What to do next: a retry that is due, or new messages of the next queue in line."""
        if self._alone is not None:
            if worker != self._alone_worker:
                return None
            self._alone = None
        while self._due:
            work = self._due.popleft()
            if not work.queue.is_stopped:
                return work
        ready = self._ready
        while ready:
            queue = ready.popleft()
            if queue.is_stopped:
                queue.is_ready = False
                continue
            if not queue.messages.waiting:
                queue.is_ready = False
                continue
            # A message counted before is handled alone: in a batch it would affect its neighbours.
            past = queue.past
            if not past and self._is_run:
                return Work(queue, [], 0)
            entries = queue.messages.take(1 if past else self._batch_max)
            if not self._is_orderly:
                self._line_up_rest(queue)
            if past:
                return self._recalled(queue, entries)
            return Work(queue, entries, 0)
        return None

    def _recalled(self, queue: PushQueue, entries: list[Entry[ReceivedMessage]]) -> Work:
        """The work with what is known of its attempts from before this process."""
        offset, _, message = entries[0]
        counted = queue.past.get(offset)
        # Offsets rise: one that was passed does not come any more, unless it is being handled now.
        end = min(offset, queue.safe_offset)
        passed = [each for each in queue.past if each < end]
        if counted is not None and not counted.is_of(message.store_timestamp_ms):
            counted = None
            passed.append(offset)
        self._attempts.on_finished(queue.assignment.queue, queue.mark, passed)
        if counted is None:
            return Work(queue, entries, 0)
        message.attempts_before = counted.attempts
        return Work(queue, entries, counted.attempts)

    def _line_up_rest(self, queue: PushQueue) -> None:
        """What still waits goes to the end of the line; a worker that continues does not need
        waking."""
        if queue.messages.waiting:
            self._ready.append(queue)
        else:
            queue.is_ready = False

    def _on_finished(self, queue: PushQueue) -> None:
        """With ordered handling, a queue is out of line while a worker has it."""
        if not self._is_orderly or queue.messages.running_count:
            return  # Another part of the same batch is not finished.
        queue.is_ready = False
        if queue.messages.waiting and not queue.is_stopped:
            self.on_ready(queue)

    async def _await_listener(self, queue: PushQueue, outcome: object) -> Result:
        if not inspect.isawaitable(outcome):
            raise illegal_result(outcome)
        self._wake_one()
        return await awaited(queue, outcome, self._options.handle_timeout)

    async def _on_done(self, work: Work, messages: Messages) -> None:
        """The call succeeded; messages of a batch may have answers of their own."""
        if isinstance(messages, Batch) and messages.answers:
            work = await self.failed.on_parts(work, messages.answers, is_failed=False)
        if work.entries:
            self._on_success(work)

    def _on_due(self, work: Work) -> None:
        if not work.queue.is_stopped:
            self._due.append(work)
            self._wake_one()

    async def _wait_for_work(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._look_whether_alone()
        await waiter

    async def _is_held_back(self, work: Work, worker: int) -> bool:
        """Before handling a message that was counted before: whether it must not be handled now."""
        counted = work.queue.past.get(work.entries[0][0]) if work.entries else None
        if counted is None:
            return False
        if counted.attempts and await self.failed.is_given_up(work, counted):
            return True
        if counted.is_suspect:
            return not await self._is_alone(work, worker)
        return not self._may_begin(work.queue)

    async def _is_alone(self, work: Work, worker: int) -> bool:
        """Wait until all other workers wait; then none begins before this one asks for its next
        work. Returns False if the work is not to be done now."""
        if self._alone is not None:
            self._due.append(work)
            return False
        self._attempts.cells[self._attempts.worker_cell(worker)] = 0
        self._alone = asyncio.get_running_loop().create_future()
        self._alone_worker = worker
        self._look_whether_alone()
        await self._alone
        return self._may_begin(work.queue)

    def _may_begin(self, queue: PushQueue) -> bool:
        """Whether, after waiting for something, a message of this queue may still be handled."""
        trust = queue.trust
        return not queue.is_stopped and (
            self._clock.monotonic_s() < trust.deadline_s or trust.check_deadline()
        )

    def _look_whether_alone(self) -> None:
        alone = self._alone
        others = self._options.max_concurrency - 1
        if alone is not None and len(self._waiters) == others and not alone.done():
            alone.set_result(None)

    def _wake_one(self) -> None:
        waiters = self._waiters
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _leave_loop(self) -> None:
        """Let the loop run one iteration. All callers of the same iteration wait for the same
        slice."""
        if self._slice_begun.is_set():
            self._slice_begun.clear()
            asyncio.get_running_loop().call_soon(self._begin_slice)
        await self._slice_begun.wait()

    def _begin_slice(self) -> None:
        self._slice_begun.set()
        self._slice_end_s = self._clock.monotonic_s() + SLICE_S


def _plain_list(messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
    return messages
