"""SendMessage: each message to the one broker that it belongs to, and an entry for each.

Messages of this broker are stored at once; those of others go to their masters as the same call.
A request whose messages all belong to one broker fails as a whole, another one entry by entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aerobee.cluster_view.route import TopicRoute
from aerobee.rocketmq_api.clients.languages import language_of, traits_of
from aerobee.rocketmq_api.codes import (
    OK,
    Refused,
    common_status,
    error_of,
    status_of,
    topic_not_found,
)
from aerobee.rocketmq_api.resources import stored_topic
from aerobee.rocketmq_api.sending.checks import SendLimits, check_messages
from aerobee.rocketmq_api.sending.message_types import accepted_types
from aerobee.rocketmq_api.sending.records import Circumstances, take_message
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.methods import SEND_MESSAGE
from aerobee.rocketmq_api.services.placing import Place, places
from aerobee.rocketmq_api.services.ports import OwnQueues, Peers, RouteSource, Sent, Unsafe
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MqError, NoBrokerAvailable, NotMaster, TopicNotFound, Unreachable
from aerobee.store_format.recall_handle import RecallHandle, RecallHandleIllegal
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_UNSAFE: Final = {
    Unsafe.DISK: v2.MASTER_PERSISTENCE_TIMEOUT,
    Unsafe.REPLICAS: v2.SLAVE_PERSISTENCE_TIMEOUT,
    Unsafe.NO_REPLICA: v2.HA_NOT_AVAILABLE,
}

_ELECTION_MS_MAX: Final = 2_000
"""How long messages wait for a master. Clients give up after 3 s, and try three times at once."""
_AGAIN_S: Final = 0.1

_Entries = list[service_pb2.SendResultEntry]
_Parts = dict[str, list[Place]]


class Sends:
    """Of one node."""

    def __init__(
        self,
        routes: RouteSource,
        own: OwnQueues | None,
        peers: Peers,
        clock: Clock,
        limits: SendLimits,
    ) -> None:
        """`own` is None on a node without a store."""
        self._routes = routes
        self._own = own
        self._peers = peers
        self._clock = clock
        self._limits = limits
        self._turn = 0

    async def send(
        self, request: service_pb2.SendMessageRequest, caller: Caller
    ) -> service_pb2.SendMessageResponse:
        """Raises MqError if nothing of the request was stored."""
        messages = request.messages
        try:
            check_messages(messages, self._limits, self._clock.now_ms())
        except Refused as error:
            raise _readable(error, caller) from None
        topic = stored_topic(messages[0].topic, caller.namespace)
        try:
            route = await self._routes.route(topic)
        except TopicNotFound:
            raise topic_not_found(topic) from None
        self._turn += 1
        here = self._own_name()
        parts = places(messages, route, here=here, turn=self._turn)
        if len(parts) == 1:
            ((name, part),) = parts.items()
            entries = await self._part(name, part, request, route, caller)
        else:
            entries = await self._parts(parts, request, route, caller)
        return service_pb2.SendMessageResponse(
            status=common_status(entry.status for entry in entries), entries=entries
        )

    def _own_name(self) -> str:
        own = self._own
        return own.broker_name if own is not None and own.is_master() else ""

    async def _parts(
        self,
        parts: _Parts,
        request: service_pb2.SendMessageRequest,
        route: TopicRoute,
        caller: Caller,
    ) -> _Entries:
        """In the order of the request; what fails is told in its entries."""
        entries: dict[int, service_pb2.SendResultEntry] = {}

        async def send(name: str, part: list[Place]) -> None:
            try:
                found = await self._part(name, part, request, route, caller)
            except MqError as error:
                failed = service_pb2.SendResultEntry(status=status_of(error))
                found = [failed] * len(part)
            entries.update(zip((index for index, _ in part), found, strict=True))

        async with asyncio.TaskGroup() as tasks:
            for name, part in parts.items():
                tasks.create_task(send(name, part), name=f"send-to:{name}")
        return [entries[index] for index in range(len(entries))]

    async def _part(
        self,
        name: str,
        part: list[Place],
        request: service_pb2.SendMessageRequest,
        route: TopicRoute,
        caller: Caller,
    ) -> _Entries:
        """A group's messages have no other broker to go to, so they wait for a new master."""
        until_s = self._clock.monotonic_s() + min(_ELECTION_MS_MAX, caller.answer_in_ms) / 1_000
        while True:
            try:
                if self._own is not None and name == self._own_name():
                    return await self._store(self._own, part, request.messages, route, caller)
                return await self._forward(name, part, request, route, caller)
            except (NotMaster, NoBrokerAvailable, Unreachable):
                self._routes.invalidate(route.topic)
                is_late = self._clock.monotonic_s() + _AGAIN_S > until_s
                if caller.was_forwarded or is_late:
                    raise
            await asyncio.sleep(_AGAIN_S)
            route = await self._routes.route(route.topic)

    async def _store(
        self,
        own: OwnQueues,
        part: list[Place],
        messages: Sequence[v2.Message],
        route: TopicRoute,
        caller: Caller,
    ) -> _Entries:
        at = Circumstances(
            topic=route.topic,
            accepted=accepted_types(route.attributes),
            peer=own.host_of(caller.peer),
            now_ms=self._clock.now_ms(),
            store_host_ipv6=own.store_host_ipv6,
        )
        taken = [take_message(messages[index], at) for index, _ in part]
        records = [(queue_id, one.record) for (_, queue_id), one in zip(part, taken, strict=True)]
        sent = await own.send(route.topic, records, caller.answer_in_ms)
        if all(each.error is not None for each in sent):
            error = sent[0].error
            assert error is not None, "each of them has one"
            raise error
        return [
            _entry(each, one.message_id, route.topic, own.broker_name)
            for each, one in zip(sent, taken, strict=True)
        ]

    async def _forward(
        self,
        name: str,
        part: list[Place],
        request: service_pb2.SendMessageRequest,
        route: TopicRoute,
        caller: Caller,
    ) -> _Entries:
        if caller.was_forwarded:
            raise NotMaster(
                f"messages for broker {name} were passed on to another node: routes are changing; "
                "retry in a moment"
            )
        address = route.master_address(name)
        if len(part) < len(request.messages):
            request = service_pb2.SendMessageRequest(
                messages=[request.messages[index] for index, _ in part]
            )
        answer = await self._peers.call(
            address,
            SEND_MESSAGE,
            request,
            timeout_ms=caller.answer_in_ms,
            metadata=caller.passed_on(),
        )
        error = error_of(answer.status)
        if error is not None and len(answer.entries) != len(part):
            raise error
        if len(answer.entries) != len(part):
            raise MqError(f"{address} answered {len(answer.entries)} entries for {len(part)}")
        return list(answer.entries)


