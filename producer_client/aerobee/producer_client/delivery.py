"""From a chosen queue to a receipt: broker streams, retries, and who is told.

Owns: the streams, all batches that have no outcome yet, and the memory of slow brokers. A batch is
here from the moment it is opened until it is stored or given up; its bytes go back to the budget
in that moment, and nobody is told twice.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.message import MessageQueue
from aerobee.client_core.route import TopicRoute
from aerobee.producer_client.accumulator import Batch
from aerobee.producer_client.broker_stream import QUERY_TIMEOUT_MS, BrokerStream
from aerobee.producer_client.budget import ByteBudget
from aerobee.producer_client.config import ProducerConfig
from aerobee.producer_client.encoder import Encoder
from aerobee.producer_client.latency import LatencyTable
from aerobee.producer_client.receipt import Receipt, StoredBatch
from aerobee.producer_client.retry import delay_s, expired, leaves_unknown, retry_of
from aerobee.producer_client.selector import RoundRobin, interleaved
from aerobee.producer_client.sequences import Sequences
from aerobee.producer_client.turns import QueueTurns
from aerobee.runtime import errors
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


@dataclass(slots=True)
class DeliveryCounts:
    """What happened so far."""

    messages_stored: int = 0
    messages_failed: int = 0
    batches_stored: int = 0
    batches_retried: int = 0


class Delivery:
    """Carries batches to brokers until they are stored or their time is over."""

    def __init__(
        self, connection: ClusterConnection, config: ProducerConfig, tasks: asyncio.TaskGroup
    ) -> None:
        self._connection = connection
        self._routes = connection.routes
        self._clock = connection.clock
        self._config = config
        self._tasks = tasks
        self._encoder = Encoder(config, connection.local_host)
        self._latency = LatencyTable()
        self._turns = QueueTurns()
        self._sequences = Sequences(connection.random) if config.idempotent else None
        self._streams: dict[str, BrokerStream] = {}
        self._running = [tasks.create_task(self._watch_routes(), name="send:routes")]
        self._retrying: set[asyncio.Task[None]] = set()
        self._outstanding: set[Batch] = set()
        self._flushes: list[tuple[set[Batch], asyncio.Future[None]]] = []
        self._is_stopped = False
        self.selector = RoundRobin(self._latency, start=connection.random.getrandbits(16))
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
                turns=self._turns,
                sequences=self._sequences,
                owner=self,
            )
            self._running.append(self._tasks.create_task(stream.run(), name=f"send:{broker_name}"))
        return stream

    async def wait_for_room(self, size: int, *, timeout_ms: int) -> None:
        """Takes `size` bytes of the buffer as soon as they are free.

        Raises:
            Busy: they were not, in time.
            ShuttingDown: the producer was closed meanwhile.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self.budget.take(size)
        except TimeoutError:
            raise self.no_room() from None
        if self._is_stopped:
            raise _closed_early()

    def no_room(self) -> errors.Busy:
        """The error of those who cannot or need not wait."""
        return errors.Busy(
            f"the producer's buffer of {self._config.buffered_bytes_max} bytes is full: brokers "
            "take messages more slowly than they are sent; wait, or send less"
        )

    def drop(self, topic: str, size: int, error: errors.MqError) -> None:
        """A one-way message whose topic could not be found."""
        self.counts.messages_failed += 1
        self.budget.release(size)
        log_event(
            log, "one-way message lost", level=logging.WARNING, topic=topic, reason=str(error)
        )

    def open(self, batch: Batch) -> None:
        """A new batch that more messages may join.

        Raises:
            ShuttingDown: the producer was closed meanwhile.
        """
        if self._is_stopped:
            raise _closed_early()
        self._outstanding.add(batch)
        stream = self.stream(batch.queue.broker_name)
        stream.accumulator.open(batch)
        stream.watch_deadline(batch)
        stream.wake()

    def submit(self, batch: Batch) -> None:
        """A complete batch, new or to be tried again."""
        self._outstanding.add(batch)
        if self._is_stopped:
            self._fail(batch, _closed_early())
            return
        stream = self.stream(batch.queue.broker_name)
        stream.accumulator.append(batch)
        stream.watch_deadline(batch)
        stream.wake()

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
        """Waits until every batch of this moment has an outcome."""
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

    def stop(self) -> None:
        """Ends all tasks; what has no outcome yet fails."""
        self._is_stopped = True
        for task in (*self._running, *self._retrying):
            task.cancel()
        for stream in self._streams.values():
            stream.abandon()
        for batch in list(self._outstanding):
            if batch.unconfirmed is not None:
                self._settle(batch, batch.unconfirmed)
                continue
            self._fail(
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

    def on_refused(self, broker_name: str, batch: Batch, error: errors.MqError) -> None:
        batch.last_error = error
        if leaves_unknown(error):
            # A failed disk, for one, cannot say what it has kept.
            batch.is_outcome_unknown = True
        if isinstance(error, errors.OutOfSequence) and self._sequences is not None:
            self._sequences.renew(batch.queue)
        retry = retry_of(error)
        if retry is None:
            self._fail(batch, error)
            return
        if retry.avoids_broker:
            self._latency.failed(broker_name, now_s=self._clock.monotonic_s())
        if retry.is_counted and not (batch.producer_id and batch.is_outcome_unknown):
            batch.failures_counted += 1
            if batch.failures_counted > self._config.retries_max:
                self._fail(batch, error)
                return
        self._retry([batch], error, refreshes_route=retry.refreshes_route)

    def on_lost(self, broker_name: str, batches: Sequence[Batch], error: errors.MqError) -> None:
        now_s = self._clock.monotonic_s()
        # Told once, not with every attempt to reach it again.
        was_fine = self._latency.is_available(broker_name, now_s)
        level = logging.INFO if was_fine else logging.DEBUG
        log_event(log, "broker lost", level=level, broker=broker_name, reason=str(error))
        retry = retry_of(error)
        if retry is None or retry.avoids_broker:
            self._latency.failed(broker_name, now_s=now_s)
        for batch in batches:
            batch.last_error = error
        if batches:
            self._retry(batches, error, refreshes_route=True)

    def on_expired(self, broker_name: str, batch: Batch) -> None:
        self._latency.failed(broker_name, now_s=self._clock.monotonic_s())
        self._expire(batch)

    # Retries.

    def _retry(
        self, batches: Sequence[Batch], error: errors.MqError, *, refreshes_route: bool
    ) -> None:
        self.counts.batches_retried += len(batches)
        task = self._tasks.create_task(
            self._try_again(batches, error, refreshes_route), name="send:retry"
        )
        self._retrying.add(task)
        task.add_done_callback(self._retrying.discard)

    async def _try_again(
        self, batches: Sequence[Batch], error: errors.MqError, refreshes_route: bool
    ) -> None:
        """Batches that came back together: elsewhere at once, or here after a pause."""
        failures = min(batch.failures for batch in batches)
        for batch in batches:
            batch.failures += 1
            if refreshes_route:
                self._routes.invalidate(batch.queue.topic)
        if failures or any(self._other_queue(batch) is None for batch in batches):
            for topic in {batch.queue.topic for batch in batches}:
                if refreshes_route:
                    same_topic = [batch for batch in batches if batch.queue.topic == topic]
                    await self._refresh(topic, same_topic)
            pause_s = delay_s(error, failures + 1, self._connection.random)
            pause_s = min(pause_s, self._remaining_s(batches))
            if refreshes_route:
                await self.stream(batches[0].queue.broker_name).wait_route(pause_s)
            else:
                await asyncio.sleep(pause_s)
        now_s = self._clock.monotonic_s()
        for batch in batches:
            if batch not in self._outstanding:
                continue
            if batch.deadline_s <= now_s:
                self._expire(batch)
                continue
            self._move(batch, self._other_queue(batch))
            self.submit(batch)

    def _move(self, batch: Batch, queue: MessageQueue | None) -> None:
        """To another queue, if there is one; on each queue a batch has its own numbers."""
        if queue is None:
            return
        self._turns.leave(batch)
        batch.producer_id = 0
        batch.queue = queue

    async def _refresh(self, topic: str, batches: Sequence[Batch]) -> None:
        """Asks a nameserver, but does not let one that hangs use up the time."""
        timeout_ms = max(1, min(int(self._remaining_s(batches) * 1_000), QUERY_TIMEOUT_MS))
        try:
            route = await self._routes.route(topic, timeout_ms=timeout_ms)
        except (errors.TopicNotFound, errors.IllegalName) as error:
            for batch in batches:
                self._fail(batch, error)
        except errors.MqError as error:
            log_event(
                log, "route not refreshed", level=logging.DEBUG, topic=topic, reason=str(error)
            )
        else:
            self.on_route(route)

    def _remaining_s(self, batches: Sequence[Batch]) -> float:
        """Until the last of the batches is over its time."""
        last_s = max(batch.deadline_s for batch in batches)
        return max(0.0, last_s - self._clock.monotonic_s())

    def _other_queue(self, batch: Batch) -> MessageQueue | None:
        """A queue of another broker that the batch may go to."""
        route = self._routes.cached(batch.queue.topic)
        if batch.must_stay or route is None:
            return None
        others = [
            queue
            for queue in interleaved(route.writable_queues)
            if queue.broker_name != batch.queue.broker_name
        ]
        if not others:
            return None
        return self.selector.choose(others, now_s=self._clock.monotonic_s())

    # Outcomes.

    def _expire(self, batch: Batch) -> None:
        if batch.unconfirmed is not None:
            self._settle(batch, batch.unconfirmed)
        else:
            self._fail(batch, expired(batch))

    def _fail(self, batch: Batch, error: errors.MqError) -> None:
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
                    # Each waiter gets its own: a traceback grows where an exception is raised.
                    waiter.set_exception(copy.copy(error))
            if unheard:
                log_event(
                    log,
                    "one-way messages lost",
                    level=logging.WARNING,
                    queue=str(batch.queue),
                    count=unheard,
                    reason=str(error),
                )
        self._conclude(batch)

    def _conclude(self, batch: Batch) -> None:
        self._outstanding.discard(batch)
        if batch.has_turn:
            self._turns.leave(batch)
            stream = self._streams[batch.queue.broker_name]
            if stream.accumulator:
                stream.wake()
        self.budget.release(batch.size)
        for waited, done in self._flushes:
            waited.discard(batch)
            if not waited and not done.done():
                done.set_result(None)


def _closed_early() -> errors.ShuttingDown:
    return errors.ShuttingDown("the producer was closed before the message was sent")
