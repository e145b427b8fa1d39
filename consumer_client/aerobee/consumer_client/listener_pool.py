"""Calls the listener: which messages next, how many at a time, and what happens after a failure.

Owns: a fixed set of workers, the line of queues with waiting messages, and the messages waiting for
another attempt. No task is created per message; a plain function is called in a loop by one worker,
and only a listener that awaits something starts another worker.
Invariants: before every call the queue's deadline is checked, so that no call begins after this
consumer's right to the queue has ended; a message is finished only by its listener's success or by
an explicit decision to skip it; with ordered handling, a queue is with one worker at a time; a
message that may have killed a process is handled alone. Workers yield the loop after a time slice,
whatever the listener costs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.answers import Answer, Batch, Reject, RetryLater
from aerobee.consumer_client.attempts import DIED, Attempts, Counted
from aerobee.consumer_client.failure_log import UNKNOWN, UNLIMITED, FailureLine, FailureLog
from aerobee.consumer_client.listener import (
    ConsumeResult,
    Exhausted,
    Listener,
    ListenerOptions,
    Messages,
    Ordering,
    Result,
)
from aerobee.consumer_client.listener_shape import illegal_result, said
from aerobee.consumer_client.process_queue import Entry
from aerobee.consumer_client.push_queue import PushQueue
from aerobee.consumer_client.retry_schedule import RetrySchedule
from aerobee.consumer_client.sending_back import (
    MESSAGES_PER_REQUEST_MAX,
    FailedWork,
    reason_of,
)
from aerobee.runtime.clock import Clock
from aerobee.store.format.retry_delays import IN_ORDER

log = logging.getLogger(__name__)

Exit = SystemExit | KeyboardInterrupt
"""What asyncio lets through all tasks at once."""

RETURNED_RETRY_LATER = "it returned RETRY_LATER"

SLICE_S = 0.005
"""How long workers may run without yielding the loop."""


class _Work(NamedTuple):
    queue: PushQueue
    entries: list[Entry[ReceivedMessage]]
    """Empty: the waiting ones, one after another; see `_run`."""
    failures: int


_ANSWERS = (ConsumeResult, Answer)
"""What is not awaited."""


class _Abandoned(Exception):
    """The queue was taken away while its listener was awaiting something."""


@dataclass(slots=True)
class ListenerCounters:
    """Since the consumer was started."""

    handled: int = 0
    failed_calls: int = 0
    skipped: int = 0
    sent_back: int = 0


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
        self._on_exit = on_exit
        self._send_back = send_back
        self._reject = reject
        self._log = FailureLog(log, group, clock)
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
        # One message after another without a `_Work` for each.
        self._is_run = (
            self._batch_max == 1 and self._batch is _plain_list and options.order_by is None
        )
        self._clock = clock
        self._ready: deque[PushQueue] = deque()
        self._due: deque[_Work] = deque()
        self._schedule: RetrySchedule[_Work] = RetrySchedule()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._waiters: deque[asyncio.Future[None]] = deque()
        # For the worker that has a suspect: done when all others are waiting.
        self._alone: asyncio.Future[None] | None = None
        self._alone_worker = -1
        self._slice_end_s = 0.0
        self._slice_begun = asyncio.Event()
        self._slice_begun.set()
        self.counters = ListenerCounters()

    def __repr__(self) -> str:
        return f"ListenerPool(ready={len(self._ready)}, retrying={self.retrying})"

    @property
    def retrying(self) -> int:
        """Calls waiting to be repeated."""
        return len(self._schedule) + len(self._due)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._options.max_concurrency):
                    workers.create_task(self._work(number), name=f"listener:{number}")
        finally:
            self._attempts.nothing_in_hand()
            if self._timer is not None:
                self._timer.cancel()

    def on_ready(self, queue: PushQueue) -> None:
        """A queue that was not in line has waiting messages."""
        queue.is_ready = True
        self._ready.append(queue)
        self._wake_one()

    def forget(self, queue: PushQueue) -> None:
        """A queue was dropped: its failed messages need no further attempt here."""
        self._schedule.remove_if(lambda work: work.queue is queue)

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
                if outcome is not None and not isinstance(outcome, _ANSWERS):
                    outcome = await self._await_listener(queue, outcome)
            except BaseException as error:
                work = work if work.entries else self._end_of_run(queue)
                await self._on_raised(work, error, messages)
            else:
                if outcome is not None and outcome is not ConsumeResult.SUCCESS:
                    await self._on_answered(work, outcome, messages)
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

    def _end_of_run(self, queue: PushQueue) -> _Work:
        """The message that ended a run becomes separate work."""
        work = _Work(queue, queue.messages.take(1), 0)
        if not self._is_orderly:
            self._line_up_rest(queue)
        return work

    def _on_success(self, work: _Work) -> None:
        self.counters.handled += len(work.entries)
        work.queue.finish(work.entries)
        if work.failures or work.queue.past:
            self._forget_attempts(work)
        if self._is_orderly:
            self._line_up_again(work.queue)

    def _next_work(self, worker: int) -> _Work | None:
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
                return _Work(queue, [], 0)
            entries = queue.messages.take(1 if past else self._batch_max)
            if not self._is_orderly:
                self._line_up_rest(queue)
            if past:
                return self._recalled(queue, entries)
            return _Work(queue, entries, 0)
        return None

    def _recalled(self, queue: PushQueue, entries: list[Entry[ReceivedMessage]]) -> _Work:
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
            return _Work(queue, entries, 0)
        message.attempts_before = counted.attempts
        return _Work(queue, entries, counted.attempts)

    def _line_up_rest(self, queue: PushQueue) -> None:
        """What still waits goes to the end of the line; a worker that continues does not need
        waking."""
        if queue.messages.waiting:
            self._ready.append(queue)
        else:
            queue.is_ready = False

    def _line_up_again(self, queue: PushQueue) -> None:
        """With ordered handling, a queue is out of line while a worker has it."""
        if queue.messages.running_count:
            return  # Another part of the same batch is not finished.
        queue.is_ready = False
        if queue.messages.waiting and not queue.is_stopped:
            self.on_ready(queue)

    async def _await_listener(self, queue: PushQueue, outcome: object) -> Result:
        """The rest of an asynchronous listener, ended early if its queue is taken away."""
        if not inspect.isawaitable(outcome):
            raise illegal_result(outcome)
        self._wake_one()
        scope = asyncio.timeout(None)
        try:
            async with scope:
                queue.enter(scope)
                result: Result = await self._within_time(outcome)
        except TimeoutError:
            if scope.expired():
                raise _Abandoned from None
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError("the listener cancelled itself") from None
        finally:
            queue.leave(scope)
        if result is not None and not isinstance(result, _ANSWERS):
            raise illegal_result(result)
        return result

    async def _within_time(self, outcome: Awaitable[Result]) -> Result:
        limit_s = self._options.handle_timeout
        if limit_s is None:
            return await outcome
        scope = asyncio.timeout(limit_s)
        try:
            async with scope:
                return await outcome
        except TimeoutError:
            if scope.expired():
                raise TimeoutError(f"the call took longer than {limit_s:g} s") from None
            raise

    async def _wait_for_work(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._look_whether_alone()
        await waiter

    async def _is_alone(self, work: _Work, worker: int) -> bool:
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

    # ------------------------------------------------------------------------------ failures

    async def _on_raised(self, work: _Work, error: BaseException, messages: Messages) -> None:
        """Raises what ends the worker."""
        if isinstance(error, _Abandoned):
            return
        if not isinstance(error, Exception):
            if not isinstance(error, Exit):
                raise error
            # It ends the process in order, but was still being handled.
            self._note_failure(work, work.failures + 1)
            self._exit(error)
            return
        await self._on_answered(work, error, messages)

    async def _on_answered(self, work: _Work, outcome: object, messages: Messages) -> None:
        """The call failed; messages of a batch may have answers of their own."""
        error = outcome if isinstance(outcome, Exception) else None  # else RETRY_LATER
        if isinstance(messages, Batch) and messages.answers:
            work = await self._on_parts(work, messages.answers, is_failed=True)
        if work.entries:
            await self._on_failure(work, error)

    async def _on_done(self, work: _Work, messages: Messages) -> None:
        """The call succeeded; messages of a batch may have answers of their own."""
        if isinstance(messages, Batch) and messages.answers:
            work = await self._on_parts(work, messages.answers, is_failed=False)
        if work.entries:
            self._on_success(work)

    def _exit(self, error: Exit) -> None:
        """The user's code ends the program."""
        if self._on_exit is None:
            raise error
        # Raised here, it would leave the loop at once, in the middle of every task.
        self._on_exit(error)

    async def _on_parts(
        self, work: _Work, answers: Mapping[int, Answer], *, is_failed: bool
    ) -> _Work:
        """Returns what has no answer of its own."""
        parts, rest = self._apart(work, answers, is_failed=is_failed)
        for part, answer in parts:
            await self._on_failure(part, answer)
        return rest

    def _apart(
        self, work: _Work, answers: Mapping[int, Answer], *, is_failed: bool
    ) -> tuple[list[tuple[_Work, Answer]], _Work]:
        """Messages with an answer of their own, and the rest.

        In order, only rejected ones go alone: the first one that comes again brings back all after
        it. If the call failed, all come again.
        """
        parts: list[tuple[_Work, Answer]] = []
        rest: list[Entry[ReceivedMessage]] = []
        again: list[Entry[ReceivedMessage]] = []
        later: Answer | None = None
        for index, entry in enumerate(work.entries):
            answer = answers.get(index)
            if isinstance(answer, Reject) or (answer is not None and not self._in_order):
                parts.append((work._replace(entries=[entry]), answer))
            elif later is not None or (answer is not None and not is_failed):
                later = later or answer
                again.append(entry)
            else:
                rest.append(entry)
        if later is not None:
            parts.append((work._replace(entries=again), later))
        return parts, work._replace(entries=rest)

    async def _on_failure(self, work: _Work, error: Exception | None) -> None:
        """The listener raised, or asked for a retry, or rejected them."""
        queue, entries, failures = work.queue, work.entries, work.failures + 1
        self.counters.failed_calls += 1
        self._note_failure(work, failures)
        if queue.is_stopped and not (self._in_order and self._send_back is not None):
            return
        if queue.is_dropped:
            self.on_unanswered(FailedWork(queue, entries, failures, *reason_of(error)))
            return
        event, said_why = _described(error)
        line = self._log.line(
            event,
            logging.WARNING if failures == 1 or _is_answer(error) else logging.ERROR,
            queue,
            entries,
            None if _is_answer(error) else error,
            said_why,
            repeats=not isinstance(error, Reject),
        )
        failed = FailedWork(queue, entries, failures, *reason_of(error), line)
        if isinstance(error, Reject):
            self._on_rejected(failed._replace(is_rejected=True))
            return
        after_ms = error.after_ms if isinstance(error, RetryLater) else None
        if self._send_back is None or self._options.on_exhausted is not None:
            self._say_what_follows(line, failures, after_ms)
        if self._is_over(failures) and await self._is_skipped(work, failures):
            return
        if self._send_back is not None:
            self._send_back(failed._replace(after_ms=after_ms))
            return
        self._try_later(_Work(queue, entries, failures), after_ms)

    def _on_rejected(self, failed: FailedWork) -> None:
        if self._reject is not None:
            self._reject(failed)
            return
        self._skip(_Work(failed.queue, [*failed.entries], failed.failures))
        if failed.line is not None:
            failed.line.complete("skipped: without a broker there are no dead letters", True)

    def _try_later(self, work: _Work, asked_ms: int | None = None, told_ms: int = 0) -> None:
        due_s = self._clock.monotonic_s() + self._delay_s(work.failures, asked_ms, told_ms)
        self._schedule.add(due_s, work)
        self._arm_timer()

    def _delay_s(self, failures: int, asked_ms: int | None, told_ms: int) -> float:
        """For messages that wait here; `asked_ms`: as the listener says; `told_ms`: as their broker
        says, or 0."""
        if asked_ms is not None:
            return asked_ms / 1_000
        if not self._in_order:
            return self._options.retry.delay_s(failures)
        if self._options.suspend_ms is not None:
            return self._options.suspend_ms / 1_000
        return (told_ms or IN_ORDER.delay_ms(failures - 1)) / 1_000

    def _say_what_follows(
        self, line: FailureLine, failures: int, asked_ms: int | None, told_ms: int = 0
    ) -> None:
        """For messages that stay here."""
        follows = f"again in {self._delay_s(failures, asked_ms, told_ms):g} s"
        if self._options.on_exhausted is not None:
            line.attempts_max = self._options.retry.attempts_max
            if self._is_over(failures):
                follows = "on_exhausted decides"
        elif line.attempts_max == UNKNOWN:
            line.attempts_max = UNLIMITED
        line.complete(follows)

    def on_sent_back(self, work: FailedWork) -> None:
        """The broker has these messages, and will redeliver them."""
        self.counters.sent_back += len(work.entries)
        work.queue.finish(work.entries)
        self._forget_attempts(_Work(work.queue, [*work.entries], work.failures))
        if self._is_orderly:
            self._line_up_again(work.queue)

    def on_kept(self, work: FailedWork, told_ms: int = 0) -> None:
        """The broker has counted them, or will never accept them: they are retried here, after
        `told_ms` if that is above 0 and the program says nothing else."""
        if not work.queue.is_stopped:
            if work.line is not None:
                self._say_what_follows(work.line, work.failures, work.after_ms, told_ms)
            again = _Work(work.queue, [*work.entries], work.failures)
            self._try_later(again, work.after_ms, told_ms)

    def on_unanswered(self, work: FailedWork) -> None:
        """The queue was lost while the broker was being told of this failure."""
        queue, failure = work.queue.assignment.queue, (work.reason_class, work.reason)
        self._attempts.on_unanswered(queue, work.entries, work.failures, failure)

    async def _is_held_back(self, work: _Work, worker: int) -> bool:
        """Before handling a message that was counted before: whether it must not be handled now."""
        counted = work.queue.past.get(work.entries[0][0]) if work.entries else None
        if counted is None:
            return False
        if counted.attempts and await self._is_given_up(work, counted):
            return True
        if counted.is_suspect:
            return not await self._is_alone(work, worker)
        return not self._may_begin(work.queue)

    async def _is_given_up(self, work: _Work, counted: Counted) -> bool:
        """When the process died, there was no chance to ask, or to tell its broker; when the queue
        was lost, there was no answer."""
        queue, entries, failures = work
        if self._is_over(failures) and await self._is_skipped(work, failures):
            return True
        if self._send_back is None or counted.is_reported:
            return False
        if counted.failure is DIED:
            self._attempts.sent_back(counted, entries[0][2].origin_message_id)
        else:
            self._attempts.reported(counted)
        self._send_back(FailedWork(queue, entries, failures, *counted.failure))
        return True

    def _note_failure(self, work: _Work, failures: int) -> None:
        entries = work.entries
        for _, _, message in entries:
            message.attempts_before = failures
        work.queue.past.pop(entries[0][0], None)
        if work.queue.is_dropped:
            return
        first, last = entries[0][0], entries[-1][0]
        spans = [(first, last)]
        if last - first >= len(entries):  # What is between may not have failed.
            spans = [(offset, offset) for offset, _, _ in entries]
        for first, last in spans:
            self._attempts.on_failed(work.queue.mark, first, last, failures)

    def _forget_attempts(self, work: _Work) -> None:
        offsets = [entry[0] for entry in work.entries]
        self._log.forget(work.queue.assignment.queue, offsets[0])
        self._attempts.on_finished(work.queue.assignment.queue, work.queue.mark, offsets)

    def _is_over(self, failures: int) -> bool:
        return failures >= self._options.retry.attempts_max

    async def _is_skipped(self, work: _Work, failures: int) -> bool:
        """Whether the user gives these messages up; then they are done."""
        if not await self._is_to_skip(work, failures):
            return False
        self._skip(work)
        return True

    def _skip(self, work: _Work) -> None:
        self.counters.skipped += len(work.entries)
        work.queue.finish(work.entries)
        self._forget_attempts(work)
        if self._is_orderly:
            self._line_up_again(work.queue)

    async def _is_to_skip(self, work: _Work, failures: int) -> bool:
        """Ask the user; any failure there keeps the messages."""
        decide = self._options.on_exhausted
        if decide is None:
            return False
        try:
            decision = decide([entry[2] for entry in work.entries], failures)
            if isinstance(decision, Awaitable):
                decision = await decision
        except (SystemExit, KeyboardInterrupt) as error:
            self._exit(error)
            return False
        except Exception as error:
            event = "on_exhausted failed; the messages are kept"
            line = self._log.line(
                event, logging.ERROR, work.queue, work.entries, error, repr(error)
            )
            line.attempts_max = self._options.retry.attempts_max
            line.complete("they are tried again")
            return False
        if decision is not Exhausted.SKIP:
            return False
        event = "messages skipped by on_exhausted"
        line = self._log.line(
            event, logging.WARNING, work.queue, work.entries, None, "it returned SKIP"
        )
        line.attempts_max = self._options.retry.attempts_max
        line.complete("they count as done")
        return True

    def _arm_timer(self) -> None:
        due_s = self._schedule.next_due_s
        if due_s is None or (self._timer is not None and self._timer_due_s <= due_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        delay_s = max(0.0, due_s - self._clock.monotonic_s())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        for work in self._schedule.pop_due(self._clock.monotonic_s()):
            if not work.queue.is_stopped:
                self._due.append(work)
                self._wake_one()
        self._arm_timer()


def _plain_list(messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
    return messages


def _is_answer(error: Exception | None) -> bool:
    """Whether the listener chose to fail."""
    return error is None or isinstance(error, Answer)


def _described(error: Exception | None) -> tuple[str, str]:
    """Event and reason of a log line."""
    if error is None:
        return "listener asked for a retry", RETURNED_RETRY_LATER
    if isinstance(error, RetryLater):
        return "listener asked for a retry", reason_of(error)[1]
    if isinstance(error, Reject):
        return "listener rejected a message", reason_of(error)[1]
    return "listener failed", said(error)
