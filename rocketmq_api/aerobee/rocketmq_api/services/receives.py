"""ReceiveMessage: a poll at the broker that the client named, answered there or passed on.

The answer is a status, the messages, and the time. A client that disappears before it has
everything counts as having nothing: the broker hands the messages out again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from aerobee.access.meter import begin_poll, passed_on
from aerobee.cluster_view.route import PERM_READ, TopicRoute
from aerobee.rocketmq_api.clients.languages import language_of, traits_of
from aerobee.rocketmq_api.codes import OK, topic_not_found
from aerobee.rocketmq_api.receiving.filters import prepared, wish_of
from aerobee.rocketmq_api.receiving.messages import MessageWriter
from aerobee.rocketmq_api.receiving.polling import (
    PollLimits,
    batch_size,
    polling_ms,
    received_invisible_ms,
)
from aerobee.rocketmq_api.resources import stored_group, stored_topic
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.methods import RECEIVE_MESSAGE
from aerobee.rocketmq_api.services.passing import Passing
from aerobee.rocketmq_api.services.ports import Groups, OwnPops, Received, RouteSource, Wanted
from aerobee.rocketmq_api.services.presence import Presence
from aerobee.rocketmq_api.times import timestamp
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NoBrokerAvailable, NotReadableTopic, TopicNotFound
from aerobee.sql_filter.expression import CompiledExpressions
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_Answer = service_pb2.ReceiveMessageResponse
Write = Callable[[_Answer], Awaitable[None]]


class Receives:
    """Of one node."""

    def __init__(
        self,
        routes: RouteSource,
        own: OwnPops | None,
        passing: Passing,
        presence: Presence,
        groups: Groups,
        clock: Clock,
        limits: PollLimits,
        expressions: CompiledExpressions,
    ) -> None:
        """`own` is None on a node without a store."""
        self._routes = routes
        self._own = own
        self._passing = passing
        self._presence = presence
        self._groups = groups
        self._clock = clock
        self._limits = limits
        self._expressions = expressions

    async def receive(
        self, request: service_pb2.ReceiveMessageRequest, caller: Caller, write: Write
    ) -> None:
        """Without a message the status is MESSAGE_NOT_FOUND. Raises Refused for an invalid request;
        TopicNotFound, NotReadableTopic, Busy and others of `OwnPops.receive`."""
        group = stored_group(request.group, caller.namespace)
        topic = stored_topic(request.message_queue.topic, caller.namespace)
        wanted = request.filter_expression
        wish = wish_of(wanted, await prepared([wanted], self._expressions, group))
        invisible_ms = received_invisible_ms(request, self._limits)
        wait_ms = polling_ms(
            request,
            self._limits,
            remaining_ms=caller.remaining_ms,
            client_version=caller.version,
        )
        kind = v2.PUSH_CONSUMER if request.auto_renew else v2.SIMPLE_CONSUMER
        await begin_poll(group)
        self._presence.took_part(caller, kind, group)
        route = await self._route(topic)
        name = self._broker(request.message_queue.broker.name, route)
        own = self._own
        if own is None or own.broker_name != name or not own.is_master():
            self._presence.passed_on(caller, name, topic)
            answers = self._passing.stream(
                RECEIVE_MESSAGE, request, caller, route=route, broker_name=name
            )
            async with aclosing(answers):
                async for part in answers:
                    await write(part)
                    passed_on(group, part)
            return
        rules = await self._groups.rules(group)
        received = await own.receive(
            Wanted(
                group=group,
                topic=topic,
                client_id=caller.client_id,
                messages_max=batch_size(request, self._limits),
                invisible_ms=invisible_ms,
                attempt_id=request.attempt_id,
                attempts_max=rules.attempts_max,
                wish=wish,
                wait_ms=wait_ms,
            )
        )
        has_all = False
        try:
            await self._answer(received, request.message_queue.topic, caller, write)
            has_all = True
        finally:
            if not has_all:
                own.give_back(received)

    async def _answer(
        self, received: Sequence[Received], topic: v2.Resource, caller: Caller, write: Write
    ) -> None:
        status = OK
        if not received:
            status = v2.Status(code=v2.MESSAGE_NOT_FOUND, message="there is no new message")
        await write(_Answer(status=status))
        traits = traits_of(language_of(caller.language), caller.version)
        writer = MessageWriter(topic, needs_plain_body=traits.needs_plain_body)
        for handle, attempt, record in received:
            part = _Answer()
            writer.write(part.message, record, attempt=attempt, receipt_handle=handle.encode())
            await write(part)
        await write(_Answer(delivery_timestamp=timestamp(self._clock.now_ms())))

    async def _route(self, topic: str) -> TopicRoute:
        try:
            route = await self._routes.route(topic)
        except TopicNotFound:
            raise topic_not_found(topic) from None
        if not route.perm & PERM_READ:
            raise NotReadableTopic(
                f"topic {topic} has no readable queue: its permission forbids reading"
            )
        return route

    def _broker(self, named: str, route: TopicRoute) -> str:
        """The broker that the client named, if it has queues of the topic; otherwise this one, or
        any."""
        counts = route.queues_by_broker
        here = "" if self._own is None else self._own.broker_name
        for name in (named, here, *sorted(counts)):
            if counts.get(name) and (name == here or route.master(name) is not None):
                return name
        raise NoBrokerAvailable(
            f"no broker of topic {route.topic} has a live master now: retry, or see `aerobee "
            "cluster show`"
        )
