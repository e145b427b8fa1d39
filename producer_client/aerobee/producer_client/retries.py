"""What a producer does when a batch was refused or its outcome is unknown.

A refusal is final when sending again cannot help. Everything else is retried until the deadline,
elsewhere at once or on the same broker after a pause. After a failure of the broker itself (store
failed, an internal error) there are `retries_max` further attempts, elsewhere if possible; a
numbered batch that may be stored has no such limit.

Owns: the tasks in which batches wait. A batch here is in no stream, so its deadline is watched
here.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aerobee.client_core.cluster import ClusterConnection
from aerobee.cluster_view.route import MessageQueue, TopicRoute
from aerobee.producer_client.accumulator import Batch
from aerobee.producer_client.broker_stream import QUERY_TIMEOUT_MS, BrokerStream
from aerobee.producer_client.selector import RoundRobin, interleaved
from aerobee.producer_client.turns import QueueTurns
from aerobee.runtime import errors
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff

log = logging.getLogger(__name__)


RETRY_BACKOFF = Backoff(base_ms=20, max_ms=500)


@dataclass(frozen=True, slots=True)
class Retry:
    """How to try again."""

    is_counted: bool
    """Counts towards `retries_max`."""
    refreshes_route: bool
    """The route may be outdated: ask a nameserver."""
    avoids_broker: bool
    """Other batches should prefer other brokers for a while."""


# The broker is out of reach, or refused before storing anything, for a reason that may pass.
_NOT_TAKEN = Retry(is_counted=False, refreshes_route=True, avoids_broker=True)
# The route says that the topic exists: its broker will learn of it in a moment.
_ROUTE_IS_OLD = Retry(is_counted=False, refreshes_route=True, avoids_broker=False)
_BUSY = Retry(is_counted=False, refreshes_route=False, avoids_broker=True)
_BROKEN = Retry(is_counted=True, refreshes_route=True, avoids_broker=True)

_RETRIES: dict[type[errors.AerobeeError], Retry] = {
    errors.Unreachable: _NOT_TAKEN,
    errors.ShuttingDown: _NOT_TAKEN,
    errors.NotWritable: _NOT_TAKEN,
    errors.NoBrokerAvailable: _ROUTE_IS_OLD,
    errors.NotMaster: _ROUTE_IS_OLD,
    errors.StaleEpoch: _ROUTE_IS_OLD,
    errors.TopicNotFound: _ROUTE_IS_OLD,
    errors.QueueNotFound: _ROUTE_IS_OLD,
    errors.Busy: _BUSY,
    errors.QuotaExceeded: _BUSY,
    errors.NotEnoughReplicas: _BUSY,
    errors.StoreFailed: _BROKEN,
    errors.DeadlineExceeded: _BROKEN,
    errors.RegistryUnavailable: _BROKEN,
    errors.AerobeeError: _BROKEN,
}


def retry_of(error: errors.AerobeeError) -> Retry | None:
    """How to retry after `error`; None: it is final.

    >>> retry_of(errors.MessageTooLarge("9 MiB")) is None
    True
    """
    return _RETRIES.get(type(error))


_UNKNOWN = frozenset({errors.StoreFailed, errors.DeadlineExceeded})


def leaves_unknown(error: errors.AerobeeError) -> bool:
    """Whether a broker that gives this answer may have stored the batch all the same.

    >>> leaves_unknown(errors.StoreFailed("")), leaves_unknown(errors.Busy("", retry_after_ms=1))
    (True, False)
    """
    return type(error) in _UNKNOWN


def refused(batch: Batch, error: errors.AerobeeError) -> errors.AerobeeError:
    """The error of a batch that is not sent again after `error`, which says that this attempt
    stored nothing. An earlier one may have."""
    if not batch.is_outcome_unknown or isinstance(error, errors.OutOfSequence):
        return error
    return errors.DeadlineExceeded(
        "an earlier attempt was not acknowledged, and the last one was refused: whether the "
        f"message is stored is unknown ({error})"
    )


def delay_s(error: errors.AerobeeError, attempt: int, chance: random.Random) -> float:
    """Seconds to wait before the same broker is tried again, after `attempt` failures in a row.

    >>> delay_s(errors.Busy("disk behind", retry_after_ms=70), 1, random.Random(1))
    0.07
    """
    if isinstance(error, errors.Busy):
        return max(error.retry_after_ms, 1) / 1_000
    return RETRY_BACKOFF.delay_s(attempt, chance)


def expired(batch: Batch) -> errors.AerobeeError:
    """The error of a batch whose time is over."""
    broker_name = batch.queue.broker_name
    seconds = batch.timeout_ms / 1_000
    reason = batch.last_error
    if batch.attempts and (batch.is_outcome_unknown or reason is None):
        because = f" ({reason})" if reason is not None else ""
        return errors.DeadlineExceeded(
            f"{broker_name!r} did not acknowledge within {seconds:g} s: whether the message is "
            f"stored is unknown{because}"
        )
    if reason is not None:
        final = copy.copy(reason)
        final.args = (f"not sent within {seconds:g} s: {reason}",)
        return final
    return errors.DeadlineExceeded(
        f"not sent within {seconds:g} s: {broker_name!r} takes messages more slowly than "
        "they are sent, or the timeout is too short"
    )


class RetryOwner(Protocol):
    """Owns the batches before and after the wait."""

    def stream(self, broker_name: str) -> BrokerStream: ...

    def has(self, batch: Batch) -> bool:
        """Whether it still has no outcome."""

    def submit(self, batch: Batch) -> None:
        """Send it again."""

    def end(self, batch: Batch, error: errors.AerobeeError) -> None:
        """It is not sent again."""

    def on_route(self, route: TopicRoute) -> None: ...


class Retries:
    """Batches that came back and will be sent again."""

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
        self, batches: Sequence[Batch], error: errors.AerobeeError, *, refreshes_route: bool
    ) -> None:
        """Batches that came back together because of `error`."""
        task = self._tasks.create_task(
            self._try_again(batches, error, refreshes_route), name="send:retry"
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def stop(self) -> None:
        """Nothing is sent again; the owner notifies the callers."""
        for task in self._running:
            task.cancel()

    async def _try_again(
        self, batches: Sequence[Batch], error: errors.AerobeeError, refreshes_route: bool
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
        self,
        batches: Sequence[Batch],
        error: errors.AerobeeError,
        failures: int,
        refreshes_route: bool,
    ) -> None:
        pause_s = delay_s(error, failures + 1, self._random)
        pause_s = min(pause_s, self._remaining_s(batches))
        if refreshes_route:
            await self._owner.stream(batches[0].queue.broker_name).wait_route(pause_s)
        else:
            await asyncio.sleep(pause_s)

    def _move(self, batch: Batch, queue: MessageQueue | None) -> None:
        """To another queue, if there is one; on each queue a batch has separate numbers."""
        if queue is None:
            return
        self._turns.leave(batch)
        batch.producer_id = 0
        batch.queue = queue

    async def _refresh_all(self, batches: Sequence[Batch]) -> None:
        for topic in {batch.queue.topic for batch in batches}:
            await self._refresh(topic, [batch for batch in batches if batch.queue.topic == topic])

    async def _refresh(self, topic: str, batches: Sequence[Batch]) -> None:
        """Asks a nameserver, without letting a hanging one use up the time."""
        timeout_ms = max(1, min(int(self._remaining_s(batches) * 1_000), QUERY_TIMEOUT_MS))
        try:
            route = await self._routes.route(topic, timeout_ms=timeout_ms)
        except (errors.TopicNotFound, errors.IllegalName) as error:
            for batch in batches:
                self._owner.end(batch, refused(batch, error))
        except errors.AerobeeError as error:
            log_event(log, "route not refreshed", level=logging.DEBUG, topic=topic, reason=error)
        else:
            self._owner.on_route(route)

    def _remaining_s(self, batches: Sequence[Batch]) -> float:
        """Until the time of the last batch is over."""
        last_s = max(batch.deadline_s for batch in batches)
        return max(0.0, last_s - self._clock.monotonic_s())

    def _other_queue(self, batch: Batch) -> MessageQueue | None:
        """A queue of another broker to which the batch may go."""
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
