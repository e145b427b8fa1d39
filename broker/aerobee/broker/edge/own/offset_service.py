"""OffsetService: committed offsets, bounds, search by time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableSequence, Sequence
from typing import Any, TypeVar

import grpc

from aerobee.access.resources import SEEING, topic_need
from aerobee.access.running import require_seen, topics_seen
from aerobee.broker.edge.own.convert import status_of
from aerobee.broker.edge.own.retry_convert import failure_of, sent_back_message
from aerobee.broker.groups.ownership import Claim
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.retries.dead_letters import DeadLetters
from aerobee.broker.retries.send_backs import SendBacks, Sender, SentBackMessage
from aerobee.broker.sending.guard import Guard
from aerobee.domain import names
from aerobee.runtime.errors import (
    AerobeeError,
    DeadlineExceeded,
    InvalidArgument,
    QueueNotFound,
    TopicNotFound,
)
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.store.format.retry_records import RESENDS_MAX
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

Context = grpc.aio.ServicerContext[Any, Any]
E = TypeVar("E")

UNKNOWN_OFFSET = -1
CONFIRM_TIMEOUT_S = 5.0
"""How long a commit waits for disk and replicas, unless its caller waits less."""
CALLER_MARGIN_S = 0.1
REMOVED_LISTED_MAX = 10_000
"""How many removed offsets an answer lists; its count includes all."""
SENTENCE_LENGTH_MAX = 300
"""The length of one entry's result."""

Statuses = MutableSequence[common_pb2.Status]
Outcome = AerobeeError | asyncio.Future[None] | None
"""Of one entry: refused, waiting for confirmation, or done."""