def _readable(error: Refused, caller: Caller) -> Refused:
    """With a code that the client knows."""
    traits = traits_of(language_of(caller.language), caller.version)
    if error.code == v2.MESSAGE_BODY_EMPTY and traits.lacks_body_empty:
        return Refused(v2.BAD_REQUEST, str(error))
    return error


def _entry(
    sent: Sent, message_id: str, topic: str, broker_name: str
) -> service_pb2.SendResultEntry:
    if sent.error is not None:
        return service_pb2.SendResultEntry(status=status_of(sent.error))
    status = OK
    if sent.unsafe is not None:
        status = v2.Status(
            code=_UNSAFE[sent.unsafe],
            message=f"the message is stored, but not safe in time because of: {sent.unsafe.value}",
        )
    return service_pb2.SendResultEntry(
        status=status,
        message_id=message_id,
        # Clients' own tests look for it in every answer.
        transaction_id=message_id,
        offset=sent.queue_offset,
        recall_handle=_recall_handle(topic, broker_name, sent.deliver_ms, message_id),
    )


def _recall_handle(topic: str, broker_name: str, deliver_ms: int, message_id: str) -> str:
    """Empty for a message that does not wait; its sender cannot call it off either if its id and
    names are too long for a handle."""
    if not deliver_ms:
        return ""
    try:
        return RecallHandle(topic, broker_name, deliver_ms, message_id).encode()
    except RecallHandleIllegal:
        return ""
