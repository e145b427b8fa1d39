"""OffsetService: committed offsets, bounds, search by time."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc

from aerobee.broker.edge.own.convert import status_of
from aerobee.broker.edge.own.turns import in_turns
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.sending.guard import Guard
from aerobee.runtime import names, own_protocol
from aerobee.runtime.errors import (
    DeadlineExceeded,
    InvalidArgument,
    MqError,
    QueueNotFound,
    TopicNotFound,
)
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

Context = grpc.aio.ServicerContext[Any, Any]

UNKNOWN_OFFSET = -1
CONFIRM_TIMEOUT_S = 5.0
"""How long a commit waits for disk and replicas, unless its caller waits less."""
CALLER_MARGIN_S = 0.1
REMOVED_LISTED_MAX = 10_000
"""How many removed offsets an answer names; its count has all."""
SENTENCE_LENGTH_MAX = 300
"""Of the result of one entry."""

Outcome = MqError | asyncio.Future[None] | None
"""Of one entry: refused, to be confirmed, or true already."""


class QueueReader(Protocol):
    """What this service asks of the queues themselves."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Minimum and maximum offset; (0, 0) for a queue without messages."""
        ...

    async def last_store_timestamp_ms(self, topic: str, queue_id: int) -> int:
        """When the queue's last message was stored; 0 without messages."""
        ...

    async def search_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool
    ) -> int:
        """The first offset at or after a time, or with `upper` the last at or before it."""
        ...


class OffsetService(broker_pb2_grpc.OffsetServiceServicer):
    """Each entry of a request has its own result."""

    def __init__(
        self, offsets: ConsumerOffsets, removal: GroupRemoval, guard: Guard, queues: QueueReader
    ) -> None:
        self._offsets = offsets
        self._removal = removal
        self._guard = guard
        self._queues = queues

    @own_protocol.unary
    async def CommitOffsets(
        self, request: broker_pb2.CommitOffsetsRequest, context: Context
    ) -> broker_pb2.CommitOffsetsResponse:
        names.check_group_name(request.group)
        if request.client_id:
            names.check_client_id(request.client_id)
        await self._offsets.begun()
        outcomes: list[Outcome] = []
        group, client_id = request.group, request.client_id
        async for entries in in_turns(request.offsets):
            for entry in entries:
                key = GroupQueue(group, entry.topic, entry.queue_id)
                try:
                    if request.begins:
                        done = self._offsets.begin(key, entry.offset, client_id)
                    else:
                        done = self._offsets.commit(key, entry.offset, entry.lease_epoch, client_id)
                except MqError as error:
                    outcomes.append(error.with_traceback(None))
                else:
                    outcomes.append(done)
        return broker_pb2.CommitOffsetsResponse(results=await _settled(outcomes, context))

    @own_protocol.unary
    async def QueryOffsets(
        self, request: broker_pb2.QueryOffsetsRequest, context: Context
    ) -> broker_pb2.QueryOffsetsResponse:
        names.check_group_name(request.group)
        await self._offsets.begun()
        # A slave, the next master included, may know older offsets than were told before.
        self._offsets.check_master()
        found: list[tuple[GroupQueue, int | None]] = []
        async for queues in in_turns(request.queues):
            for queue in queues:
                key = GroupQueue(request.group, queue.topic, queue.queue_id)
                found.append((key, self._offsets.query(key)))
        if not request.queues:
            found.extend(self._offsets.of_group(request.group))
        # The turns may have outlasted the term.
        self._offsets.check_master()
        offsets = []
        async for part in in_turns(found):
            offsets += [_committed(key, offset) for key, offset in part]
        return broker_pb2.QueryOffsetsResponse(offsets=offsets)

    @own_protocol.unary
    async def QueryBounds(
        self, request: broker_pb2.QueryBoundsRequest, context: Context
    ) -> broker_pb2.QueryBoundsResponse:
        response = broker_pb2.QueryBoundsResponse()
        async for queues in in_turns(request.queues):
            for queue in queues:
                response.bounds.append(await self._bounds(queue.topic, queue.queue_id))
        return response

    async def _bounds(self, topic: str, queue_id: int) -> broker_pb2.QueueBounds:
        try:
            self._guard.check_queue(topic, queue_id)
        except MqError as error:
            return broker_pb2.QueueBounds(status=_short(error), topic=topic, queue_id=queue_id)
        last_ms = await self._queues.last_store_timestamp_ms(topic, queue_id)
        min_offset, max_offset = self._queues.bounds(topic, queue_id)
        return broker_pb2.QueueBounds(
            status=status_of(None),
            topic=topic,
            queue_id=queue_id,
            min_offset=min_offset,
            max_offset=max_offset,
            last_store_timestamp_ms=last_ms,
        )

    @own_protocol.unary
    async def SearchByTimestamp(
        self, request: broker_pb2.SearchByTimestampRequest, context: Context
    ) -> broker_pb2.SearchByTimestampResponse:
        upper = request.boundary == broker_pb2.UPPER
        response = broker_pb2.SearchByTimestampResponse()
        async for queues in in_turns(request.queues):
            for queue in queues:
                try:
                    self._guard.check_queue(queue.topic, queue.queue_id)
                except (TopicNotFound, QueueNotFound):
                    response.offsets.append(UNKNOWN_OFFSET)
                    continue
                response.offsets.append(
                    await self._queues.search_by_time(
                        queue.topic, queue.queue_id, request.timestamp_ms, upper=upper
                    )
                )
        return response

    @own_protocol.unary
    async def ResetOffsets(
        self, request: broker_pb2.ResetOffsetsRequest, context: Context
    ) -> broker_pb2.ResetOffsetsResponse:
        names.check_group_name(request.group)
        await self._offsets.begun()
        outcomes: list[Outcome] = []
        async for entries in in_turns(request.offsets):
            for entry in entries:
                key = GroupQueue(request.group, entry.topic, entry.queue_id)
                try:
                    outcomes.append(self._offsets.reset(key, entry.offset))
                except MqError as error:
                    outcomes.append(error.with_traceback(None))
        return broker_pb2.ResetOffsetsResponse(results=await _settled(outcomes, context))

    @own_protocol.unary
    async def DeleteOffsets(
        self, request: broker_pb2.DeleteOffsetsRequest, context: Context
    ) -> broker_pb2.DeleteOffsetsResponse:
        names.check_group_name(request.group)
        names.check_topic_name(request.topic)
        for queue_id in request.queue_ids:
            if queue_id < 0:
                raise InvalidArgument(f"queue id {queue_id} is below 0")
        await self._offsets.begun()
        self._offsets.check_master()
        removed = await self._removal.delete_offsets(
            request.group,
            request.topic,
            request.queue_ids,
            timeout_s=timeout_s(context, CONFIRM_TIMEOUT_S),
        )
        return broker_pb2.DeleteOffsetsResponse(
            removed_count=len(removed.offsets), removed=committed_offsets(removed.offsets)
        )


