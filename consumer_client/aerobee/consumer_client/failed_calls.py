"""What follows a call of the listener that failed: another attempt, here or by the broker, a dead
letter, or nothing more.

Owns: the messages waiting here for another attempt, and what the log says about failures. The pool
calls the listener and says how that ended.
Invariants: a failure is noted before anything else is done about it; a message is finished only
when its broker has it, or by an explicit decision to skip it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from aerobee.consumer_client.answers import Answer, Batch, Reject, RetryLater
from aerobee.consumer_client.attempts import DIED, Attempts, Counted
from aerobee.consumer_client.calls import (
    Abandoned,
    ListenerCounters,
    Work,
    apart,
    described,
    is_answer,
)
from aerobee.consumer_client.failure_log import UNKNOWN, UNLIMITED, FailureLine, FailureLog
from aerobee.consumer_client.listener import Exhausted, ListenerOptions, Messages
from aerobee.consumer_client.push_queue import PushQueue
from aerobee.consumer_client.retry_schedule import TimedRetries
from aerobee.consumer_client.sending_back import FailedWork, reason_of
from aerobee.runtime.clock import Clock
from aerobee.store.format.retry_delays import IN_ORDER

log = logging.getLogger(__name__)

Exit = SystemExit | KeyboardInterrupt
"""What asyncio lets through all tasks at once."""


class FailedCalls:
    """What the pool of a listener does about failures."""

    def __init__(
        self,
        options: ListenerOptions,
        *,
        clock: Clock,
        attempts: Attempts,
        counters: ListenerCounters,
        group: str,
        on_due: Callable[[Work], None],
        on_finished: Callable[[PushQueue], None],
        send_back: Callable[[FailedWork], None] | None,
        reject: Callable[[FailedWork], None] | None,
        on_exit: Callable[[Exit], None] | None,
    ) -> None:
        """`on_due`: gets what is to be handled again now. `on_finished`: a queue has messages that
        are finished without their listener's success. The others: see `ListenerPool`."""
        self._options = options
        self._in_order = options.in_order
        self._clock = clock
        self._attempts = attempts
        self._counters = counters
        self._log = FailureLog(log, group, clock)
        self._schedule: TimedRetries[Work] = TimedRetries(clock, on_due)
        self._on_finished = on_finished
        self._send_back = send_back
        self._reject = reject
        self._on_exit = on_exit

    def __repr__(self) -> str:
        return f"FailedCalls(waiting={len(self)})"

    def __len__(self) -> int:
        """Calls waiting here to be repeated."""
        return len(self._schedule)

    def close(self) -> None:
        self._schedule.close()

    def forget(self, queue: PushQueue) -> None:
        """The queue was dropped: its failed messages need no further attempt here."""
        self._schedule.remove_if(lambda work: work.queue is queue)

    # ------------------------------------------------------------------------------ calls

    async def on_raised(self, work: Work, error: BaseException, messages: Messages) -> None:
        """Raises what ends the worker."""
        if isinstance(error, Abandoned):
            return
        if not isinstance(error, Exception):
            if not isinstance(error, Exit):
                raise error
            # It ends the process in order, but was still being handled.
            self._note_failure(work, work.failures + 1)
            self._exit(error)
            return
        await self.on_answered(work, error, messages)

    async def on_answered(self, work: Work, outcome: object, messages: Messages) -> None:
        """The call failed; messages of a batch may have answers of their own."""
        error = outcome if isinstance(outcome, Exception) else None  # else RETRY_LATER
        if isinstance(messages, Batch) and messages.answers:
            work = await self.on_parts(work, messages.answers, is_failed=True)
        if work.entries:
            await self._on_failure(work, error)

    def _exit(self, error: Exit) -> None:
        """The user's code ends the program."""
        if self._on_exit is None:
            raise error
        # Raised here, it would leave the loop at once, in the middle of every task.
        self._on_exit(error)

    async def on_parts(self, work: Work, answers: Mapping[int, Answer], *, is_failed: bool) -> Work:
        """Returns what has no answer of its own."""
        parts, rest = apart(work, answers, in_order=self._in_order, is_failed=is_failed)
        for part, answer in parts:
            await self._on_failure(part, answer)
        return rest

    async def _on_failure(self, work: Work, error: Exception | None) -> None:
        """The listener raised, or asked for a retry, or rejected them."""
        queue, entries, failures = work.queue, work.entries, work.failures + 1
        self._counters.failed_calls += 1
        self._note_failure(work, failures)
        if queue.is_stopped and not (self._in_order and self._send_back is not None):
            return
        if queue.is_dropped:
            self.on_unanswered(FailedWork(queue, entries, failures, *reason_of(error)))
            return
        event, said_why = described(error)
        line = self._log.line(
            event,
            logging.WARNING if failures == 1 or is_answer(error) else logging.ERROR,
            queue.assignment.queue,
            entries,
            None if is_answer(error) else error,
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
        self._try_later(Work(queue, entries, failures), after_ms)

    def _on_rejected(self, failed: FailedWork) -> None:
        if self._reject is not None:
            self._reject(failed)
            return
        self._skip(Work(failed.queue, [*failed.entries], failed.failures))
        if failed.line is not None:
            failed.line.complete("skipped: without a broker there are no dead letters", True)

    def _try_later(self, work: Work, asked_ms: int | None = None, told_ms: int = 0) -> None:
        delay_s = self._delay_s(work.failures, asked_ms, told_ms)
        self._schedule.add(self._clock.monotonic_s() + delay_s, work)

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
        self._counters.sent_back += len(work.entries)
        work.queue.finish(work.entries)
        self.forget_attempts(Work(work.queue, [*work.entries], work.failures))
        self._on_finished(work.queue)

    def on_kept(self, work: FailedWork, told_ms: int = 0) -> None:
        """The broker has counted them, or will never accept them: they are retried here, after
        `told_ms` if that is above 0 and the program says nothing else."""
        if not work.queue.is_stopped:
            if work.line is not None:
                self._say_what_follows(work.line, work.failures, work.after_ms, told_ms)
            again = Work(work.queue, [*work.entries], work.failures)
            self._try_later(again, work.after_ms, told_ms)

    def on_unanswered(self, work: FailedWork) -> None:
        """The queue was lost while the broker was being told of this failure."""
        queue, failure = work.queue.assignment.queue, (work.reason_class, work.reason)
        self._attempts.on_unanswered(queue, work.entries, work.failures, failure)

    async def is_given_up(self, work: Work, counted: Counted) -> bool:
        """Whether a message that was counted before has had its last attempt, or goes back to its
        broker. When the process died, there was no chance to ask, or to
        tell its broker; when the queue was lost, there was no answer."""
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

    def _note_failure(self, work: Work, failures: int) -> None:
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

    def forget_attempts(self, work: Work) -> None:
        """They are finished."""
        offsets = [entry[0] for entry in work.entries]
        self._log.forget(work.queue.assignment.queue, offsets[0])
        self._attempts.on_finished(work.queue.assignment.queue, work.queue.mark, offsets)

    def _is_over(self, failures: int) -> bool:
        return failures >= self._options.retry.attempts_max

    async def _is_skipped(self, work: Work, failures: int) -> bool:
        """Whether the user gives these messages up; then they are done."""
        if not await self._is_to_skip(work, failures):
            return False
        self._skip(work)
        return True

    def _skip(self, work: Work) -> None:
        self._counters.skipped += len(work.entries)
        work.queue.finish(work.entries)
        self.forget_attempts(work)
        self._on_finished(work.queue)

    async def _is_to_skip(self, work: Work, failures: int) -> bool:
        """Ask the user; any failure there keeps the messages."""
        decide = self._options.on_exhausted
        if decide is None:
            return False
        place = work.queue.assignment.queue
        try:
            decision = decide([entry[2] for entry in work.entries], failures)
            if isinstance(decision, Awaitable):
                decision = await decision
        except (SystemExit, KeyboardInterrupt) as error:
            self._exit(error)
            return False
        except Exception as error:
            event = "on_exhausted failed; the messages are kept"
            line = self._log.line(event, logging.ERROR, place, work.entries, error, repr(error))
            line.attempts_max = self._options.retry.attempts_max
            line.complete("they are tried again")
            return False
        if decision is not Exhausted.SKIP:
            return False
        event = "messages skipped by on_exhausted"
        line = self._log.line(event, logging.WARNING, place, work.entries, None, "it returned SKIP")
        line.attempts_max = self._options.retry.attempts_max
        line.complete("they count as done")
        return True
