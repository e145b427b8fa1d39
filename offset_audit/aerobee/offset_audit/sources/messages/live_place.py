"""A live cluster as a place of messages: queried by the driver, in independent calls.

Each call opens connections and closes them, so nothing is shared with forked workers. A broker that
cannot be asked makes only its own queues unknown.

Executors pull the messages: frames of many records into Arrow batches. While one frame is decoded
the next is in flight. A broker that fails is retried, and its slaves too, until the user's time is
over; a slave alone is never believed that a message does not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from aerobee.client_core.admin_topics import TopicAdmin
from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.group_calls import GroupCalls
from aerobee.client_core.offsets import Offsets, all_of
from aerobee.cluster_view.methods import QUERY_BOUNDS
from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.columns import Expected, RecordColumns
from aerobee.offset_audit.sources.messages.losses import LossRule, losses_of
from aerobee.offset_audit.sources.messages.offsets import QueueOffsets
from aerobee.offset_audit.sources.messages.options import MessageOptions
from aerobee.offset_audit.sources.messages.place import Bounds, KnownBounds, Window
from aerobee.offset_audit.sources.messages.puller import Frame, Puller
from aerobee.offset_audit.sources.messages.ranges import OffsetRange, divide, pack
from aerobee.runtime import errors
from aerobee.store.format.record_arrays import byte_field, read_field
from aerobee.store.format.record_hops import hop
from aerobee.store.format.record_layout import QUEUE_OFFSET_AT
from aerobee.v1 import broker_pb2, common_pb2


@dataclass(frozen=True, slots=True)
class LiveReading:
    """See Reading: these ranges, one after the other. Owns: one event loop and its connections, in
    a thread of their own, for as long as it is read."""

    options: MessageOptions
    ranges: tuple[OffsetRange, ...]
    window: Window

    def batches(self) -> Iterator[Any]:
        rule = LossRule(self.options.fail_on_data_loss)
        with (
            ThreadPoolExecutor(1, thread_name_prefix="pull") as thread,
            asyncio.Runner() as runner,
        ):
            puller = thread.submit(Puller, self.options, self.ranges).result()

            def pull() -> Frame | None:
                return runner.run(puller.next())

            coming = thread.submit(pull)
            try:
                while (frame := coming.result()) is not None:
                    coming = thread.submit(pull)
                    rule.apply(frame.losses)
                    batch = self._batch(frame, rule)
                    if batch is not None:
                        yield batch
            finally:
                coming.exception()
                thread.submit(lambda: runner.run(puller.close())).result()
                thread.submit(runner.close).result()

    def _batch(self, frame: Frame, rule: LossRule) -> Any | None:
        """The frame's records that lie in its range, if there are any."""
        starts, ends = hop(frame.records)
        offsets = read_field(byte_field(frame.records, ">i8"), starts + QUEUE_OFFSET_AT)
        inside = (offsets >= frame.begin) & (offsets < frame.end)
        starts, ends, offsets = starts[inside], ends[inside], offsets[inside]
        if len(offsets) != frame.end - frame.begin:
            missing = np.setdiff1d(np.arange(frame.begin, frame.end), offsets)
            rule.apply(losses_of(frame.queue, missing, "the broker skipped them"))
        if not len(starts):
            return None
        records = RecordColumns(
            frame.records,
            starts,
            ends,
            Expected(
                frame.queue.broker_name, (frame.queue.topic,), None, frame.queue.queue_id, offsets
            ),
        )
        columns = self.options.columns
        sound = records.sound(check_bodies=columns.check_bodies)
        rule.apply(losses_of(frame.queue, offsets[~sound], "damaged"))
        records.only(sound)
        if not self.window.is_all:
            times = records.store_ms
            records.only((times >= self.window.first_ms) & (times <= self.window.last_ms))
        if columns.body:
            fine = records.decompressible()
            damaged = records.expected.queue_offsets[~fine]
            rule.apply(losses_of(frame.queue, damaged, "not decompressible"))
            records.only(fine)
        return records.batch(columns) if records.count else None


PACKAGE_MESSAGES_MIN = 20_000
"""Queues with fewer messages share a task."""

PACKAGES_MIN = 64
"""Fewer queues than this have a task each."""

_ASKED_AT_ONCE = 500
"""Routes, and queues of one broker in one request."""


