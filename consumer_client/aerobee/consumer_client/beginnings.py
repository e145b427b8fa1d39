"""Where a group begins on queues on which it never committed, fixed before anything can be missed.

Owns: the rule. With `StartFrom.LAST`, a starting consumer asks for the ends of all queues of its
topics, whichever members will read them, and has them stored as the group's first offsets; the
first to store one decides, so that members that start together agree. Everything stored after the
start is at or after these offsets. A queue without a committed offset that appears later, or that a
group finds beside queues on which it has committed, is newer than the group, and is read from its
first message. If the group is deleted while it has members, the queues that the broker had then
begin once more by the start policy, as soon as the broker can be joined again, before anything is
read from them.
Invariants: a queue is begun only after its topic is settled; a begun queue is begun again only
after a deletion.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.defaults import check_whole_number
from aerobee.client_core.offsets import Offsets, all_of
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.committing import PASSING_ERRORS, OffsetStore
from aerobee.consumer_client.options import ConsumerConfig, StartFrom
from aerobee.domain.names import is_retry_topic
from aerobee.runtime import errors
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

OTHER_BROKERS_PATIENCE_S = 2.0
"""How long a group that is known to have begun waits for brokers that do not answer: their queues
have begun too, or are new."""
OTHER_MEMBERS_PATIENCE_S = 2.0
"""How long another member that is just starting may take to fix the rest of what it began."""
ASK_AGAIN_S = 0.05

_PASSING = (*PASSING_ERRORS, errors.Busy)


@dataclass(slots=True)
class _Standing:
    """What the brokers of one topic answered."""

    committed: dict[MessageQueue, int] = field(default_factory=dict)
    failures: dict[str, errors.AerobeeError] = field(default_factory=dict)
    """By name, brokers that did not answer."""


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """Used only if the group never committed: a committed offset always wins."""

    start_from: StartFrom = StartFrom.LAST
    timestamp_ms: int | None = None
    """Unix ms; with TIMESTAMP only."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "start_from", StartFrom(self.start_from))
        except ValueError:
            raise InvalidArgument(
                f"start_from must be one of {', '.join(StartFrom)}, not {self.start_from!r}"
            ) from None
        if self.timestamp_ms is not None:
            check_whole_number("start_timestamp_ms", self.timestamp_ms, minimum=0)
        if (self.timestamp_ms is None) == (self.start_from is StartFrom.TIMESTAMP):
            raise InvalidArgument(
                "give start_timestamp_ms with StartFrom.TIMESTAMP, and only with it"
            )

    def for_new_queues(self) -> Self:
        """The policy for queues that are younger than their group: they contain nothing from before
        the group existed."""
        return type(self)(StartFrom.FIRST) if self.start_from is StartFrom.LAST else self

    async def start_offsets(
        self, offsets: Offsets, queues: Sequence[MessageQueue]
    ) -> dict[MessageQueue, int]:
        """The first offsets to read.

        Raises:
            AerobeeError: a broker could not be asked.
        """
        if self.timestamp_ms is not None:
            return await offsets.by_timestamp(queues, self.timestamp_ms, of_master=True)
        bounds = await offsets.bounds(queues, of_master=True)
        if self.start_from is StartFrom.FIRST:
            return {queue: found.min_offset for queue, found in bounds.items()}
        return {queue: found.max_offset_end for queue, found in bounds.items()}


