"""The owned queues of a pull consumer: what was fetched ahead, and how far the user has got.

Owns: of each queue, the fetched batches and two offsets. `position` is the next message that `poll`
returns; `safe_offset` is the last position that the user has acknowledged, by committing, by
polling again, or message by message. Between the two are the messages the user is working on. Also
the order in which `poll` visits the queues, so that a full one does not starve the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.short_tracebacks import shortened
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.background_tasks import wait_event
from aerobee.consumer_client.filters import compared_tags
from aerobee.consumer_client.owned_queue import Assignment
from aerobee.consumer_client.process_queue import Entry
from aerobee.consumer_client.received_batch import (
    ReceivedBatch,
    decode_entries,
)
from aerobee.consumer_client.unfinished import Unfinished
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError


class PullQueue:
    """An OwnedQueue whose messages wait for `poll`."""

    __slots__ = (
        "_batches",
        "_counts_each",
        "_decoded",
        "_decoded_at",
        "_in_flight_bytes",
        "_is_paused",
        "_is_stopped",
        "_on_ready",
        "_prefetch_bytes_max",
        "_settled",
        "_tags",
        "_unfinished",
        "assignment",
        "cached_bytes",
        "fetch_offset",
        "is_dropped",
        "position",
        "trust",
    )

    def __init__(
        self,
        assignment: Assignment,
        start_offset: int,
        prefetch_bytes_max: int,
        *,
        counts_each: bool,
        on_ready: Callable[[], None],
    ) -> None:
        """`counts_each`: messages may be finished one by one. `on_ready`: there may be something
        for `poll`."""
        self.assignment = assignment
        self.trust = assignment.trust
        self.position = start_offset
        self._unfinished = Unfinished(start_offset, self._on_change)
        self.is_dropped = False
        self.fetch_offset = start_offset
        self._prefetch_bytes_max = prefetch_bytes_max
        self._counts_each = counts_each
        self._on_ready = on_ready
        self._tags = compared_tags(assignment.expression)
        self._batches: deque[ReceivedBatch] = deque()
        self.cached_bytes = 0
        self._in_flight_bytes = 0
        # The first batch, once `poll` has begun to return single messages of it.
        self._decoded: list[Entry[ReceivedMessage]] = []
        self._decoded_at = 0
        self._is_paused = False
        self._is_stopped = False
        self._settled = asyncio.Event()
        self._settled.set()

    def __repr__(self) -> str:
        return (
            f"PullQueue({self.assignment.queue}, position={self.position}, "
            f"safe_offset={self.safe_offset}, cached_bytes={self.cached_bytes})"
        )

    @property
    def safe_offset(self) -> int:
        return self._unfinished.frontier

    @property
    def cached_count(self) -> int:
        """Messages fetched and not yet returned."""
        return sum(batch.count for batch in self._batches) - self._decoded_at

    # ------------------------------------------------------------------------------ fetching

    def on_subscribed(self) -> None:
        self._in_flight_bytes = 0

    def take_credit(self) -> int:
        """Grants in steps of half the window, so that credit commands stay rare."""
        if self._is_stopped or self._is_paused:
            return 0
        used = self.cached_bytes + max(self._in_flight_bytes, 0)
        room = self._prefetch_bytes_max - used
        if room * 2 < self._prefetch_bytes_max:
            return 0
        # What the broker overdrew is granted in addition, or the queue would stall.
        grant = room - min(self._in_flight_bytes, 0)
        self._in_flight_bytes += grant
        return grant

    def on_records(self, records: bytes, count: int, next_offset: int) -> None:
        self._in_flight_bytes -= len(records)
        self.fetch_offset = next_offset
        batch = ReceivedBatch(self.assignment.queue, records, count, next_offset, self._tags)
        if count == 0 and not self._batches:
            # Nothing to return: the position just advances, and so does the safe offset.
            self._unfinished.hand_out((), self.position, next_offset)
            self.position = next_offset
            return
        self._batches.append(batch)
        self.cached_bytes += len(records)
        self._on_ready()

    def set_paused(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        if not is_paused:
            self._on_ready()

    # ------------------------------------------------------------------------------ handing out

    @property
    def has_messages(self) -> bool:
        has_any = bool(self._batches) or self._unfinished.has_failed
        return has_any and not self._is_paused and not self._is_stopped

    def take_batch(self) -> ReceivedBatch:
        """The next batch, or the rest of one that `take_messages` left. Call it when
        `has_messages`."""
        if self._unfinished.has_failed:
            self._settled.clear()
            (message,) = self._unfinished.take_failed(1)
            return self._batch_of(message)
        batch = self._batches.popleft()
        self.cached_bytes -= batch.size
        if self._decoded_at:
            rest = self._decoded[self._decoded_at :]
            records = batch.records[rest[0][2].record.start :]
            batch = ReceivedBatch(
                batch.queue, records, batch.count - self._decoded_at, batch.next_offset, self._tags
            )
        self._decoded, self._decoded_at = [], 0
        self._move_to(batch.next_offset)
        return batch

    def _batch_of(self, message: ReceivedMessage) -> ReceivedBatch:
        record = message.record
        records = bytes(record.buffer[record.start : record.start + record.size])
        return ReceivedBatch(message.queue, records, 1, message.in_hand[2], None)

    def take_messages(self, count_max: int) -> list[ReceivedMessage]:
        """Failed messages, or up to `count_max` of the next batch; perhaps none if its tags did not
        match."""
        if self._unfinished.has_failed:
            self._settled.clear()
            return self._unfinished.take_failed(count_max)
        begin = self.position
        batch = self._batches[0]
        if not self._decoded_at:
            self._decoded = decode_entries(batch.records, batch.queue, self._tags)
        start = self._decoded_at
        end = min(start + count_max, len(self._decoded))
        taken = self._decoded[start:end]
        if end < len(self._decoded):
            self._decoded_at = end
            self._move_to(self._decoded[end][0])
        else:
            self._batches.popleft()
            self.cached_bytes -= batch.size
            self._decoded, self._decoded_at = [], 0
            self._move_to(batch.next_offset)
        if self._counts_each:
            self._unfinished.hand_out(taken, begin, self.position)
        return [entry[2] for entry in taken]

    def put_back(self, message: ReceivedMessage) -> None:
        """The user never got it: it is returned again, first."""
        self._unfinished.put_back(message)

    def _move_to(self, offset: int) -> None:
        self.position = offset
        self._settled.clear()

    def settle(self) -> None:
        """The user is done with everything that was returned."""
        self._unfinished.finish_all(self.position)
        if not self._unfinished.is_in_hand(self.position):
            self._settled.set()

    def _on_change(self) -> None:
        if self._unfinished.has_failed:
            self._on_ready()
        # Only a queue that is being given back waits for this.
        if self._is_stopped and not self._unfinished.is_in_hand(self.position):
            self._settled.set()

    def release(self) -> None:
        """The consumer is closing: do not wait for the user to finish what was returned."""
        self._is_stopped = True
        self._settled.set()

    # ------------------------------------------------------------------------------ stopping

    def drop(self) -> None:
        self._is_stopped = True
        self.is_dropped = True
        self._unfinished.close()
        self._batches.clear()
        self.cached_bytes = 0
        self._settled.set()

    async def drain(self, timeout_s: float, report_s: float = 0.0) -> None:
        """Wait until the user is done with what was returned; at most `timeout_s`."""
        self._is_stopped = True
        self._on_change()
        await wait_event(self._settled, timeout_s)


class PulledQueues:
    """All queues of a consumer, in turn. Dropped ones are removed automatically."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn: deque[PullQueue] = deque()
        self._unsettled: set[PullQueue] = set()
        self._paused: set[MessageQueue] = set()
        self._has_come = asyncio.Event()
        self._is_closed = False

    def add(self, pulled: PullQueue) -> None:
        pulled.set_paused(pulled.assignment.queue in self._paused)
        self._turn.append(pulled)

    def live(self) -> list[PullQueue]:
        """Queues that were not dropped, ascending."""
        live = [pulled for pulled in self._turn if not pulled.is_dropped]
        return sorted(live, key=lambda pulled: pulled.assignment.queue)

    def on_ready(self) -> None:
        """Some queue may have messages."""
        self._has_come.set()

    async def wait(self, end_s: float, failure: Callable[[], AerobeeError | None]) -> bool:
        """Until some queue has messages (True), or the time is over, or `close`.

        Raises:
            AerobeeError: the `failure` that ended the consumer in the meantime.
        """
        try:
            return await self._wait(end_s)
        except asyncio.CancelledError as cancelled:
            # What ends a consumer cancels the task that started it.
            error = failure() or cancelled
            raise shortened(error) from None

    async def _wait(self, end_s: float) -> bool:
        # The reader of the pull stream must get a turn even if the user never has to wait.
        await asyncio.sleep(0)
        while not self._has_messages():
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0 or self._is_closed:
                return False
            self._has_come.clear()
            await wait_event(self._has_come, left_s)
        return True

    def _has_messages(self) -> bool:
        return any(pulled.has_messages for pulled in self._turn)

    def next(self) -> PullQueue | None:
        """The next queue with messages whose lease may still be trusted; it goes to the end."""
        turn = self._turn
        for _ in range(len(turn)):
            if not turn:
                return None
            pulled = turn[0]
            if pulled.is_dropped:
                turn.popleft()
                continue
            turn.rotate(-1)
            if not pulled.has_messages:
                continue
            trust = pulled.trust
            if self._clock.monotonic_s() < trust.deadline_s or trust.check_deadline():
                return pulled
        return None

    def on_handed_out(self, pulled: PullQueue) -> None:
        """Messages of this queue are in the user's hands."""
        self._unsettled.add(pulled)

    def settle(self) -> None:
        """The user is done with everything returned so far."""
        for pulled in self._unsettled:
            pulled.settle()
        self._unsettled.clear()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        self._paused.update(queues)
        self._apply_pauses()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._paused.difference_update(queues)
        self._apply_pauses()

    def _apply_pauses(self) -> None:
        for pulled in self.live():
            pulled.set_paused(pulled.assignment.queue in self._paused)

    def close(self) -> None:
        """A consumer that is closing is not working on messages: no queue waits for another
        poll."""
        self._is_closed = True
        self._has_come.set()
        for pulled in self._turn:
            pulled.release()
