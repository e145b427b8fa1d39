"""One owned queue of a push consumer: its messages, its credit, and the listeners working on it.

Owns: the process queue and the way it is stopped. Messages wait here until a worker of the listener
pool takes them; dropping a queue cancels listeners that are awaiting something.
Invariants: a dropped queue finishes nothing and delivers nothing; a draining one delivers nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.attempts import Attempts
from aerobee.consumer_client.filters import compared_tags
from aerobee.consumer_client.flow_control import CreditWindow, FlowLimits
from aerobee.consumer_client.keyed_queue import KeyedQueue
from aerobee.consumer_client.owned_queue import Assignment
from aerobee.consumer_client.process_queue import Entry, ProcessQueue
from aerobee.consumer_client.received_batch import decode_entries

CREDIT_CHECK_MESSAGES = 64
"""After this many finished messages the credit is checked again; earlier if none wait."""


class PushQueue:
    """An OwnedQueue whose messages wait for the listener."""

    __slots__ = (
        "_attempts",
        "_finished_unseen",
        "_idle",
        "_in_order",
        "_is_wanted",
        "_on_dropped",
        "_on_ready",
        "_on_room",
        "_scopes",
        "_sent_back",
        "_tags",
        "_window",
        "assignment",
        "is_dropped",
        "is_ready",
        "is_stopped",
        "mark",
        "messages",
        "past",
        "trust",
    )

    def __init__(
        self,
        assignment: Assignment,
        start_offset: int,
        limits: FlowLimits,
        *,
        on_ready: Callable[[PushQueue], None],
        on_room: Callable[[PushQueue], None],
        on_dropped: Callable[[PushQueue], None],
        attempts: Attempts | None = None,
        is_wanted: Callable[[ReceivedMessage], bool] | None = None,
        in_order: bool = False,
        key_of: Callable[[ReceivedMessage], str | None] | None = None,
    ) -> None:
        """`on_ready`: messages wait. `on_room`: there may be room for more. `is_wanted`: unwanted
        messages are finished at once; None: everything that the subscription lets through is
        wanted. `key_of`: messages with the same key are handled one after another."""
        self.assignment = assignment
        self.trust = assignment.trust
        self.messages: ProcessQueue[ReceivedMessage] = (
            ProcessQueue(start_offset) if key_of is None else KeyedQueue(start_offset, key_of)
        )
        self.is_ready = False
        """In the pool's line of queues with waiting messages (or, with ordered handling, in use);
        maintained by the pool."""
        self.is_stopped = False
        """Draining or dropped: no more messages are taken out."""
        self.is_dropped = False
        self._attempts = attempts or Attempts()
        if assignment.attempts:
            self._attempts.know(assignment.queue, assignment.tried_offset, assignment.attempts)
        self.past = self._attempts.past_of(assignment.queue, start_offset)
        """By offset: messages that a listener was handling before."""
        self.mark = self._attempts.mark(assignment.queue)
        """Together with an offset, a message's name among all attempts."""
        self._tags = compared_tags(assignment.expression)
        self._window = CreditWindow(limits)
        self._on_ready = on_ready
        self._on_room = on_room
        self._on_dropped = on_dropped
        self._finished_unseen = 0
        # Of the listeners that are awaiting something now.
        self._scopes: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_wanted = is_wanted
        self._in_order = in_order
        self._sent_back = asyncio.Event()
        self._sent_back.set()

    def __repr__(self) -> str:
        return f"PushQueue({self.assignment.queue}, {self.messages!r})"

    @property
    def fetch_offset(self) -> int:
        return self.messages.fetched_end

    @property
    def safe_offset(self) -> int:
        return self.messages.safe_offset

    # ------------------------------------------------------------------------------ fetching

    def on_subscribed(self) -> None:
        self._window.on_subscribed()

    def take_credit(self) -> int:
        if self.is_stopped:
            return 0
        messages = self.messages
        return self._window.grant(
            cached_count=messages.cached_count,
            cached_bytes=messages.cached_bytes,
            span=messages.span,
        )

    def on_records(self, records: bytes, count: int, next_offset: int) -> None:
        entries = decode_entries(records, self.assignment.queue, self._tags)
        if self._is_wanted is not None:
            entries = [entry for entry in entries if self._is_wanted(entry[2])]
        self._window.on_received(len(records), count)
        if entries:
            first, last = entries[0][2], entries[-1][2]
            self._attempts.on_received(self.mark, first.store_timestamp_ms, last.store_timestamp_ms)
            self._attempts.on_came(self.assignment.queue, entries)
        self.messages.add(entries, next_offset)
        if self.messages.waiting and not self.is_ready:
            self._on_ready(self)

    # ------------------------------------------------------------------------------ processing

    def finish(self, entries: Sequence[Entry[ReceivedMessage]]) -> None:
        """Their listener succeeded (or they are skipped); ignored after a drop."""
        if self.is_dropped:
            return
        self.messages.finish(entries)
        self._look_at_room(len(entries))
        if not self.is_ready and self.messages.waiting and not self.is_stopped:
            self._on_ready(self)  # More messages of these keys.

    def finish_first(self, count: int, size: int) -> None:
        """`count` messages of `size` bytes in total were removed from `messages.waiting`, each when
        its listener had succeeded; ignored after a drop."""
        if self.is_dropped:
            return
        self.messages.finish_first(size)
        self._look_at_room(count)

    def _look_at_room(self, finished: int) -> None:
        self._finished_unseen += finished
        if self._finished_unseen >= CREDIT_CHECK_MESSAGES or not self.messages.waiting:
            self._finished_unseen = 0
            self._on_room(self)

    def enter(self, scope: asyncio.Timeout) -> None:
        """A listener starts awaiting under this scope; a drop ends it."""
        self._scopes.add(scope)
        self._idle.clear()
        if self.is_dropped:
            self._expire(scope)

    def leave(self, scope: asyncio.Timeout) -> None:
        self._scopes.discard(scope)
        if not self._scopes:
            self._idle.set()

    def is_sending_back(self, value: bool) -> None:
        """Whether messages are on their way back to the broker."""
        if value:
            self._sent_back.clear()
        else:
            self._sent_back.set()

    # ------------------------------------------------------------------------------ stopping

    def drop(self) -> None:
        self.is_stopped = True
        self.is_dropped = True
        self._cancel_listeners()
        self._on_dropped(self)
        self._sent_back.set()

    async def drain(self, timeout_s: float, report_s: float = 0.0) -> None:
        self.is_stopped = True
        answer_s = max(timeout_s, report_s) if self._in_order else timeout_s
        end_s = asyncio.get_running_loop().time() + answer_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            self._cancel_listeners()
            await self._idle.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end_s):
                await self._sent_back.wait()

    def _cancel_listeners(self) -> None:
        for scope in self._scopes:
            self._expire(scope)

    @staticmethod
    def _expire(scope: asyncio.Timeout) -> None:
        if not scope.expired():
            scope.reschedule(asyncio.get_running_loop().time())
