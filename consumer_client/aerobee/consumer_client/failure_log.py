"""What is logged about failed calls of a listener: one line each, with the traceback if it is new.

Owns: the places that were logged with a traceback, a bounded number of them. A failure that repeats
at each attempt, or with each message, is one line from then on; and a traceback starts where the
user's code does, because the frames that called it are always the same.

A line says what happens next. For messages that go back to their broker only the broker knows, so
their line waits for its answer, `ANSWER_WAITS_S` at most.

A message that fails in its place, again and again, has lines at doubling intervals, then one a
minute: one for each step of a growing back-off, and no flood if the delay is short. Each says how
many failures had none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.process_queue import Entry
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.store.format.record import RecordCorrupt

PLACES_MAX = 1_000
"""After this many, lines without tracebacks: code generated anew for each message has no end of
places."""

QUIET_MAX_S = 60.0
"""How long a message may fail without a line."""
FAILING_MAX = 10_000
"""Failing messages whose last line is known; beyond it the oldest is forgotten."""
ANSWER_WAITS_S = 1.0
UNKNOWN = "unknown"
UNLIMITED = "unlimited"
NOT_ANSWERED = "back to its broker, which has not answered yet"

_CALLERS = frozenset(
    {
        "aerobee.client_core.prometheus",
        "aerobee.consumer_client.calls",
        "aerobee.consumer_client.listener_pool",
        "aerobee.consumer_client.listener_threads",
        "aerobee.consumer_client.popped_listening",
        "aerobee.consumer_client.typed",
        "aerobee.otel.telemetry",
    }
)
"""Frames between an event loop and a listener."""


class FailureLine:
    """A line that is written once, when it is known what happens next."""

    def __init__(self, write: Callable[[str, int | str, bool], None]) -> None:
        self._write: Callable[[str, int | str, bool], None] | None = write
        self._timer: asyncio.TimerHandle | None = None
        self.attempts_max: int | str = UNKNOWN
        """The attempt after which nothing follows."""

    def wait(self) -> None:
        """Wait for an answer, but not for long."""
        if self._write is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(ANSWER_WAITS_S, self.complete, NOT_ANSWERED)

    def complete(self, follows: str, is_last: bool = False) -> None:
        """Write it, unless it has been written. `is_last`: there is no further attempt."""
        write, self._write = self._write, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if write is not None:
            write(follows, self.attempts_max, is_last)


@dataclass(slots=True)
class _Failing:
    """A message that has failed, and has neither succeeded since nor gone back."""

    since_s: float
    logged_s: float
    unlogged: int = 0


class FailureLog:
    """The failures of one consumer's listener."""

    def __init__(self, log: logging.Logger, group: str, clock: Clock) -> None:
        self._log = log
        self._group = group
        self._clock = clock
        self._places: set[tuple[type[BaseException], str, int]] = set()
        self._failing: dict[tuple[MessageQueue, int], _Failing] = {}

    def line(
        self,
        event: str,
        level: int,
        queue: MessageQueue,
        entries: Sequence[Entry[ReceivedMessage]],
        error: Exception | None,
        reason: str,
        *,
        repeats: bool = False,
        attempt: int | None = None,
    ) -> FailureLine:
        """One line. `repeats`: these messages may fail again in their place, so it may be left out.
        `attempt`: how often listeners of the group were given the first of these; by default as
        that counts itself.
        """
        offset, _, message = entries[0]
        if attempt is None:
            attempt = message.reconsume_times
        is_due, failing = True, _Failing(0, 0)
        if repeats:
            is_due, failing = self._failing_in_place(queue, offset)

        def write(follows: str, attempts_max: int | str, is_last: bool) -> None:
            if not is_due and not is_last:
                return
            unlogged, failing.unlogged = failing.unlogged - (not is_due), 0
            log_event(
                self._log,
                event,
                level=logging.ERROR if is_last else level,
                error=None if error is None else self._if_new(error),
                group=self._group,
                topic=_readable(lambda: message.origin_topic),
                queue=queue,
                offset=offset,
                message_id=_readable(lambda: message.message_id),
                messages=len(entries),
                attempt=attempt,
                attempts_max=attempts_max,
                follows=follows,
                reason=reason,
                unlogged_failures=unlogged,
            )

        return FailureLine(write)

    def forget(self, queue: MessageQueue, offset: int) -> None:
        """The message that begins at this offset fails no more in its place."""
        self._failing.pop((queue, offset), None)

    def _failing_in_place(self, queue: MessageQueue, offset: int) -> tuple[bool, _Failing]:
        """Whether this failure has a line; and those of this message that had none."""
        now_s = self._clock.monotonic_s()
        failing = self._failing.get((queue, offset))
        if failing is None:
            if len(self._failing) >= FAILING_MAX:
                del self._failing[next(iter(self._failing))]
            failing = self._failing[queue, offset] = _Failing(now_s, now_s)
            return True, failing
        quiet_s = min(QUIET_MAX_S, failing.logged_s - failing.since_s)
        if now_s < failing.logged_s + quiet_s:
            failing.unlogged += 1
            return False, failing
        failing.logged_s = now_s
        return True, failing

    def _if_new(self, error: Exception) -> Exception | None:
        """The error with only the frames of the user's code; None: its place was logged before, or
        no frame is the user's."""
        frames = own_frames(error.__traceback__)
        if frames is None or len(self._places) >= PLACES_MAX:
            return None
        last = frames
        while last.tb_next is not None:
            last = last.tb_next
        place = (type(error), last.tb_frame.f_code.co_filename, last.tb_lineno)
        if place in self._places:
            return None
        self._places.add(place)
        return error.with_traceback(frames)


def own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """What comes after the last frame that only called the listener."""
    own = frame = traceback
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__") in _CALLERS:
            own = frame.tb_next
        frame = frame.tb_next
    return own


def _readable(read: Callable[[], str]) -> str:
    """A message with damaged properties fails in its listener; its line must be written all the
    same."""
    try:
        return read()
    except RecordCorrupt:
        return "unreadable"