class Beginnings:
    """The beginnings of one consumer."""

    def __init__(
        self,
        connection: ClusterConnection,
        store: OffsetStore,
        policy: StartPolicy,
        *,
        group: str,
        options: ConsumerConfig,
    ) -> None:
        self._connection = connection
        self._store = store
        self._policy = policy
        self._group = group
        self._options = options
        self._offsets = Offsets(connection, timeout_ms=options.request_timeout_ms)
        self._settled: dict[str, asyncio.Event] = {}
        self._forgotten: set[MessageQueue] = set()
        """Where the group had begun, and was deleted since."""
        self._renewing = asyncio.Lock()

    # ------------------------------------------------------------------------------ topics

    def is_settled(self, topic: str) -> bool:
        return self._event(topic).is_set()

    def settle_as_new(self, topic: str) -> None:
        """Nothing has to be fixed: the topic did not exist when this consumer was started, or
        begins at its first message or one of a certain time, whenever that is looked up."""
        self._event(topic).set()

    async def settle(self, topic: str, *, timeout_ms: int) -> frozenset[str]:
        """Fix where the group begins on every queue that the topic has now; returns the brokers
        that answered.

        Raises:
            TopicNotFound: no such topic.
            AerobeeError: a group that is just beginning could not ask a broker in time; some queues
            may have
                begun.
        """
        end_s = self._now_s() + timeout_ms / 1_000
        route = await self._connection.routes.route(topic, timeout_ms=timeout_ms)
        queues = route.queues
        standing = await self._ask(queues, end_s)
        if not standing.committed:
            for name, failure in standing.failures.items():
                raise self._cannot_begin(topic, name, failure)
            await self._begin_all(queues, end_s)
        else:
            await self._await_others(queues, standing)
        self._event(topic).set()
        return frozenset(route.queues_by_broker) - standing.failures.keys()

    async def _ask(self, queues: Sequence[MessageQueue], end_s: float) -> _Standing:
        """What the group has committed. If one broker does not answer, that does not matter as long
        as another one knows the group."""
        standing = _Standing()
        async with asyncio.TaskGroup() as group:
            tasks = {
                group.create_task(self._read(asked), name=f"beginnings:{name}"): name
                for name, asked in _by_broker(queues).items()
            }
            waiting = set(tasks)
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting,
                    timeout=max(0.0, end_s - self._now_s()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    break
                for task in done:
                    answer = task.result()
                    if isinstance(answer, errors.AerobeeError):
                        standing.failures[tasks[task]] = answer
                    else:
                        standing.committed.update(answer)
                if standing.committed:
                    end_s = min(end_s, self._now_s() + OTHER_BROKERS_PATIENCE_S)
            for task in waiting:
                task.cancel()
        for task in waiting:
            name = tasks[task]
            standing.failures[name] = errors.DeadlineExceeded(
                f"broker group {name!r} did not give the offsets of group {self._group!r} in time"
            )
        return standing

    async def _read(
        self, queues: Sequence[MessageQueue]
    ) -> Mapping[MessageQueue, int] | errors.AerobeeError:
        try:
            return await self._store.read(queues)
        except errors.AerobeeError as error:
            return error

    def _cannot_begin(
        self, topic: str, broker_name: str, failure: errors.AerobeeError
    ) -> errors.AerobeeError:
        route = self._connection.routes.cached(topic)
        if route is None or route.master(broker_name) is not None:
            return failure
        return errors.NoBrokerAvailable(
            f"group {self._group!r} has no offsets on topic {topic!r} yet, and broker group "
            f"{broker_name!r} has no master to say where its queues end; start again when it has "
            "one, or start from FIRST"
        )

    async def _begin_all(self, queues: Sequence[MessageQueue], end_s: float) -> None:
        """No member has begun: begin now, at the end of each queue."""
        left_ms = max(1, int((end_s - self._now_s()) * 1_000))
        bounds = await Offsets(self._connection, timeout_ms=left_ms).bounds(queues, of_master=True)
        left = {queue: found.max_offset_end for queue, found in bounds.items()}
        failures = 0
        while left:
            refused = await self._store_all(left)
            if not refused:
                break
            error = next(iter(refused.values()))
            delay_s = self._options.backoff.delay_s(failures, self._connection.random)
            if not isinstance(error, _PASSING) or self._now_s() + delay_s >= end_s:
                raise error
            for queue in refused:
                self._connection.routes.invalidate(queue.topic)
            left = {queue: left[queue] for queue in refused}
            await asyncio.sleep(delay_s)
            failures += 1

    async def _store_all(
        self, offsets: Mapping[MessageQueue, int]
    ) -> Mapping[MessageQueue, errors.AerobeeError]:
        """At all their brokers at the same time; returns what was refused or not reached."""
        answers = await all_of(
            [
                self._store.begin({queue: offsets[queue] for queue in queues})
                for queues in _by_broker(offsets).values()
            ]
        )
        return {queue: error for answer in answers for queue, error in answer.items()}

    async def _await_others(self, queues: Sequence[MessageQueue], standing: _Standing) -> None:
        """Another member may be in the middle of `_begin_all`: what it has not begun after a while
        is new."""
        end_s = self._now_s() + OTHER_MEMBERS_PATIENCE_S
        missing = [
            queue
            for queue in queues
            if queue not in standing.committed and queue.broker_name not in standing.failures
        ]
        while missing and self._now_s() < end_s:
            await asyncio.sleep(ASK_AGAIN_S)
            try:
                committed = await self._store.read(missing)
            except errors.AerobeeError:
                return
            missing = [queue for queue in missing if queue not in committed]

    # ------------------------------------------------------------------------------ queues

    async def of_queue(self, queue: MessageQueue) -> int:
        """Where the group begins on a queue that was granted without a committed offset, once the
        topic is settled.

        Raises:
            AerobeeError: the brokers could not be asked; ask again.
        """
        await self._event(queue.topic).wait()
        if queue in self._forgotten:
            await self.begin_again(queue.topic, queue.broker_name)
        policy = self._policy.for_new_queues()
        if is_retry_topic(queue.topic):
            # Nobody can be too late for what the group itself has sent back.
            policy = StartPolicy(StartFrom.FIRST)
        return (await self._begin([queue], policy))[queue]

    def on_group_deleted(self, broker_name: str, topics: Iterable[str]) -> None:
        """A broker is forgetting the group: its currently known queues begin again. Not before it
        has forgotten, which is when the group can be joined there."""
        if self._policy.for_new_queues() == self._policy:
            return
        for topic in topics:
            route = self._connection.routes.cached(topic)
            queues = [] if route is None else route.queues
            self._forgotten.update(each for each in queues if each.broker_name == broker_name)

    def to_begin_again(self, broker_name: str) -> list[str]:
        """Topics with queues at the broker that have not begun again yet."""
        return sorted({each.topic for each in self._forgotten if each.broker_name == broker_name})

    async def begin_again(self, topic: str, broker_name: str) -> None:
        """Fix where the group begins on a topic's queues at a broker that has forgotten it.

        Raises:
            AerobeeError: the broker could not be asked in time; ask again.
        """
        async with self._renewing:
            forgotten = {
                queue
                for queue in self._forgotten
                if (queue.topic, queue.broker_name) == (topic, broker_name)
            }
            if not forgotten:
                return
            timeout_ms = self._options.request_timeout_ms
            end_s = self._now_s() + timeout_ms / 1_000
            route = await self._connection.routes.route(topic, timeout_ms=timeout_ms)
            await self._begin_all(sorted(forgotten.intersection(route.queues)), end_s)
            self._forgotten -= forgotten

    async def of_chosen(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The committed offsets of queues chosen by a user, and the offsets of the start policy for
        those without one.

        Raises:
            AerobeeError: the brokers could not be asked.
        """
        return await self._begin(list(queues), self._policy)

    async def _begin(
        self, queues: Sequence[MessageQueue], policy: StartPolicy
    ) -> dict[MessageQueue, int]:
        committed = await self._store.read(queues)
        fresh = [queue for queue in queues if queue not in committed]
        if not fresh:
            return committed
        begun = await policy.start_offsets(self._offsets, fresh)
        refused = await self._store_all(begun)
        for queue, error in refused.items():
            # Only for this consumer then; its commits will inform the group.
            log_event(
                log,
                "beginning not stored yet",
                level=logging.DEBUG,
                group=self._group,
                topic=queue.topic,
                queue=queue,
                offset=begun[queue],
                reason=error,
            )
        stored = [queue for queue in fresh if queue not in refused]
        return {**committed, **begun, **(await self._store.read(stored) if stored else {})}

    def _event(self, topic: str) -> asyncio.Event:
        return self._settled.setdefault(topic, asyncio.Event())

    def _now_s(self) -> float:
        return self._connection.clock.monotonic_s()


def _by_broker(queues: Iterable[MessageQueue]) -> Mapping[str, list[MessageQueue]]:
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    return by_broker
