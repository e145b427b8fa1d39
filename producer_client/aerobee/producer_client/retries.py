"""Batches that came back and go again: elsewhere at once, or to the same broker after a pause.

Owns: the tasks in which they wait. What is here is in no stream, so its deadlines are watched here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.route import MessageQueue, TopicRoute
from aerobee.producer_client.accumulator import Batch
from aerobee.producer_client.broker_stream import QUERY_TIMEOUT_MS, BrokerStream
from aerobee.producer_client.retry import delay_s, expired, refused
from aerobee.producer_client.selector import RoundRobin, interleaved
from aerobee.producer_client.turns import QueueTurns
from aerobee.runtime import errors
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class RetryOwner(Protocol):
    """Who has the batches otherwise."""

    def stream(self, broker_name: str) -> BrokerStream: ...

    def has(self, batch: Batch) -> bool:
        """Whether it is still without an outcome."""

    def submit(self, batch: Batch) -> None:
        """It goes again."""

    def end(self, batch: Batch, error: errors.MqError) -> None:
        """It does not go again."""

    def on_route(self, route: TopicRoute) -> None: ...


class Retries:
    """See the module."""

    def __init__(
        self,
        connection: ClusterConnection,
        tasks: asyncio.TaskGroup,
        turns: QueueTurns,
        selector: RoundRobin,
        owner: RetryOwner,
    ) -> None:
        self._routes = connection.routes
        self._clock = connection.clock
        self._random = connection.random
        self._tasks = tasks
        self._turns = turns
        self._selector = selector
        self._owner = owner
        self._running: set[asyncio.Task[None]] = set()

    def begin(
        self, batches: Sequence[Batch], error: errors.MqError, *, refreshes_route: bool
    ) -> None:
        """Batches that came back together because of `error`."""
        task = self._tasks.create_task(
            self._try_again(batches, error, refreshes_route), name="send:retry"
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def stop(self) -> None:
        """Nothing goes again; their owner tells."""
        for task in self._running:
            task.cancel()

    async def _try_again(
        self, batches: Sequence[Batch], error: errors.MqError, refreshes_route: bool
    ) -> None:
        failures = min(batch.failures for batch in batches)
        for batch in batches:
            batch.failures += 1
            if refreshes_route:
                self._routes.invalidate(batch.queue.topic)
        if failures or any(self._other_queue(batch) is None for batch in batches):
            loop = asyncio.get_running_loop()
            timers = [
                loop.call_later(self._remaining_s([batch]), self._expire, batch)
                for batch in batches
            ]
            try:
                if refreshes_route:
                    await self._refresh_all(batches)
                await self._pause(batches, error, failures, refreshes_route)
            finally:
                for timer in timers:
                    timer.cancel()
        now_s = self._clock.monotonic_s()
        for batch in batches:
            if not self._owner.has(batch):
                continue
            if batch.deadline_s <= now_s:
                self._expire(batch)
                continue
            self._move(batch, self._other_queue(batch))
            self._owner.submit(batch)

    def _expire(self, batch: Batch) -> None:
        self._owner.end(batch, expired(batch))

    async def _pause(
        self, batches: Sequence[Batch], error: errors.MqError, failures: int, refreshes_route: bool
    ) -> None:
        pause_s = delay_s(error, failures + 1, self._random)
        pause_s = min(pause_s, self._remaining_s(batches))
        if refreshes_route:
            await self._owner.stream(batches[0].queue.broker_name).wait_route(pause_s)
        else:
            await asyncio.sleep(pause_s)

    def _move(self, batch: Batch, queue: MessageQueue | None) -> None:
        """To another queue, if there is one; on each queue a batch has its own numbers."""
        if queue is None:
            return
        self._turns.leave(batch)
        batch.producer_id = 0
        batch.queue = queue

    async def _refresh_all(self, batches: Sequence[Batch]) -> None:
        for topic in {batch.queue.topic for batch in batches}:
            await self._refresh(topic, [batch for batch in batches if batch.queue.topic == topic])

    async def _refresh(self, topic: str, batches: Sequence[Batch]) -> None:
        """Asks a nameserver, but does not let one that hangs use up the time."""
        timeout_ms = max(1, min(int(self._remaining_s(batches) * 1_000), QUERY_TIMEOUT_MS))
        try:
            route = await self._routes.route(topic, timeout_ms=timeout_ms)
        except (errors.TopicNotFound, errors.IllegalName) as error:
            for batch in batches:
                self._owner.end(batch, refused(batch, error))
        except errors.MqError as error:
            log_event(log, "route not refreshed", level=logging.DEBUG, topic=topic, reason=error)
        else:
            self._owner.on_route(route)

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
        return self._selector.choose(others, now_s=self._clock.monotonic_s())