class OffsetService(broker_pb2_grpc.OffsetServiceServicer):
    """Each entry of a request has its own result.

    An answer grows one entry at a time: building it from a whole list would copy everything in one
    turn of the loop.
    """

    def __init__(
        self,
        offsets: ConsumerOffsets,
        removal: GroupRemoval,
        guard: Guard,
        queues: QueueReader,
        send_backs: SendBacks,
        dead_letters: DeadLetters,
        turns: LoopTurns,
        *,
        is_sealed: Callable[[str], bool],
        after_reset: Callable[[], Awaitable[None]],
    ) -> None:
        """`is_sealed`: as RetiredTopics says of a topic. `after_reset` returns once the
        consequences of a reset are in effect, too."""
        self._after_reset = after_reset
        self._offsets = offsets
        self._removal = removal
        self._guard = guard
        self._queues = queues
        self._send_backs = send_backs
        self._dead_letters = dead_letters
        self._turns = turns
        self._is_sealed = is_sealed

    async def CommitOffsets(
        self, request: broker_pb2.CommitOffsetsRequest, context: Context
    ) -> broker_pb2.CommitOffsetsResponse:
        offsets, group, client_id = self._offsets, request.group, request.client_id
        if client_id:
            names.check_client_id(client_id)
        await offsets.begun_for(group)

        def commit(entry: broker_pb2.QueueOffset) -> asyncio.Future[None] | None:
            key = GroupQueue(group, entry.topic, entry.queue_id)
            if request.begins:
                return offsets.begin(key, entry.offset, client_id)
            return offsets.commit(key, entry.offset, Claim.under(entry.lease_epoch), client_id)

        response = broker_pb2.CommitOffsetsResponse()
        await _done_with_each(
            self._turns, group, request.offsets, commit, context, response.results
        )
        return response

    async def QueryOffsets(
        self, request: broker_pb2.QueryOffsetsRequest, context: Context
    ) -> broker_pb2.QueryOffsetsResponse:
        # A slave, or the next master, may know older offsets than were reported before.
        await self._offsets.acting_for(request.group)
        found: list[tuple[GroupQueue, int | None]] = []
        require_seen(topic_need(topic, SEEING) for topic in {each.topic for each in request.queues})
        async for queue in self._turns.each(request.group, request.queues):
            key = GroupQueue(request.group, queue.topic, queue.queue_id)
            found.append((key, self._offsets.query(key)))
        if not request.queues:
            sees = topics_seen()
            of_group = self._offsets.of_group(request.group)
            found.extend(each for each in of_group if sees(each[0].topic))
        # The term may have ended during the turns.
        self._offsets.check_master()
        response = broker_pb2.QueryOffsetsResponse()
        async for key, offset in self._turns.each(request.group, found):
            response.offsets.append(_committed(key, offset))
        return response

    async def QueryBounds(
        self, request: broker_pb2.QueryBoundsRequest, context: Context
    ) -> broker_pb2.QueryBoundsResponse:
        response = broker_pb2.QueryBoundsResponse()
        async for queue in self._turns.each(LISTINGS, request.queues):
            response.bounds.append(await self._bounds(queue.topic, queue.queue_id))
        return response

    async def _bounds(self, topic: str, queue_id: int) -> broker_pb2.QueueBounds:
        try:
            self._guard.check_queue(topic, queue_id)
        except AerobeeError as error:
            return broker_pb2.QueueBounds(status=_short(error), topic=topic, queue_id=queue_id)
        last_ms = await self._queues.last_store_timestamp_ms(topic, queue_id)
        is_sealed = self._is_sealed(topic)
        min_offset, max_offset = self._queues.bounds(topic, queue_id)
        return broker_pb2.QueueBounds(
            status=status_of(None),
            topic=topic,
            queue_id=queue_id,
            min_offset=min_offset,
            max_offset=max_offset,
            last_store_timestamp_ms=last_ms,
            retired=is_sealed,
        )

    async def SearchByTimestamp(
        self, request: broker_pb2.SearchByTimestampRequest, context: Context
    ) -> broker_pb2.SearchByTimestampResponse:
        upper = request.boundary == broker_pb2.UPPER
        response = broker_pb2.SearchByTimestampResponse()
        async for queue in self._turns.each(LISTINGS, request.queues):
            topic, queue_id = queue.topic, queue.queue_id
            try:
                self._guard.check_queue(topic, queue_id)
            except (TopicNotFound, QueueNotFound):
                found = UNKNOWN_OFFSET
            else:
                found = await self._queues.search_by_time(
                    topic, queue_id, request.timestamp_ms, upper=upper
                )
            response.offsets.append(found)
        return response

    async def ResetOffsets(
        self, request: broker_pb2.ResetOffsetsRequest, context: Context
    ) -> broker_pb2.ResetOffsetsResponse:
        offsets, group = self._offsets, request.group
        await offsets.begun_for(group)

        def reset(entry: broker_pb2.QueueOffset) -> asyncio.Future[None]:
            return offsets.reset(GroupQueue(group, entry.topic, entry.queue_id), entry.offset)

        response = broker_pb2.ResetOffsetsResponse()
        await _done_with_each(self._turns, group, request.offsets, reset, context, response.results)
        try:
            async with asyncio.timeout(timeout_s(context, CONFIRM_TIMEOUT_S)) as scope:
                await self._after_reset()
        except TimeoutError:
            if not scope.expired():
                raise
            raise DeadlineExceeded(
                "the offsets are reset, but clients that use POP may continue where they are; "
                "reset them again"
            ) from None
        return response

    async def DeleteOffsets(
        self, request: broker_pb2.DeleteOffsetsRequest, context: Context
    ) -> broker_pb2.DeleteOffsetsResponse:
        names.check_topic_name(request.topic)
        for queue_id in request.queue_ids:
            if queue_id < 0:
                raise InvalidArgument(f"queue id {queue_id} is negative; use 0 or more")
        await self._offsets.acting_for(request.group)
        removed = await self._removal.delete_offsets(
            request.group,
            request.topic,
            request.queue_ids,
            timeout_s=timeout_s(context, CONFIRM_TIMEOUT_S),
        )
        return broker_pb2.DeleteOffsetsResponse(
            removed_count=len(removed.offsets), removed=committed_offsets(removed.offsets)
        )

    async def SendBack(
        self, request: broker_pb2.SendBackRequest, context: Context
    ) -> broker_pb2.SendBackResponse:
        if request.client_id:
            names.check_client_id(request.client_id)
        await self._offsets.acting_for(request.group)
        sender = Sender(
            GroupQueue(request.group, request.topic, request.queue_id),
            Claim.under(request.lease_epoch),
            request.client_id,
            request.retries_max if request.HasField("retries_max") else None,
            request.attempts,
        )
        failures = [failure_of(each) for each in request.messages]
        return await _sent_back(await self._send_backs.send_back(sender, failures), context)

    async def SettleDeadLetters(
        self, request: broker_pb2.SettleDeadLettersRequest, context: Context
    ) -> broker_pb2.SendBackResponse:
        await self._offsets.acting_for(request.group)
        letters, offsets = self._dead_letters, list(request.offsets)
        if request.HasField("resend"):
            answers = await letters.resend(
                request.group,
                offsets,
                topic=request.resend.topic,
                resends_max=request.resend.resends_max or RESENDS_MAX,
            )
        else:
            answers = letters.drop(request.group, offsets)
        return await _sent_back(answers, context)