@dataclass(frozen=True, slots=True)
class LivePlace:
    """See Place."""

    options: MessageOptions

    def bounds(self, timeout_ms: int) -> KnownBounds:
        return asyncio.run(self._bounds(timeout_ms))

    def confirmed_bounds(
        self, queues: Sequence[MessageQueue], timeout_ms: int
    ) -> dict[MessageQueue, Bounds]:
        found = asyncio.run(self._confirmed(queues, timeout_ms))
        return {queue: bounds for queue, bounds in found.items() if bounds is not None}

    def at_times(self, times_ms: Mapping[MessageQueue, int]) -> QueueOffsets:
        return asyncio.run(self._at_times(times_ms))

    def plan(self, ranges: Sequence[OffsetRange], window: Window) -> list[LiveReading]:
        pieces = divide(
            ranges,
            pieces_min=self.options.partitions_min,
            messages_max=self.options.partition_messages_max,
        )
        packages = pack(
            pieces,
            messages_min=PACKAGE_MESSAGES_MIN,
            pieces_min=max(self.options.partitions_min, PACKAGES_MIN),
        )
        return [LiveReading(self.options, package, window) for package in packages]

    # ------------------------------------------------------------------------------ inside

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[ClusterConnection]:
        async with ClusterConnection(self.options.nameservers, self.options.cluster) as connection:
            yield connection

    async def _bounds(self, timeout_ms: int) -> KnownBounds:
        async with self._connected() as connection:
            queues = await self._queues(connection, timeout_ms)
            return await _ask(connection, queues, timeout_ms, of_master=False)

    async def _confirmed(self, queues: Sequence[MessageQueue], timeout_ms: int) -> KnownBounds:
        async with self._connected() as connection:
            return await _ask(connection, queues, timeout_ms, of_master=True)

    async def _queues(self, connection: ClusterConnection, timeout_ms: int) -> list[MessageQueue]:
        topics = self.options.topics
        names = topics.named()
        if names is None:
            listed = await TopicAdmin(connection, timeout_ms=timeout_ms).list()
            names = tuple(topic.name for topic in listed if topics.matches(topic.name))
        queues: list[MessageQueue] = []
        for at in range(0, len(names), _ASKED_AT_ONCE):
            asked = names[at : at + _ASKED_AT_ONCE]
            found = await all_of([_queues_of(connection, name, timeout_ms) for name in asked])
            queues += [queue for each in found for queue in each if topics.takes(queue)]
        return queues

    async def _at_times(self, times_ms: Mapping[MessageQueue, int]) -> QueueOffsets:
        by_time: dict[int, list[MessageQueue]] = {}
        for queue, time_ms in times_ms.items():
            by_time.setdefault(time_ms, []).append(queue)
        found: QueueOffsets = {}
        async with self._connected() as connection:
            offsets = Offsets(connection, timeout_ms=self.options.timeout_ms)
            for time_ms, queues in by_time.items():
                found |= await offsets.by_timestamp(queues, max(0, time_ms))
        return found


async def _queues_of(
    connection: ClusterConnection, topic: str, timeout_ms: int
) -> Sequence[MessageQueue]:
    """None if there is no such topic (any more)."""
    try:
        route = await connection.routes.route(topic, timeout_ms=timeout_ms)
    except errors.TopicNotFound:
        return ()
    if route.queues and not route.readable_queues:
        raise errors.NotReadableTopic(
            f"the permission of topic {topic!r} forbids reading: `aerobee topic` can change it"
        )
    return route.readable_queues


async def _ask(
    connection: ClusterConnection,
    queues: Sequence[MessageQueue],
    timeout_ms: int,
    *,
    of_master: bool,
) -> dict[MessageQueue, Bounds | None]:
    """Each broker once, all at the same time."""
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    parts = [
        asked[at : at + _ASKED_AT_ONCE]
        for asked in by_broker.values()
        for at in range(0, len(asked), _ASKED_AT_ONCE)
    ]
    answers = await all_of(
        [_ask_broker(connection, part, timeout_ms, of_master=of_master) for part in parts]
    )
    return {queue: bounds for answer in answers for queue, bounds in answer.items()}


async def _ask_broker(
    connection: ClusterConnection,
    queues: Sequence[MessageQueue],
    timeout_ms: int,
    *,
    of_master: bool,
) -> dict[MessageQueue, Bounds | None]:
    calls = GroupCalls(connection)
    request = broker_pb2.QueryBoundsRequest(
        queues=[broker_pb2.TopicQueue(topic=one.topic, queue_id=one.queue_id) for one in queues]
    )
    try:
        response = await (calls.at_master if of_master else calls.at_any)(
            queues[0].topic,
            queues[0].broker_name,
            QUERY_BOUNDS,
            request,
            timeout_ms=timeout_ms,
        )
    except errors.AerobeeError as error:
        if not error.retryable:
            raise
        return dict.fromkeys(queues)
    return {
        # A queue that its broker does not know yet is not known to have messages either.
        queue: Bounds(found.min_offset, found.max_offset)
        if found.status.code == common_pb2.OK
        else None
        for queue, found in zip(queues, response.bounds, strict=True)
    }
