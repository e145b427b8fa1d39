"""ReceiveMessage: a poll at any node gets messages of any broker of its topic.

What this node has comes first; what others have, they ring for (`rings`), and it is taken from them
by a poll that does not wait. A poll that was passed on looks only here.

The answer is a status, the messages, and the time. A client that disappears before it has
everything counts as having nothing: the broker hands the messages out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from math import ceil
from typing import Final, NamedTuple

from aerobee.access.meter import begin_poll, passed_on
from aerobee.cluster_view.route import PERM_READ, TopicRoute
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.languages import language_of, traits_of
from aerobee.rocketmq_api.codes import OK
from aerobee.rocketmq_api.ports import Groups, OwnPops, PollRequest, Received
from aerobee.rocketmq_api.receiving.filters import prepared, wish_of
from aerobee.rocketmq_api.receiving.messages import MessageWriter
from aerobee.rocketmq_api.receiving.polling import (
    batch_size,
    polling_ms,
    received_invisible_ms,
)
from aerobee.rocketmq_api.resources import stored_group, stored_topic
from aerobee.rocketmq_api.rules.group_rules import GroupRules
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.services.caller import TAKE_KEY, Caller
from aerobee.rocketmq_api.services.masters import Masters, check
from aerobee.rocketmq_api.services.methods import CHANGE_INVISIBLE_DURATION, RECEIVE_MESSAGE
from aerobee.rocketmq_api.services.presence import Presence
from aerobee.rocketmq_api.services.rings import Attempt, Far, Poll, Rings
from aerobee.rocketmq_api.times import duration, timestamp
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, NoBrokerAvailable, NotReadableTopic
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

TAKE_MS_MAX: Final = 3_000
"""A poll must not wait for long at a broker that hangs."""
GIVE_BACK_MS_MAX: Final = 3_000

_Answer = service_pb2.ReceiveMessageResponse
Write = Callable[[_Answer], Awaitable[None]]


class _Asked(NamedTuple):
    """One poll of a client."""

    request: service_pb2.ReceiveMessageRequest
    caller: Caller
    write: Write
    route: TopicRoute
    name: str
    """The broker that the client named, if possible."""
    wanted: PollRequest

    @property
    def attempt(self) -> Attempt:
        wanted = self.wanted
        return Attempt(wanted.group, wanted.client, wanted.attempt_id)


class Receives:
    """Of one node."""

    def __init__(
        self,
        masters: Masters[OwnPops],
        rings: Rings,
        presence: Presence,
        groups: Groups,
        clock: Clock,
        limits: PollLimits,
        expressions: CompiledExpressions,
    ) -> None:
        self._masters = masters
        self._rings = rings
        self._presence = presence
        self._groups = groups
        self._clock = clock
        self._limits = limits
        self._expressions = expressions
        self._polls: dict[str, set[Poll]] = {}
        """By client."""
        self._giving: set[asyncio.Task[None]] = set()

    async def receive(
        self, request: service_pb2.ReceiveMessageRequest, caller: Caller, write: Write
    ) -> None:
        """Without a message the status is MESSAGE_NOT_FOUND. Raises Refused for an invalid request;
        TopicNotFound, NotReadableTopic, Busy and others of `OwnPops.receive`."""
        group = stored_group(request.group, caller.namespace)
        topic = stored_topic(request.message_queue.topic, caller.namespace)
        filtered = request.filter_expression
        wish = wish_of(filtered, await prepared([filtered], self._expressions, group))
        invisible_ms = received_invisible_ms(request, self._limits)
        wait_ms = 0
        if not caller.is_take:
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
        # A take is for what is here, whichever broker its client named.
        named = "" if caller.is_take else request.message_queue.broker.name
        name = self._broker(named, route)
        own = self._masters.own
        if own is not None and not route.queues_by_broker.get(own.broker_name):
            own = None
        rules = await self._groups.rules(group) if own is not None else GroupRules()
        wanted = PollRequest(
            group=group,
            topic=topic,
            client=caller.client,
            messages_max=batch_size(request, self._limits),
            invisible_ms=invisible_ms,
            attempt_id=request.attempt_id,
            attempts_max=rules.attempts_max,
            wish=wish,
            wait_ms=wait_ms,
        )
        asked = _Asked(request, caller, write, route, name, wanted)
        if not caller.was_forwarded:
            with self._rings.poll(group, topic, route) as poll:
                polls = self._polls.setdefault(caller.client, set())
                polls.add(poll)
                try:
                    await self._search(asked, own, poll)
                finally:
                    polls.discard(poll)
                    if not polls:
                        self._polls.pop(caller.client, None)
        elif own is None or own.broker_name != name:
            await self._passed_on(asked, wait_ms)  # refuses
        else:
            await self._deliver(asked, own, await own.receive(wanted))

    def client_left(self, client: str) -> None:
        """Its polls end: some clients leave while they wait, and do not cancel them."""
        for poll in tuple(self._polls.get(client, ())):
            poll.is_over = True
            poll.ring()

    # ------------------------------------------------------------------------------ all brokers

    async def _search(self, asked: _Asked, own: OwnPops | None, poll: Poll) -> None:
        """Answer the poll, from whichever broker has something first."""
        wanted, clock = asked.wanted, self._clock
        deadline_s = clock.monotonic_s() + wanted.wait_ms / 1_000
        repeated = poll.far(self._rings.taken_at(asked.attempt))
        if repeated is not None and await self._take(asked, repeated):
            return
        is_here_first = own is not None and poll.is_here_first()
        while True:
            poll.looks()
            ready = poll.ready(asked.name)
            if ready and own is not None and is_here_first:
                is_here_first = False
                with suppress(AerobeeError):  # it is raised when it has been looked elsewhere
                    received = await own.receive(replace(wanted, wait_ms=0))
                    if received:
                        await self._deliver(asked, own, received)
                        return
            for far in ready:
                if await self._take(asked, far):
                    return
            left_ms = max(0, ceil((deadline_s - clock.monotonic_s()) * 1_000))
            named = poll.far(asked.name)
            if named is not None and named.line.is_old:
                await self._passed_on(asked, left_ms)
                return
            received = ()
            if own is not None:
                received = await own.receive(replace(wanted, wait_ms=left_ms), poll)
            else:
                poll.check_reachable()
                await poll.until_rung(left_ms / 1_000)
            if received or poll.is_over or not poll.is_rung or not left_ms:
                await self._deliver(asked, own, received)
                return

    async def _take(self, asked: _Asked, far: Far) -> bool:
        """Whether another broker had something, which is then the answer. What a client that has
        gone did not get is given back."""
        rings, count = far.rings, 0
        # A push consumer's broker must hear that the consumer is alive.
        self._presence.passed_on(asked.caller, far.name, asked.wanted.topic)
        answers = self._masters.stream(
            RECEIVE_MESSAGE,
            asked.request,
            asked.caller,
            route=asked.route,
            broker_name=far.name,
            timeout_ms=min(TAKE_MS_MAX, asked.caller.answer_in_ms),
            metadata=((TAKE_KEY, "1"),),
        )
        is_over = False
        handles: list[str] = []
        try:
            async with aclosing(answers):
                async for part in answers:
                    if part.HasField("status"):
                        if part.status.code == v2.MESSAGE_NOT_FOUND:
                            break
                        check(part)
                        self._rings.took(asked.attempt, far.name)
                    if part.HasField("message"):
                        count += 1
                        handles.append(part.message.system_properties.receipt_handle)
                    await asked.write(part)
                    passed_on(asked.wanted.group, part)
            is_over = True
        except AerobeeError as error:
            if count:
                raise
            is_over = True
            far.refused(error)
            return False
        finally:
            if not is_over:
                self._give_back(asked, far.name, handles)
        far.gave(rings, is_all=count >= asked.wanted.messages_max)
        return count > 0

    async def _passed_on(self, asked: _Asked, wait_ms: int) -> None:
        """The whole poll is one at the named broker: it knows no rings."""
        self._presence.passed_on(asked.caller, asked.name, asked.wanted.topic)
        answers = self._masters.stream(
            RECEIVE_MESSAGE,
            asked.request,
            asked.caller,
            route=asked.route,
            broker_name=asked.name,
            timeout_ms=wait_ms + self._limits.answer_ms,
        )
        async with aclosing(answers):
            async for part in answers:
                await asked.write(part)
                passed_on(asked.wanted.group, part)

    def _give_back(self, asked: _Asked, name: str, handles: Sequence[str]) -> None:
        """At once, by a task: the call of the client that has gone is ending."""
        if handles:
            giving = asyncio.get_running_loop().create_task(
                self._given_back(asked, name, handles), name=f"give-back:{name}"
            )
            self._giving.add(giving)
            giving.add_done_callback(self._giving.discard)

    async def _given_back(self, asked: _Asked, name: str, handles: Sequence[str]) -> None:
        with suppress(AerobeeError):  # they come again when their time is over
            for handle in handles:
                await self._masters.call(
                    CHANGE_INVISIBLE_DURATION,
                    service_pb2.ChangeInvisibleDurationRequest(
                        group=asked.request.group,
                        topic=asked.request.message_queue.topic,
                        receipt_handle=handle,
                        invisible_duration=duration(0),
                        suspend=True,
                    ),
                    asked.caller._replace(remaining_ms=GIVE_BACK_MS_MAX),
                    route=asked.route,
                    broker_name=name,
                )

    # ------------------------------------------------------------------------------ answers

    async def _deliver(
        self, asked: _Asked, own: OwnPops | None, received: Sequence[Received]
    ) -> None:
        has_all = False
        try:
            topic = asked.request.message_queue.topic
            await self._answer(received, topic, asked.caller, asked.write)
            has_all = True
        finally:
            if not has_all and own is not None:
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
        route = await self._masters.route(topic)
        if not route.perm & PERM_READ:
            raise NotReadableTopic(
                f"topic {topic} has no readable queue: its permission forbids reading"
            )
        return route

    def _broker(self, named: str, route: TopicRoute) -> str:
        """The broker that the client named, if it has queues of the topic; otherwise this one, or
        any."""
        counts = route.queues_by_broker
        here = self._masters.replica_name
        for name in (named, here, *sorted(counts)):
            if counts.get(name) and (name == here or route.master(name) is not None):
                return name
        raise NoBrokerAvailable(
            f"no broker of topic {route.topic} has a live master now: retry, or see `aerobee "
            "cluster show`"
        )
