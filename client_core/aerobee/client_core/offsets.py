"""Offsets of queues across brokers: bounds, by timestamp, committed, reset.

Queues are grouped by broker, and each broker is asked once, all at the same time. While a broker
group has no master, questions that only a master can answer wait for one; bounds and times are read
from a slave. Commits of a running consumer are not here: they carry leases and belong to the
consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_calls import UNANSWERED, GroupCalls
from aerobee.cluster_view.methods import (
    QUERY_BOUNDS,
    QUERY_OFFSETS,
    RESET_OFFSETS,
    SEARCH_BY_TIMESTAMP,
)
from aerobee.cluster_view.route import MessageQueue
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Which offsets of a queue can be read: min_offset <= offset < max_offset_end."""

    min_offset: int
    max_offset_end: int
    """The next message will get this offset."""
    last_store_timestamp_ms: int
    """When the newest message was stored; 0 in an empty queue."""

    @property
    def count(self) -> int:
        return self.max_offset_end - self.min_offset


class Offsets:
    """Reads and sets offsets, for operators and for a consumer's start position."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._calls = GroupCalls(connection)
        self._routes = connection.routes
        self._timeout_ms = timeout_ms

    async def bounds(
        self, queues: Iterable[MessageQueue], *, of_master: bool = False
    ) -> dict[MessageQueue, QueueBounds]:
        """Minimum and maximum of each queue. `of_master`: never from a slave, which may know less.

        Raises:
            TopicNotFound, QueueNotFound, NoBrokerAvailable, Unreachable, DeadlineExceeded.
        """

        async def ask(
            place: MessageQueue, asked: Sequence[MessageQueue]
        ) -> list[tuple[MessageQueue, QueueBounds]]:
            call = self._calls.at_master if of_master else self._calls.at_any
            response = await call(
                place.topic,
                place.broker_name,
                QUERY_BOUNDS,
                broker_pb2.QueryBoundsRequest(queues=_topic_queues(asked)),
                timeout_ms=self._timeout_ms,
            )
            answers = []
            for queue, found in zip(asked, response.bounds, strict=True):
                _raise_unless_ok(found.status, queue)
                bounds = QueueBounds(
                    found.min_offset, found.max_offset, found.last_store_timestamp_ms
                )
                answers.append((queue, bounds))
            return answers

        return await self._at_each_broker(queues, ask)

    async def bounds_by_broker(
        self, queues: Iterable[MessageQueue]
    ) -> tuple[dict[MessageQueue, QueueBounds], tuple[str, ...]]:
        """Minimum and maximum of the queues whose brokers answer, and the broker groups of the
        others. A group without a live broker is not waited for.

        Raises:
            TopicNotFound, QueueNotFound; Unreachable, DeadlineExceeded: no nameserver answers.
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        silent = set[str]()

        async def ask(asked: Sequence[MessageQueue]) -> dict[MessageQueue, QueueBounds]:
            topic, broker_name, _ = asked[0]
            route = await self._routes.route(topic, timeout_ms=self._timeout_ms)
            if route.replicas(broker_name):
                try:
                    return await self.bounds(asked)
                except (errors.NoBrokerAvailable, *UNANSWERED):
                    pass
            silent.add(broker_name)
            return {}

        answers = await all_of([ask(asked) for asked in by_broker.values()])
        return {queue: found for each in answers for queue, found in each.items()}, tuple(
            sorted(silent)
        )

    async def by_timestamp(
        self,
        queues: Iterable[MessageQueue],
        timestamp_ms: int,
        *,
        boundary: Literal["lower", "upper"] = "lower",
        of_master: bool = False,
    ) -> dict[MessageQueue, int]:
        """The first offset stored at or after a time, or the last at or before (`upper`).
        `of_master`: as for `bounds`.

        Raises:
            QueueNotFound, TopicNotFound, NoBrokerAvailable, Unreachable, DeadlineExceeded.
        """

        async def ask(
            place: MessageQueue, asked: Sequence[MessageQueue]
        ) -> list[tuple[MessageQueue, int]]:
            call = self._calls.at_master if of_master else self._calls.at_any
            response = await call(
                place.topic,
                place.broker_name,
                SEARCH_BY_TIMESTAMP,
                broker_pb2.SearchByTimestampRequest(
                    queues=_topic_queues(asked),
                    timestamp_ms=timestamp_ms,
                    boundary=broker_pb2.UPPER if boundary == "upper" else broker_pb2.LOWER,
                ),
                timeout_ms=self._timeout_ms,
            )
            found = list(zip(asked, response.offsets, strict=True))
            for queue, offset in found:
                if offset < 0:
                    raise errors.QueueNotFound(f"{queue} does not exist on its broker")
            return found

        return await self._at_each_broker(queues, ask)

    async def committed(
        self, group: str, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, int | None]:
        """What the group committed on each queue; None where it never did.

        Raises:
            TopicNotFound, NoBrokerAvailable, Unreachable, DeadlineExceeded.
        """

        async def ask(
            place: MessageQueue, asked: Sequence[MessageQueue]
        ) -> list[tuple[MessageQueue, int | None]]:
            response = await self._calls.at_master(
                place.topic,
                place.broker_name,
                QUERY_OFFSETS,
                broker_pb2.QueryOffsetsRequest(group=group, queues=_topic_queues(asked)),
                timeout_ms=self._timeout_ms,
            )
            by_name = {
                (found.topic, found.queue_id): found.offset
                for found in response.offsets
                if found.code == common_pb2.OK
            }
            return [(queue, by_name.get((queue.topic, queue.queue_id))) for queue in asked]

        return await self._at_each_broker(queues, ask)

    async def reset(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Sets the group's offsets whatever they were; members start again from there.

        Raises:
            InvalidArgument, QueueNotFound, TopicNotFound: a queue that was refused; the others
                of the same call may have been set.
            NoBrokerAvailable, Unreachable, DeadlineExceeded.
        """

        async def ask(
            place: MessageQueue, asked: Sequence[MessageQueue]
        ) -> list[tuple[MessageQueue, None]]:
            response = await self._calls.at_master(
                place.topic,
                place.broker_name,
                RESET_OFFSETS,
                broker_pb2.ResetOffsetsRequest(
                    group=group,
                    offsets=[
                        broker_pb2.QueueOffset(
                            topic=queue.topic, queue_id=queue.queue_id, offset=offsets[queue]
                        )
                        for queue in asked
                    ],
                ),
                timeout_ms=self._timeout_ms,
            )
            for queue, status in zip(asked, response.results, strict=True):
                _raise_unless_ok(status, queue)
            return [(queue, None) for queue in asked]

        await self._at_each_broker(offsets, ask)

    async def _at_each_broker(
        self,
        queues: Iterable[MessageQueue],
        ask: Callable[
            [MessageQueue, Sequence[MessageQueue]], Awaitable[list[tuple[MessageQueue, T]]]
        ],
    ) -> dict[MessageQueue, T]:
        """`ask` gets one of a broker's queues, for its route, and all of them."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            # Raises for a topic that does not exist.
            await self._routes.route(queue.topic, timeout_ms=self._timeout_ms)
            by_broker.setdefault(queue.broker_name, []).append(queue)
        answers = await all_of([ask(asked[0], asked) for asked in by_broker.values()])
        return {queue: value for answer in answers for queue, value in answer}


async def all_of(calls: Sequence[Awaitable[T]]) -> list[T]:
    """Results in order. The first failure cancels the others and is raised alone."""

    async def run(call: Awaitable[T]) -> T:
        return await call

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(call), name="client:call") for call in calls]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _topic_queues(queues: Sequence[MessageQueue]) -> list[broker_pb2.TopicQueue]:
    return [broker_pb2.TopicQueue(topic=queue.topic, queue_id=queue.queue_id) for queue in queues]


def _raise_unless_ok(status: common_pb2.Status, queue: MessageQueue) -> None:
    if status.code != common_pb2.OK:
        raise error_from_code(status.code, f"{queue}: {status.message}")
