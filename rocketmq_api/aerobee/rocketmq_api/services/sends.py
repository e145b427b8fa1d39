"""SendMessage: each message goes to the one broker that it belongs to, and gets an entry in the
answer.

Messages for this broker are stored at once; those for others go to their masters as the same call.
A request whose messages all belong to one broker fails as a whole, any other entry by entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import Final

from aerobee.access.meter import PATIENCE_S, sending_meter
from aerobee.access.quota import Traffic
from aerobee.cluster_view.route import TopicRoute
from aerobee.rocketmq_api.clients.languages import language_of, traits_of
from aerobee.rocketmq_api.codes import (
    OK,
    common_status,
    error_of,
    status_of,
)
from aerobee.rocketmq_api.ports import OwnQueues, QueueRecords, Sent, Unsafe
from aerobee.rocketmq_api.resources import stored_topic
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.rules.message_types import MessageType, accepted_types
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.rocketmq_api.sending.checks import check_message, check_request
from aerobee.rocketmq_api.sending.records import Circumstances, Taken, take_message
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.methods import SEND_MESSAGE
from aerobee.rocketmq_api.services.placing import Place, places
from aerobee.rocketmq_api.services.questions import Questions
from aerobee.rpc.call_border import Reply
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, NoBrokerAvailable, NotMaster, Unreachable
from aerobee.runtime.task_groups import run_all
from aerobee.store.format.recall_handle import RecallHandle, RecallHandleIllegal
from aerobee.store.format.record_encode import EncodeRecord, record_encoder
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_UNSAFE: Final = {
    Unsafe.DISK: v2.MASTER_PERSISTENCE_TIMEOUT,
    Unsafe.REPLICAS: v2.SLAVE_PERSISTENCE_TIMEOUT,
    Unsafe.NO_REPLICA: v2.HA_NOT_AVAILABLE,
}

_ELECTION_MS_MAX: Final = 2_000
"""How long messages wait for a master. Clients give up after 3 s, and try three times without a
pause."""
_AGAIN_S: Final = 0.1
_NOTHING: Final = service_pb2.SendResultEntry()
_TRANSACTION: Final = MessageType.TRANSACTION

_KEPT_MAX: Final = 1_024
_BATCH_BYTES_MAX: Final = 1 << 20
"""Larger batches gain nothing, and the log has a limit."""

_Entries = list[service_pb2.SendResultEntry]
_Parts = dict[str, list[Place]]
_Answer = service_pb2.SendMessageResponse


class Sends:
    """Of one node."""

    def __init__(
        self,
        masters: Masters[OwnQueues],
        clock: Clock,
        limits: SendLimits,
        questions: Questions,
    ) -> None:
        self._masters = masters
        self._clock = clock
        self._limits = limits
        self._questions = questions
        self._turn = 0
        self._topics: dict[tuple[str, str], str] = {}
        """Names in the store by namespace and name: checking one takes 2 us."""
        self._kept: dict[
            tuple[str, str], tuple[TopicRoute, tuple[MessageType, ...], EncodeRecord]
        ] = {}
        """By topic and peer; see `_taking`."""

    def begin(
        self, request: service_pb2.SendMessageRequest, caller: Caller, reply: Reply
    ) -> Callable[[], Awaitable[_Answer]] | None:
        """Messages that all stay here are stored and answered without a task; the returned function
        handles the others. Raises as `send`; QuotaExceeded."""
        meter = sending_meter()
        if meter is not None:
            wait_s = meter.spend(Traffic.SEND, request.ByteSize(), patience_s=PATIENCE_S)
            if wait_s:
                return partial(self._send_later, partial(meter.pause, wait_s), request, caller)
        own = self._masters.own
        if own is None:
            return partial(self.send, request, caller)
        messages = request.messages
        check_request(messages)
        route = self._masters.known(self._stored_topic(messages[0].topic, caller))
        if route is None:
            return partial(self.send, request, caller)
        here = own.broker_name
        parts = self._placed(messages, route, own, caller)
        # A new master accepts messages of transactions a moment later: wait for that.
        if parts.keys() != {here} or _are_half(messages):
            self._check(messages, caller)
            return partial(self._send, parts, request, route, caller)
        storing = self._storing(own, parts[here], messages, route, caller)

        def answer(sent: list[Sent] | Exception) -> None:
            if isinstance(sent, Exception):
                reply.refuse(sent)
                return
            try:
                reply.answer(storing.answer(sent))
            except Exception as error:
                reply.refuse(error)

        # Log lines of the answer name this call, too.
        context = copy_context()

        def told(sent: list[Sent] | Exception) -> None:
            context.run(answer, sent)

        own.send_then(route.topic, storing.parts, caller.answer_in_ms, told)
        return None

    async def _send_later(
        self,
        pause: Callable[[], Awaitable[None]],
        request: service_pb2.SendMessageRequest,
        caller: Caller,
    ) -> _Answer:
        await pause()
        return await self.send(request, caller)

    async def send(self, request: service_pb2.SendMessageRequest, caller: Caller) -> _Answer:
        """Raises AerobeeError if nothing of the request was stored."""
        messages = request.messages
        check_request(messages)
        topic = self._stored_topic(messages[0].topic, caller)
        self._check(messages, caller)
        route = await self._masters.route(topic)
        parts = self._placed(messages, route, self._masters.own, caller)
        return await self._send(parts, request, route, caller)

    def _check(self, messages: Sequence[v2.Message], caller: Caller) -> None:
        """Before any of them is stored anywhere. Raises Refused."""
        now_ms = self._clock.now_ms()
        try:
            for message in messages:
                check_message(message, self._limits, now_ms)
        except Refused as error:
            raise _readable(error, caller) from None

    def _stored_topic(self, topic: v2.Resource, caller: Caller) -> str:
        """The topic's name in the store, from memory if it was asked for before. Raises Refused."""
        said = topic.resource_namespace or caller.namespace, topic.name
        stored = self._topics.get(said)
        if stored is None:
            stored = stored_topic(topic, caller.namespace)
            if len(self._topics) >= _KEPT_MAX:
                self._topics.clear()
            self._topics[said] = stored
        return stored

    def _placed(
        self,
        messages: Sequence[v2.Message],
        route: TopicRoute,
        own: OwnQueues | None,
        caller: Caller,
    ) -> _Parts:
        if own is None or not own.is_gathering:
            self._turn += 1
        if _are_half(messages):
            self._questions.sent(caller, route.topic, messages)
        here = "" if own is None else own.broker_name
        return places(messages, route, here=here, turn=self._turn)

    async def _send(
        self,
        parts: _Parts,
        request: service_pb2.SendMessageRequest,
        route: TopicRoute,
        caller: Caller,
    ) -> _Answer:
        if len(parts) == 1:
            ((name, part),) = parts.items()
            return _answer(await self._part(name, part, request, route, caller))
        return _answer(await self._parts(parts, request, route, caller))

    async def _parts(
        self,
        parts: _Parts,
        request: service_pb2.SendMessageRequest,
        route: TopicRoute,
        caller: Caller,
    ) -> _Entries:
        """In the order of the request; failures go into the entries."""
        entries: dict[int, service_pb2.SendResultEntry] = {}

        async def send(name: str, part: list[Place]) -> None:
            try:
                found = await self._part(name, part, request, route, caller)
            except AerobeeError as error:
                failed = service_pb2.SendResultEntry(status=status_of(error))
                found = [failed] * len(part)
            entries.update(zip((index for index, _ in part), found, strict=True))

        await run_all({f"send-to:{name}": send(name, part) for name, part in parts.items()})
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
                own = self._masters.here(name)
                if own is not None:
                    storing = self._storing(own, part, request.messages, route, caller)
                    sent = own.send(route.topic, storing.parts, caller.answer_in_ms)
                    return storing.entries(await sent)
                return await self._forward(name, part, request, route, caller)
            except (NotMaster, NoBrokerAvailable, Unreachable):
                self._masters.contradicted(route.topic)
                is_late = self._clock.monotonic_s() + _AGAIN_S > until_s
                if caller.was_forwarded or is_late:
                    raise
            await asyncio.sleep(_AGAIN_S)
            route = await self._masters.route(route.topic)

    def _storing(
        self,
        own: OwnQueues,
        part: list[Place],
        messages: Sequence[v2.Message],
        route: TopicRoute,
        caller: Caller,
    ) -> _Storing:
        """The messages to store here. Raises AerobeeError for a message that may not be sent."""
        accepted, encode = self._taking(own, route, caller.peer)
        at = Circumstances(
            route.topic, accepted, encode, self._clock.now_ms(), self._limits, caller.client
        )
        storing = _Storing(route.topic, own.broker_name)
        try:
            for index, queue_id in part:
                storing.add(take_message(messages[index], at), queue_id)
        except Refused as error:
            raise _readable(error, caller) from None
        return storing

    def _taking(
        self, own: OwnQueues, route: TopicRoute, peer: str
    ) -> tuple[tuple[MessageType, ...], EncodeRecord]:
        """What the topic accepts, and the encoder of its records from this peer: made once for
        each route that a peer sends to."""
        kept = self._kept.get((route.topic, peer))
        if kept is not None and kept[0] is route:
            return kept[1], kept[2]
        accepted = accepted_types(route.attributes)
        encode = record_encoder(
            topic=route.topic.encode(),
            born_host=own.host_of(peer),
            store_host_ipv6=own.store_host_ipv6,
        )
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        self._kept[route.topic, peer] = route, accepted, encode
        return accepted, encode

    async def _forward(
        self,
        name: str,
        part: list[Place],
        request: service_pb2.SendMessageRequest,
        route: TopicRoute,
        caller: Caller,
    ) -> _Entries:
        if len(part) < len(request.messages):
            request = service_pb2.SendMessageRequest(
                messages=[request.messages[index] for index, _ in part]
            )
        answer = await self._masters.ask(
            SEND_MESSAGE, request, caller, route=route, broker_name=name
        )
        error = error_of(answer.status)
        if error is not None and len(answer.entries) != len(part):
            raise error
        if len(answer.entries) != len(part):
            raise AerobeeError(
                f"{route.master_address(name)} answered {len(answer.entries)} entries for "
                f"{len(part)}"
            )
        return list(answer.entries)


