"""From a chosen queue to a receipt: broker streams, the outcome of a batch, and who is notified.

Owns: the streams, all batches without an outcome, and the memory of slow brokers. A batch is here
from its creation until it is stored or given up; its bytes then return to the budget, and everyone
is notified once.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.message import Message
from aerobee.cluster_view.route import MessageQueue, TopicRoute
from aerobee.producer_client.accumulator import Batch
from aerobee.producer_client.broker_stream import BrokerStream
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.encoder import Encoder
from aerobee.producer_client.receipt import Receipt, SendStatus, StoredBatch
from aerobee.producer_client.retries import Retries, expired, leaves_unknown, refused, retry_of
from aerobee.producer_client.selector import LatencyTable, RoundRobin, by_sharding_key
from aerobee.producer_client.targets import Target
from aerobee.producer_client.turns import QueueTurns, Sequences
from aerobee.runtime import errors
from aerobee.runtime.busy_poll import busy_poll
from aerobee.runtime.log import log_event
from aerobee.store.format.message_id import UniqueIdGenerator

log = logging.getLogger(__name__)

ANSWER_IS_LATE_S = 1.0
"""A batch without an outcome for this long is waiting for something."""
JOIN_AGE_MAX_S = 0.5
"""A message joins no batch whose time ends earlier than its own by more than this."""


class ByteBudget:
    """Back-pressure: how many bytes may wait in a producer, and who waits for room.

    Soft limit: one message may exceed it, the next waits. Waiting callers are served in order, and
    nobody overtakes them.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take_nowait(self, size: int) -> bool:
        """Take `size` bytes if there is room and no other send waits."""
        if self.bytes_used >= self.bytes_max or self._waiting:
            return False
        self.bytes_used += size
        return True

    async def take(self, size: int) -> None:
        """Take `size` bytes as soon as there is room."""
        if self.take_nowait(size):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(size)
            raise

    def release(self, size: int) -> None:
        """Give back what was taken; wakes waiting callers."""
        self.bytes_used -= size
        assert self.bytes_used >= 0
        while self._waiting and self.bytes_used < self.bytes_max:
            waiting_size, granted = self._waiting.popleft()
            if not granted.done():
                self.bytes_used += waiting_size
                granted.set_result(None)


@dataclass(slots=True)
class DeliveryCounts:
    """What has happened so far."""

    messages_stored: int = 0
    messages_failed: int = 0
    batches_stored: int = 0
    batches_retried: int = 0