async def _sent_back(
    answers: Sequence[SentBackMessage], context: Context
) -> broker_pb2.SendBackResponse:
    """The results, once all is confirmed or the time is up."""
    waiting = {answer.done for answer in answers if answer.done is not None}
    if waiting:
        await asyncio.wait(waiting, timeout=timeout_s(context, CONFIRM_TIMEOUT_S))
    response = broker_pb2.SendBackResponse()
    for answer in answers:
        status = _status(answer.done if answer.error is None else answer.error)
        response.results.append(sent_back_message(status, answer))
    return response


async def _done_with_each(
    turns: LoopTurns,
    asker: str,
    entries: Sequence[E],
    do: Callable[[E], asyncio.Future[None] | None],
    context: Context,
    results: Statuses,
) -> None:
    """Appends each entry's result, once everything is confirmed or the time is up."""

    def outcome_of(entry: E) -> Outcome:
        try:
            return do(entry)
        except AerobeeError as error:
            return error.with_traceback(None)

    outcomes = await turns.map(asker, entries, outcome_of)
    waiting = {outcome for outcome in outcomes if isinstance(outcome, asyncio.Future)}
    if waiting:
        await asyncio.wait(waiting, timeout=timeout_s(context, CONFIRM_TIMEOUT_S))
    results.extend(await turns.map(asker, outcomes, _status))


def timeout_s(context: Context, longest_s: float) -> float:
    """How long a call may wait: as long as its caller, and at most `longest_s`."""
    remaining_s = context.time_remaining()
    if remaining_s is None:
        return longest_s
    return max(0.0, min(longest_s, remaining_s - CALLER_MARGIN_S))


def committed_offsets(offsets: list[tuple[GroupQueue, int]]) -> list[broker_pb2.CommittedOffset]:
    """The first REMOVED_LISTED_MAX of them that the caller may see, sorted by queue."""
    sees = topics_seen()
    shown = sorted(each for each in offsets if sees(each[0].topic))
    return [_committed(key, offset) for key, offset in shown[:REMOVED_LISTED_MAX]]


def _status(outcome: Outcome) -> common_pb2.Status:
    if not isinstance(outcome, asyncio.Future):
        return _short(outcome)
    if not outcome.done():
        return status_of(
            DeadlineExceeded(
                "the change is stored, but disk and replicas did not confirm it in time; repeat "
                "the request"
            )
        )
    error = outcome.exception()
    if error is not None and not isinstance(error, AerobeeError):
        raise error
    return _short(error)


def _short(error: AerobeeError | None) -> common_pb2.Status:
    """Short enough that an answer fits as many results as a request may have entries."""
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