def _are_half(messages: Sequence[v2.Message]) -> bool:
    """Whether they belong to transactions."""
    return messages[0].system_properties.message_type == v2.TRANSACTION


def _readable(error: Refused, caller: Caller) -> Refused:
    """With a code that the client knows."""
    traits = traits_of(language_of(caller.language), caller.version)
    if error.reason is Reason.BODY_EMPTY and traits.lacks_body_empty:
        return Refused(Reason.MALFORMED, str(error))
    return error


class _Storing:
    """Messages of a request that are stored at this broker, grouped by queue."""

    def __init__(self, topic: str, broker_name: str) -> None:
        self.parts: list[QueueRecords] = []
        self._topic = topic
        self._broker_name = broker_name
        self._taken: list[tuple[str, str]] = []
        """The id and the content of each message."""
        self._indexes: list[list[int]] = []
        """The indexes of the messages of each part."""
        self._open: dict[int, tuple[int, int]] = {}
        """Queue id -> its last part, and that part's size in bytes."""

    def add(self, taken: Taken, queue_id: int) -> None:
        number, size = self._open.get(queue_id, (-1, 0))
        size += len(taken.record)
        has_time = taken.deliver_ms is not None
        is_half = taken.message_type is _TRANSACTION
        is_alone = has_time or is_half
        if number < 0 or is_alone or size > _BATCH_BYTES_MAX:
            number, size = len(self.parts), len(taken.record)
            self.parts.append(QueueRecords(queue_id, [], is_half))
            self._indexes.append([])
        if not is_alone:
            self._open[queue_id] = number, size
        self.parts[number].records.append(taken.record)
        self._indexes[number].append(len(self._taken))
        self._taken.append((taken.message_id, taken.content))

    def answer(self, sent: list[Sent]) -> _Answer:
        """As `entries`, for a request whose messages are all here."""
        if len(sent) > 1 or sent[0].error is not None or sent[0].unsafe or sent[0].deliver_ms:
            return _answer(self.entries(sent))
        # Usually all messages are safe in one queue: each field is set once, in place.
        ((_, queue_offset, _, _, transaction_id, _),) = sent
        answer = _Answer()
        answer.status.CopyFrom(OK)
        add = answer.entries.add
        for offset, (message_id, _) in enumerate(self._taken, queue_offset):
            entry = add()
            entry.status.CopyFrom(OK)
            entry.message_id = message_id
            entry.transaction_id = transaction_id or message_id
            entry.offset = offset
        return answer

    def entries(self, sent: list[Sent]) -> _Entries:
        """In the order of the messages. Raises AerobeeError if none was stored."""
        if all(each.error is not None for each in sent):
            error = sent[0].error
            assert error is not None, "each of them has one"
            raise error
        entries: _Entries = [_NOTHING] * len(self._taken)
        for indexes, one in zip(self._indexes, sent, strict=True):
            for offset, index in enumerate(indexes, one.queue_offset):
                entries[index] = self._entry(one, *self._taken[index], offset)
        return entries

    def _entry(
        self, sent: Sent, message_id: str, content: str, offset: int
    ) -> service_pb2.SendResultEntry:
        if sent.error is not None:
            return service_pb2.SendResultEntry(status=status_of(sent.error))
        # Clients' own tests look for the transaction's id in every answer.
        entry = service_pb2.SendResultEntry(
            message_id=message_id,
            transaction_id=sent.transaction_id or message_id,
            offset=offset,
        )
        if sent.unsafe is None:
            entry.status.CopyFrom(OK)
        else:
            entry.status.code = _UNSAFE[sent.unsafe]
            entry.status.message = (
                f"the message is stored, but not safe in time because of: {sent.unsafe.value}"
            )
        if sent.deliver_ms:
            entry.recall_handle = _recall_handle(
                self._topic, self._broker_name, sent.deliver_ms, message_id, content
            )
        return entry


def _answer(entries: _Entries) -> _Answer:
    answer = _Answer(entries=entries)
    answer.status.CopyFrom(common_status([entry.status for entry in entries]))
    return answer


def _recall_handle(
    topic: str, broker_name: str, deliver_ms: int, message_id: str, content: str
) -> str:
    """Empty for a message whose id and names are too long for a handle: its sender cannot recall
    it."""
    try:
        return RecallHandle(topic, broker_name, deliver_ms, message_id, content).encode()
    except RecallHandleIllegal:
        return ""
