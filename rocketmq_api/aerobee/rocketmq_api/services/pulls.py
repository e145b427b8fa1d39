"""PullMessage and a group's offsets: for a client that reads queues by itself, without handles.

Each call names a queue, and is answered by the master of its broker.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from aerobee.access.meter import begin_poll, passed_on
from aerobee.cluster_view.methods import Method
from aerobee.cluster_view.route import TopicRoute
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.languages import language_of, traits_of
from aerobee.rocketmq_api.codes import OK, Refused
from aerobee.rocketmq_api.ports import OwnReads
from aerobee.rocketmq_api.receiving.filters import prepared, wish_of
from aerobee.rocketmq_api.receiving.messages import MessageWriter
from aerobee.rocketmq_api.resources import stored_group, stored_topic
from aerobee.rocketmq_api.rules.message_checks import TIME_MS_END
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.methods import (
    GET_OFFSET,
    PULL_MESSAGE,
    QUERY_OFFSET,
    UPDATE_OFFSET,
)
from aerobee.rocketmq_api.services.peers import Q, R
from aerobee.rocketmq_api.services.presence import Presence
from aerobee.rocketmq_api.times import milliseconds
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_ATTEMPT: Final = 1
Pulled = AsyncGenerator[service_pb2.PullMessageResponse, None]


class Pulls:
    """Of one node."""

    def __init__(
        self,
        masters: Masters[OwnReads],
        presence: Presence,
        limits: PollLimits,
        expressions: CompiledExpressions,
    ) -> None:
        self._masters = masters
        self._presence = presence
        self._limits = limits
        self._expressions = expressions

    async def pull(self, request: service_pb2.PullMessageRequest, caller: Caller) -> Pulled:
        """Status, messages and where to continue; without a message the status is
        MESSAGE_NOT_FOUND, for which a poll waits. An offset outside the queue is ILLEGAL_OFFSET,
        with the nearest one.
        """
        group = stored_group(request.group, caller.namespace)
        wanted = request.filter_expression
        wish = wish_of(wanted, await prepared([wanted], self._expressions, group))
        route, queue = await self._place(request.message_queue, caller)
        _check_offset(request.offset)
        await begin_poll(group)
        self._presence.took_part(caller, v2.PULL_CONSUMER, group)
        own = self._masters.here(queue.broker.name)
        if own is None:
            self._presence.passed_on(caller, queue.broker.name, route.topic)
            answers = self._masters.stream(
                PULL_MESSAGE, request, caller, route=route, broker_name=queue.broker.name
            )
            async with aclosing(answers):
                async for part in answers:
                    yield part
                    passed_on(group, part)
            return
        found = await own.read(
            group,
            route.topic,
            queue.id,
            request.offset,
            messages_max=min(max(request.batch_size, 1), self._limits.batch_max),
            wish=wish,
            wait_ms=self._wait_ms(request, caller),
        )
        answer = service_pb2.PullMessageResponse
        if found.is_out_of_range:
            yield answer(status=_illegal(request.offset, "the queue does not have it"))
        elif not found.records:
            status = v2.Status(code=v2.MESSAGE_NOT_FOUND, message="there is no new message")
            yield answer(status=status)
        else:
            yield answer(status=OK)
        traits = traits_of(language_of(caller.language), caller.version)
        writer = MessageWriter(queue.topic, needs_plain_body=traits.needs_plain_body)
        for record in found.records:
            part = answer()
            writer.write(part.message, record, attempt=_ATTEMPT)
            yield part
        yield answer(next_offset=found.next_offset)

    async def update(
        self, request: service_pb2.UpdateOffsetRequest, caller: Caller
    ) -> service_pb2.UpdateOffsetResponse:
        """May also go back. Raises LeaseHeld while a member reads the queue."""
        group = stored_group(request.group, caller.namespace)
        route, queue = await self._place(request.message_queue, caller)
        _check_offset(request.offset)
        own = self._masters.here(queue.broker.name)
        if own is None:
            return await self._passed(UPDATE_OFFSET, request, caller, route, queue)
        _, end = own.bounds(route.topic, queue.id)
        if request.offset > end:
            status = _illegal(request.offset, f"the queue ends at {end}")
            return service_pb2.UpdateOffsetResponse(status=status)
        await own.commit(group, route.topic, queue.id, request.offset, caller.answer_in_ms)
        return service_pb2.UpdateOffsetResponse(status=OK)

    async def get(
        self, request: service_pb2.GetOffsetRequest, caller: Caller
    ) -> service_pb2.GetOffsetResponse:
        """Raises Refused with OFFSET_NOT_FOUND."""
        group = stored_group(request.group, caller.namespace)
        route, queue = await self._place(request.message_queue, caller)
        own = self._masters.here(queue.broker.name)
        if own is None:
            return await self._passed(GET_OFFSET, request, caller, route, queue)
        offset = await own.committed(group, route.topic, queue.id)
        if offset is None:
            raise Refused(
                v2.OFFSET_NOT_FOUND,
                f"group {group} has committed nothing on queue {queue.id} of {route.topic}",
            )
        return service_pb2.GetOffsetResponse(status=OK, offset=offset)

    async def query(
        self, request: service_pb2.QueryOffsetRequest, caller: Caller
    ) -> service_pb2.QueryOffsetResponse:
        """Where the queue starts, ends, or was at a time."""
        route, queue = await self._place(request.message_queue, caller)
        policy = request.query_offset_policy
        if policy not in v2.QueryOffsetPolicy.values():
            raise Refused(v2.BAD_REQUEST, f"there is no way {policy} to find an offset")
        time_ms = milliseconds(request.timestamp)
        if policy == v2.TIMESTAMP and not (
            request.HasField("timestamp") and -TIME_MS_END <= time_ms < TIME_MS_END
        ):
            raise Refused(v2.BAD_REQUEST, "to find an offset by time, name a time")
        own = self._masters.here(queue.broker.name)
        if own is None:
            return await self._passed(QUERY_OFFSET, request, caller, route, queue)
        begin, end = own.bounds(route.topic, queue.id)
        offset = begin if policy == v2.BEGINNING else end
        if policy == v2.TIMESTAMP:
            offset = await own.offset_at(route.topic, queue.id, time_ms)
        return service_pb2.QueryOffsetResponse(status=OK, offset=offset)

    async def _passed(
        self,
        method: Method[Q, R],
        request: Q,
        caller: Caller,
        route: TopicRoute,
        queue: v2.MessageQueue,
    ) -> R:
        return await self._masters.call(
            method, request, caller, route=route, broker_name=queue.broker.name
        )

    async def _place(
        self, queue: v2.MessageQueue, caller: Caller
    ) -> tuple[TopicRoute, v2.MessageQueue]:
        topic = stored_topic(queue.topic, caller.namespace)
        route = await self._masters.route(topic)
        if queue.broker.name not in route.queues_by_broker:
            raise Refused(
                v2.BAD_REQUEST,
                f"broker {queue.broker.name[:40]!r} has no queue of topic {topic}; name the queue "
                "as the route does",
            )
        return route, queue

    def _wait_ms(self, request: service_pb2.PullMessageRequest, caller: Caller) -> int:
        limits = self._limits
        asked_ms = milliseconds(request.long_polling_timeout)
        return max(0, min(asked_ms, limits.polling_ms_max, caller.remaining_ms - limits.answer_ms))


def _check_offset(offset: int) -> None:
    if offset < 0:
        raise Refused(v2.ILLEGAL_OFFSET, f"offset {offset} is below 0")


def _illegal(offset: int, reason: str) -> v2.Status:
    return v2.Status(code=v2.ILLEGAL_OFFSET, message=f"offset {offset} is illegal: {reason}")