class Delivery:
    """Carries batches to brokers until they are stored or their time is over."""

    def __init__(
        self,
        connection: ClusterConnection,
        config: ProducerConfig,
        ids: UniqueIdGenerator,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._connection = connection
        self._routes = connection.routes
        self._clock = connection.clock
        self._config = config
        self._ids = ids
        self._tasks = tasks
        self._encoder = Encoder(config, connection.local_host)
        self._latency = LatencyTable()
        self._turns = QueueTurns()
        self._sequences = Sequences(connection.random) if config.idempotent else None
        self._polling = busy_poll(config.busy_poll_us)
        self._streams: dict[str, BrokerStream] = {}
        self._running = [tasks.create_task(self._watch_routes(), name="send:routes")]
        self._outstanding: set[Batch] = set()
        self._flushes: list[tuple[set[Batch], asyncio.Future[None]]] = []
        self._is_stopped = False
        self.selector = RoundRobin(self._latency, start=connection.random.getrandbits(16))
        self._retries = Retries(connection, tasks, self._turns, self.selector, owner=self)
        self.budget = ByteBudget(config.buffered_bytes_max)
        self.counts = DeliveryCounts()

    def stream(self, broker_name: str) -> BrokerStream:
        """The stream to a broker group; made on first use."""
        stream = self._streams.get(broker_name)
        if stream is None:
            stream = self._streams[broker_name] = BrokerStream(
                broker_name,
                connection=self._connection,
                config=self._config,
                encoder=self._encoder,
                ids=self._ids,
                turns=self._turns,
                sequences=self._sequences,
                owner=self,
                polling=self._polling,
            )
            self._running.append(self._tasks.create_task(stream.run(), name=f"send:{broker_name}"))
        return stream

    async def wait_for_room(self, size: int, *, end_s: float) -> None:
        """Takes `size` bytes of the buffer as soon as they are free, if they are before `end_s`.

        Raises:
            Busy: they did not become free in time.
            ShuttingDown: the producer was closed in the meantime.
        """
        try:
            async with asyncio.timeout(max(0.0, end_s - self._clock.monotonic_s())):
                await self.budget.take(size)
        except TimeoutError:
            raise self.no_room() from None
        if self._is_stopped:
            raise _closed_early()

    def no_room(self) -> errors.Busy:
        """The error for callers that cannot or need not wait."""
        return errors.Busy(
            f"the producer's buffer of {self._config.buffered_bytes_max} bytes is full: brokers "
            "take messages more slowly than they are sent; wait, or send more slowly"
        )

    def drop(self, topic: str, size: int, error: errors.AerobeeError) -> None:
        """A one-way message whose topic could not be found."""
        self.counts.messages_failed += 1
        self.budget.release(size)
        log_event(log, "one-way message lost", level=logging.WARNING, topic=topic, reason=error)

    def join(
        self,
        target: Target,
        message: Message,
        queue: MessageQueue | None,
        size: int,
        timeout_ms: int,
        skip_wait: bool,
        waiter: asyncio.Future[Receipt] | None,
        *,
        end_s: float | None = None,
    ) -> None:
        """A message joins the batch that its queue is filling, or a new one. From here on its
        `size` bytes of the buffer, which were taken, belong to that. `end_s`: when its time is
        over, if that began earlier.

        Raises:
            ShuttingDown: the producer was closed in the meantime.
        """
        now_s = self._clock.monotonic_s()
        end_s = now_s + timeout_ms / 1_000 if end_s is None else end_s
        size_max = self._config.batch_bytes_max
        is_pinned = queue is not None or message.sharding_key is not None
        schedule, level, properties = message.schedule, None, message.encoded_properties
        if schedule is not None:
            now_ms = self._clock.now_ms()
            level, properties = schedule.level, schedule.request(now_ms) + properties
        batch = target.current.get(level)
        if is_pinned:
            queue = queue or by_sharding_key(target.keyed_queues, message.sharding_key or "")
            batch = self.stream(queue.broker_name).accumulator.open_batch(queue, level)
        if (
            batch is None
            or not batch.may_join(
                size=size, size_max=size_max, timeout_ms=timeout_ms, skip_wait=skip_wait
            )
            or batch.is_pinned != is_pinned
            or not 0 <= end_s - batch.deadline_s <= JOIN_AGE_MAX_S
        ):
            batch = Batch(
                queue or self.selector.choose(target.queues, now_s=now_s),
                opened_s=now_s,
                born_timestamp_ms=self._clock.now_ms(),
                timeout_ms=timeout_ms,
                deadline_s=end_s,
                is_pinned=is_pinned,
                skip_wait=skip_wait,
                level=level,
            )
            batch.is_unnamed = True
            batch.add(message.body, properties, message.flag, size, waiter)
            self.open(batch)
            if not is_pinned:
                target.current[level] = batch
        else:
            batch.add(message.body, properties, message.flag, size, waiter)
            if len(batch.bodies) == batch.leaves_at:
                self.stream(batch.queue.broker_name).write_half()
        if batch.size >= size_max:
            self.stream(batch.queue.broker_name).wake()

    def open(self, batch: Batch) -> None:
        """A new batch with its first message; more may join until it is written.

        Raises:
            ShuttingDown: the producer was closed in the meantime.
        """
        if self._is_stopped:
            raise _closed_early()
        self._outstanding.add(batch)
        stream = self.stream(batch.queue.broker_name)
        stream.accumulator.open(batch)
        stream.watch_deadline(batch)
        stream.offer(batch)

    def submit(self, batch: Batch) -> None:
        """A complete batch, new or to be retried."""
        self._outstanding.add(batch)
        if self._is_stopped:
            self._fail(batch, _closed_early())
            return
        stream = self.stream(batch.queue.broker_name)
        stream.accumulator.append(batch)
        stream.watch_deadline(batch)
        stream.offer(batch)

    def on_route(self, route: TopicRoute) -> None:
        """A newer route: streams to former masters end."""
        for broker_name in route.queues_by_broker:
            stream = self._streams.get(broker_name)
            if stream is not None:
                stream.on_route(route.master(broker_name))

    async def _watch_routes(self) -> None:
        with self._routes.changes() as changes:
            async for topics in changes:
                for topic in topics:
                    route = self._routes.cached(topic)
                    if route is not None:
                        self.on_route(route)

    async def flush(self) -> None:
        """Waits until every batch that exists now has an outcome."""
        for stream in self._streams.values():
            stream.accumulator.flush()
            stream.wake()
        if not self._outstanding:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (set(self._outstanding), done)
        self._flushes.append(entry)
        try:
            await done
        finally:
            self._flushes.remove(entry)

    def obstacles(self) -> list[str]:
        """Why batches wait: the reason their last attempt failed, or who does not answer."""
        late_s = self._clock.monotonic_s() - ANSWER_IS_LATE_S
        return sorted(
            {
                f"broker group {batch.queue.broker_name!r} has not acknowledged yet"
                if batch.last_error is None
                else str(batch.last_error)
                for batch in self._outstanding
                if batch.opened_s < late_s
            }
        )

    def stop(self) -> None:
        """Ends all tasks; batches without an outcome fail."""
        self._is_stopped = True
        for task in self._running:
            task.cancel()
        self._retries.stop()
        for stream in self._streams.values():
            stream.abandon()
        for batch in list(self._outstanding):
            self.end(
                batch,
                errors.DeadlineExceeded(
                    f"the producer was closed before {batch.queue.broker_name!r} acknowledged: "
                    "whether the message is stored is unknown"
                )
                if batch.attempts
                else _closed_early(),
            )

    # What broker streams tell.

    def on_stored(self, broker_name: str, batch: Batch, stored: StoredBatch) -> None:
        now_s = self._clock.monotonic_s()
        self._latency.sent(broker_name, latency_ms=(now_s - batch.sent_s) * 1_000, now_s=now_s)
        self._settle(batch, stored)

    def on_unconfirmed(self, broker_name: str, batch: Batch, stored: StoredBatch) -> None:
        batch.unconfirmed = stored
        batch.is_outcome_unknown = True
        error = errors.DeadlineExceeded(f"{broker_name!r} stored it, but: {stored.status.value}")
        # Another replica may have become master.
        self._retry([batch], error, refreshes_route=True)

    def on_partly_stored(
        self, broker_name: str, batch: Batch, stored: StoredBatch, count: int
    ) -> None:
        if stored.status is not SendStatus.OK:
            # Not confirmed: the next master may have all of it.
            batch.unconfirmed = None
            batch.is_outcome_unknown = True
            error = errors.DeadlineExceeded(f"{broker_name!r} has stored a part of it")
            self._retry([batch], error, refreshes_route=True)
            return
        rest = batch.split(count)
        if batch.block is not None:
            batch.block.split(batch, count, rest)
        for waited, _ in self._flushes:
            if batch in waited:
                waited.add(rest)
        self._turns.pass_on(batch, rest)
        self._settle(batch, stored)
        self.submit(rest)

    def _settle(self, batch: Batch, stored: StoredBatch) -> None:
        self.counts.batches_stored += 1
        self.counts.messages_stored += len(batch)
        if batch.block is not None:
            batch.block.on_stored(batch, stored)
        else:
            for index, waiter in enumerate(batch.waiters):
                if waiter is not None and not waiter.done():
                    waiter.set_result(Receipt(stored, index))
        self._conclude(batch)

    def on_refused(self, broker_name: str, batch: Batch, error: errors.AerobeeError) -> None:
        batch.last_error = error
        if leaves_unknown(error):
            # A broker with a failed disk, for example, cannot say what it has kept.
            batch.is_outcome_unknown = True
        if isinstance(error, errors.OutOfSequence) and self._sequences is not None:
            self._sequences.renew(batch.numbered_in)
        retry = retry_of(error)
        if retry is None:
            self.end(batch, refused(batch, error))
            return
        if retry.avoids_broker:
            self._latency.failed(broker_name, now_s=self._clock.monotonic_s())
        if retry.is_counted and not (batch.is_recognised and batch.is_outcome_unknown):
            batch.failures_counted += 1
            if batch.failures_counted > self._config.retries_max:
                self.end(batch, refused(batch, error))
                return
        if not batch.is_outcome_unknown:
            # Certainly not stored: by the time it is sent again its number may be long forgotten.
            batch.producer_id = 0
            self._turns.stand_back(batch)
            self.stream(broker_name).wake()
        self._retry([batch], error, refreshes_route=retry.refreshes_route)

    def on_lost(
        self, broker_name: str, batches: Sequence[Batch], error: errors.AerobeeError
    ) -> None:
        now_s = self._clock.monotonic_s()
        # Reported once, not with every attempt to reach it again.
        was_fine = self._latency.is_available(broker_name, now_s)
        level = logging.INFO if was_fine else logging.DEBUG
        log_event(
            log,
            "broker lost; its messages are sent again",
            level=level,
            broker=broker_name,
            batches=len(batches),
            reason=error,
        )
        retry = retry_of(error)
        if retry is None or retry.avoids_broker:
            self._latency.failed(broker_name, now_s=now_s)
        for batch in batches:
            batch.last_error = error
        if batches:
            self._retry(batches, error, refreshes_route=True)

    def on_expired(self, broker_name: str, batch: Batch) -> None:
        self._latency.failed(broker_name, now_s=self._clock.monotonic_s())
        self.end(batch, expired(batch))

    def _retry(
        self, batches: Sequence[Batch], error: errors.AerobeeError, *, refreshes_route: bool
    ) -> None:
        self.counts.batches_retried += len(batches)
        self._retries.begin(batches, error, refreshes_route=refreshes_route)

    # Outcomes.

    def has(self, batch: Batch) -> bool:
        return batch in self._outstanding

    def end(self, batch: Batch, error: errors.AerobeeError) -> None:
        """It is not sent again: an earlier statement of a broker about it counts more than the
        error."""
        if batch not in self._outstanding:
            return
        if batch.unconfirmed is not None:
            self._settle(batch, batch.unconfirmed)
        else:
            self._fail(batch, error)

    def _fail(self, batch: Batch, error: errors.AerobeeError) -> None:
        if batch not in self._outstanding:
            return
        self.counts.messages_failed += len(batch)
        if batch.block is not None:
            batch.block.on_failed(batch, error)
        else:
            unheard = 0
            for waiter in batch.waiters:
                if waiter is None:
                    unheard += 1
                elif not waiter.done():
                    # Each waiter gets its own exception: a traceback grows where an exception is
                    # raised.
                    waiter.set_exception(copy.copy(error))
            if unheard:
                log_event(
                    log,
                    "one-way messages lost",
                    level=logging.WARNING,
                    queue=str(batch.queue),
                    count=unheard,
                    reason=error,
                )
        self._conclude(batch)

    def _conclude(self, batch: Batch) -> None:
        self._outstanding.discard(batch)
        self._turns.leave(batch)
        stream = self._streams.get(batch.queue.broker_name)
        if stream is not None and stream.accumulator:
            stream.wake()
        self.budget.release(batch.size)
        for waited, done in self._flushes:
            waited.discard(batch)
            if not waited and not done.done():
                done.set_result(None)


def _closed_early() -> errors.ShuttingDown:
    return errors.ShuttingDown("the producer was closed before the message was sent")
