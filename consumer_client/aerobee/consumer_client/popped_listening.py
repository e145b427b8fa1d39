"""Calls a listener with messages that a SimpleConsumer receives, and says each answer.

Owns: the running calls, and for how long each message is this member's: it is renewed while its
call runs, counted from when the renewal was sent.
Invariants: an asynchronous call ends before its message may be with another member; a message is
answered at most once; what was received and not answered comes again by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.answers import Batch, Reject, RetryLater
from aerobee.consumer_client.background_tasks import wait_event
from aerobee.consumer_client.calls import ANSWERS, described, is_answer
from aerobee.consumer_client.failure_log import UNKNOWN, FailureLog
from aerobee.consumer_client.listener import ConsumeResult, Listener
from aerobee.consumer_client.listener_shape import illegal_result
from aerobee.consumer_client.listener_threads import ListenerThreads
from aerobee.consumer_client.pop_calls import MESSAGES_PER_POLL_MAX, PopCalls
from aerobee.consumer_client.popped_message import PoppedMessage
from aerobee.consumer_client.retry_schedule import RetryPolicy
from aerobee.consumer_client.sending_back import reason_of
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.runtime.task_groups import first_error

log = logging.getLogger(__name__)

Receive = Callable[[int], Awaitable[list[PoppedMessage]]]
RENEW_S_MIN = 0.1
AGAIN_S = 1.0
"""After a failure to receive or to renew."""
FATAL = (
    errors.AccessDenied,
    errors.InvalidArgument,
    errors.LeaseHeld,
    errors.ShuttingDown,
    errors.Unauthenticated,
)
"""What waiting does not heal."""


class _Call:
    """One running call, and how long it may go on."""

    def __init__(self, message: PoppedMessage) -> None:
        self.message = message
        self.scope = asyncio.timeout_at(message.end_s)
        self.is_over = asyncio.Event()
        self._is_ended = False

    def on_renewed(self) -> None:
        """Or not: then the message may be with another member."""
        if self.message.is_settled:
            self.end()
        elif not self._is_ended:
            self._reschedule(self.message.end_s)

    def end(self) -> None:
        """Now, whatever it does."""
        self._is_ended = True
        self._reschedule(asyncio.get_running_loop().time())

    def _reschedule(self, end_s: float) -> None:
        if not self.is_over.is_set() and not self.scope.expired():
            self.scope.reschedule(end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningOptions:
    max_concurrency: int
    gets_batches: bool
    retry: RetryPolicy
    release_s: float
    """How long running calls may go on once it is stopped."""


class PoppedListening:
    """One run of a listener."""

    def __init__(
        self,
        calls: PopCalls,
        receive: Receive,
        listener: Listener,
        options: ListeningOptions,
        *,
        group: str,
        clock: Clock,
    ) -> None:
        """`receive`: up to so many messages, or none after a while."""
        self._calls = calls
        self._receive = receive
        self._threads = listener if isinstance(listener, ListenerThreads) else None
        self._listener = cast(Callable[[Any], Any], listener)
        self._options = options
        self._group = group
        self._failures = FailureLog(log, group, clock)
        self.ended = asyncio.Event()
        """No call is running any more."""
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._receiving: asyncio.Timeout | None = None
        self._running: dict[asyncio.Task[None], _Call] = {}

    @property
    def running_calls(self) -> int:
        return len(self._running)

    def stop(self) -> None:
        """Receive no more; `run` returns once the running calls have ended."""
        self._stopping.set()
        self._changed.set()
        if self._receiving is not None and not self._receiving.expired():
            self._receiving.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Until `stop` or cancellation, after which running calls may end. Raises AerobeeError:
        what waiting does not heal."""
        if self._threads is not None:
            self._threads.open()
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    while not self._stopping.is_set():
                        self._begin(group, await self._next())
                        await self._has_room()
                finally:
                    await self._end_calls()
        except BaseExceptionGroup as group_error:
            raise first_error(group_error) from None
        finally:
            if self._threads is not None:
                self._threads.close()
            self.ended.set()

    def _begin(self, group: asyncio.TaskGroup, messages: Sequence[PoppedMessage]) -> None:
        for message in messages:
            call = _Call(message)
            task = group.create_task(self._handle(call), name="handle")
            self._running[task] = call
            task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._changed.set()

    async def _has_room(self) -> None:
        while len(self._running) >= self._options.max_concurrency and not self._stopping.is_set():
            self._changed.clear()
            await self._changed.wait()

    async def _next(self) -> list[PoppedMessage]:
        room = min(self._options.max_concurrency - len(self._running), MESSAGES_PER_POLL_MAX)
        scope = self._receiving = asyncio.timeout(None)
        try:
            async with scope:
                return await self._receive(room)
        except FATAL:
            raise
        except errors.AerobeeError as error:
            log_event(
                log,
                "no messages can be received",
                level=logging.WARNING,
                group=self._group,
                reason=error,
                follows=f"again in {AGAIN_S:g} s",
            )
            await wait_event(self._stopping, AGAIN_S)
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            self._receiving = None
        return []

    async def _end_calls(self) -> None:
        """Those that take too long are ended, and give their messages back."""
        for end in (False, True):
            for call in self._running.values():
                if end:
                    call.end()
            if self._running:
                await asyncio.wait([*self._running], timeout=self._options.release_s)

    # ------------------------------------------------------------------------------ one message

    async def _handle(self, call: _Call) -> None:
        message = call.message
        outcome: object = RetryLater("it was not finished in time", after=0)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hold(call), name="hold")
            try:
                async with call.scope:
                    outcome = await self._outcome(message)
            except TimeoutError:
                if not call.scope.expired():
                    raise
            finally:
                call.is_over.set()
        await self._say(message, outcome)

    async def _hold(self, call: _Call) -> None:
        """A renewal is never cancelled: the answer needs the newest handle."""
        message, pause_s = call.message, 0.0
        while not message.is_settled:
            left_s = message.renew_s - asyncio.get_running_loop().time()
            await wait_event(call.is_over, max(left_s, pause_s, RENEW_S_MIN))
            if call.is_over.is_set():
                return
            pause_s = 0.0
            try:
                await self._calls.change([message], message.invisible_ms, settles=False)
            except errors.AerobeeError as error:
                self._log_lost("a message could not be renewed", message, error)
                pause_s = AGAIN_S
            call.on_renewed()

    async def _outcome(self, message: PoppedMessage) -> object:
        """None: success. What the listener raises is an outcome, too."""
        messages: list[ReceivedMessage] = [message]
        batch = Batch(messages) if self._options.gets_batches else messages
        try:
            outcome = self._listener(batch)
            if outcome is not None and not isinstance(outcome, ANSWERS):
                if not isinstance(outcome, Awaitable):
                    raise illegal_result(outcome)
                outcome = await outcome
                if outcome is not None and not isinstance(outcome, ANSWERS):
                    raise illegal_result(outcome)
        except Exception as error:
            outcome = error
        if isinstance(batch, Batch):
            outcome = batch.answers.get(0, outcome)
        return None if outcome is ConsumeResult.SUCCESS else outcome

    async def _say(self, message: PoppedMessage, outcome: object) -> None:
        if message.is_settled:
            return  # It is with another member.
        try:
            if outcome is None:
                await self._calls.acknowledge([message])
                self._failures.forget(message.queue, message.handle.offset)
            else:
                await self._say_failed(message, outcome)
        except errors.AerobeeError as error:
            self._log_lost("a message could not be answered, and comes again", message, error)

    async def _say_failed(self, message: PoppedMessage, outcome: object) -> None:
        error = outcome if isinstance(outcome, Exception) else None  # else RETRY_LATER
        event, reason = described(error)
        is_chosen = is_answer(error)
        attempt = message.reconsume_times + 1
        line = self._failures.line(
            event,
            logging.WARNING if is_chosen or attempt == 1 else logging.ERROR,
            message.queue,
            [(message.handle.offset, 0, message)],
            None if is_chosen else error,
            reason,
            repeats=not isinstance(error, Reject),
            attempt=attempt,
        )
        line.attempts_max = message.attempts_max or UNKNOWN
        if isinstance(error, Reject) or 0 < message.attempts_max <= attempt:
            # After its last attempt the broker would bury it as well, but could not say why.
            await self._calls.reject([message], *reason_of(error))
            line.complete("a dead letter", True)
            self._failures.forget(message.queue, message.handle.offset)
            return
        after_ms = error.after_ms if isinstance(error, RetryLater) else None
        if after_ms is None:
            after_ms = int(self._options.retry.delay_s(attempt) * 1_000)
        line.complete(f"again in {after_ms / 1_000:g} s")
        await self._calls.change([message], after_ms, settles=True)

    def _log_lost(self, event: str, message: PoppedMessage, error: Exception) -> None:
        log_event(
            log,
            event,
            level=logging.WARNING,
            group=self._group,
            queue=message.queue,
            message_id=message.message_id,
            reason=error,
        )