async def _settled(outcomes: list[Outcome], context: Context) -> list[common_pb2.Status]:
    """The results, once everything is confirmed or the time is over."""
    waiting = {outcome for outcome in outcomes if isinstance(outcome, asyncio.Future)}
    if waiting:
        await asyncio.wait(waiting, timeout=timeout_s(context, CONFIRM_TIMEOUT_S))
    results: list[common_pb2.Status] = []
    async for part in in_turns(outcomes):
        results += [_status(outcome) for outcome in part]
    return results


def timeout_s(context: Context, longest_s: float) -> float:
    """How long a call may wait: as long as its caller, and at most `longest_s`."""
    remaining_s = context.time_remaining()
    if remaining_s is None:
        return longest_s
    return max(0.0, min(longest_s, remaining_s - CALLER_MARGIN_S))


def committed_offsets(offsets: list[tuple[GroupQueue, int]]) -> list[broker_pb2.CommittedOffset]:
    """The first REMOVED_LISTED_MAX of them, sorted by queue."""
    return [_committed(key, offset) for key, offset in sorted(offsets)[:REMOVED_LISTED_MAX]]


def _status(outcome: Outcome) -> common_pb2.Status:
    if not isinstance(outcome, asyncio.Future):
        return _short(outcome)
    if not outcome.done():
        return status_of(
            DeadlineExceeded(
                "the offset is stored, but disk and replicas have not confirmed it in time; commit "
                "it again"
            )
        )
    error = outcome.exception()
    if error is not None and not isinstance(error, MqError):
        raise error
    return _short(error)


def _short(error: MqError | None) -> common_pb2.Status:
    """As many as a request may have entries fit one answer."""
    status = status_of(error)
    if len(status.message) > SENTENCE_LENGTH_MAX:
        status.message = status.message[:SENTENCE_LENGTH_MAX] + "..."
    return status


def _committed(key: GroupQueue, offset: int | None) -> broker_pb2.CommittedOffset:
    if offset is None:
        return broker_pb2.CommittedOffset(
            topic=key.topic,
            queue_id=key.queue_id,
            code=common_pb2.OFFSET_NOT_FOUND,
            offset=UNKNOWN_OFFSET,
        )
    return broker_pb2.CommittedOffset(
        topic=key.topic, queue_id=key.queue_id, code=common_pb2.OK, offset=offset
    )
