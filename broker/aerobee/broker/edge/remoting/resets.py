"""Offsets of groups that an operator sets with RocketMQ's tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aerobee.access.running import topics_seen
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.sending.guard import Guard
from aerobee.cluster_view.route import MessageQueue
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import admin_bodies, json_bodies
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.queues import queue_object
from aerobee.runtime.errors import AerobeeError, DeadlineExceeded
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns

_SAFE_S: Final = 4.0
"""mqadmin waits for 5 s."""
_ALL: Final = -1
_NEWEST: Final = -1


class RemotingResets:
    """On the loop."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        queues: QueueReader,
        guard: Guard,
        turns: LoopTurns,
        *,
        after_reset: Callable[[], Awaitable[None]],
    ) -> None:
        """`after_reset` returns once the consequences of a reset are in effect, too."""
        self._offsets = offsets
        self._queues = queues
        self._guard = guard
        self._turns = turns
        self._after_reset = after_reset

    async def reset(self, connection: Connection, request: Command) -> Command:
        """Code 222: to a time, or one queue to an offset. Running clients go on from there. Raises
        AerobeeError."""
        fields = request.fields
        group, topic = read.text(fields, "group"), read.text(fields, "topic")
        only, offset = read.number(fields, "queueId", _ALL), read.number(fields, "offset", _ALL)
        timestamp_ms = read.number(fields, "timestamp", _NEWEST)
        is_forced = read.flag(fields, "isForce", default=True)
        await self._offsets.acting_for(group)
        entry = self._guard.topic(topic)
        count = max(entry.read_queue_count, entry.write_queue_count)
        queue_ids = range(count) if only == _ALL else range(only, only + 1)
        waiting, found = set(), []
        async for queue_id in self._turns.each(LISTINGS, queue_ids):
            self._guard.check_queue(topic, queue_id)
            key = GroupQueue(group, topic, queue_id)
            target = offset
            if only == _ALL or offset == _ALL:
                target = await self._at(topic, queue_id, timestamp_ms)
                before = self._offsets.query(key)
                if not is_forced and before is not None:
                    target = min(target, before)
            waiting.add(self._offsets.reset(key, target))
            found.append((self._queue(topic, queue_id), target))
        await self._safe(waiting)
        await self._after_reset()
        return request.answer(body=json_bodies.write(admin_bodies.offsets_body(found)))

    async def _at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        first, last = self._queues.bounds(topic, queue_id)
        if timestamp_ms == _NEWEST:
            return last
        found = await self._queues.search_by_time(topic, queue_id, timestamp_ms, upper=False)
        return min(max(first, found), last)

    async def clone(self, connection: Connection, request: Command) -> Command:
        """Code 314: a group goes on where another one is. Raises AerobeeError."""
        fields = request.fields
        source, group = read.text(fields, "srcGroup"), read.text(fields, "destGroup")
        only = fields.get("topic", "")
        await self._offsets.acting_for(group)
        sees, waiting = topics_seen(), set()
        async for key, offset in self._turns.each(LISTINGS, self._offsets.of_group(source)):
            if (only and key.topic != only) or not sees(key.topic):
                continue
            try:
                self._guard.check_queue(key.topic, key.queue_id)
            except AerobeeError:
                continue  # the topic is gone
            target = GroupQueue(group, key.topic, key.queue_id)
            waiting.add(self._offsets.reset(target, offset))
        await self._safe(waiting)
        await self._after_reset()
        return request.answer()

    async def _safe(self, waiting: set[asyncio.Future[None]]) -> None:
        if waiting:
            done, late = await asyncio.wait(waiting, timeout=_SAFE_S)
            if late:
                raise DeadlineExceeded(
                    "the offsets are set, but disk and replicas did not confirm it in time; repeat "
                    "the request"
                )
            for each in done:
                each.result()

    def _queue(self, topic: str, queue_id: int) -> dict[str, Any]:
        return queue_object(MessageQueue(topic, self._guard.broker_name, queue_id))
