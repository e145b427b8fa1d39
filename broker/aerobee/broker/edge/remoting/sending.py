"""Sends of remoting clients: single, in batches, in order, half of a transaction, and for later."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from aerobee.access.meter import PATIENCE_S, Meter, sending_meter
from aerobee.access.quota import Traffic
from aerobee.broker.edge.remoting.cluster import Cluster
from aerobee.broker.edge.remoting.dead_letters import RemotingDeadLetters, attempts_if_given_up
from aerobee.broker.edge.rocketmq.own_queues import OwnQueues
from aerobee.broker.groups.self_assigned import SelfAssigned
from aerobee.broker.sending.guard import Guard
from aerobee.domain.names import check_topic_name
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_api.ports import QueueRecords, Sent, Unsafe
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Ask, Code, refusal
from aerobee.rocketmq_remoting.dispatch import failure
from aerobee.rocketmq_remoting.heartbeats import Subscribed
from aerobee.rocketmq_remoting.routes import DEFAULT_TOPIC
from aerobee.rocketmq_remoting.sends import REGION, Message, Send, send_fields
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, MessageIllegal, TopicNotFound
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.message_content import content_of
from aerobee.store.format.message_id import UniqueIdGenerator, offset_message_ids
from aerobee.store.format.properties import VALUE_END
from aerobee.store.format.recall_handle import RecallHandle, RecallHandleIllegal
from aerobee.store.format.record import Record
from aerobee.store.format.record_encode import encode_batch_parts
from aerobee.store.format.record_layout import (
    SYSFLAG_INNER_BATCH,
    SYSFLAG_NEED_UNWRAP,
    SYSFLAG_TRANSACTION_MASK,
    HostAddress,
    RecordIllegal,
)
from aerobee.store.format.reserved_properties import may_be_illegal, without_received

_SAFE_MS: Final = 2_500
"""How long a message may take to be as safe as promised: clients give up after 3 s."""
_UNSAFE: Final = {
    Unsafe.DISK: Code.FLUSH_DISK_TIMEOUT,
    Unsafe.REPLICAS: Code.FLUSH_SLAVE_TIMEOUT,
    Unsafe.NO_REPLICA: Code.SLAVE_NOT_AVAILABLE,
}
_FLAG: Final = attrgetter("flag")
_INNER: Final = SYSFLAG_INNER_BATCH | SYSFLAG_NEED_UNWRAP


class _Sending(NamedTuple):
    """What one request sends."""

    topic: str
    queue_id: int
    messages: Sequence[Message]
    parts: list[bytes]
    """The records when joined."""
    sizes: list[int]


class Sends:
    """On the loop."""

    def __init__(
        self,
        queues: OwnQueues,
        members: SelfAssigned[Subscribed],
        dead_letters: RemotingDeadLetters,
        cluster: Cluster,
        guard: Guard,
        clock: Clock,
        chance: random.Random,
        store_host: HostAddress,
        *,
        process_id: int,
    ) -> None:
        self._queues = queues
        self._members = members
        self._dead_letters = dead_letters
        self._cluster = cluster
        self._guard = guard
        self._clock = clock
        self._store_host = store_host
        self._ids = UniqueIdGenerator(chance, ip=store_host.ip, process_id=process_id)
        self._turn = chance.randrange(1 << 16)

    def send(
        self, connection: Connection, request: Command
    ) -> Coroutine[Any, Any, Command | None] | None:
        """Codes 10, 310 and 320. Raises AerobeeError: nothing was stored."""
        meter = sending_meter()
        if meter is not None:
            size = len(request.body) + sum(map(len, request.fields.values()))
            wait_s = meter.spend(Traffic.SEND, size, patience_s=PATIENCE_S)
            if wait_s:
                return self._send_later(meter, wait_s, connection, request)
        return self._send(connection, request)

    async def _send_later(
        self, meter: Meter, wait_s: float, connection: Connection, request: Command
    ) -> Command | None:
        await meter.pause(wait_s)
        later = self._send(connection, request)
        return None if later is None else await later

    def _send(
        self, connection: Connection, request: Command
    ) -> Coroutine[Any, Any, Command | None] | None:
        fields = send_fields(request)
        send = Send.of(fields)
        if send.topic.startswith(RETRY_PREFIX) and (attempts := attempts_if_given_up(fields)):
            group = send.topic.removeprefix(RETRY_PREFIX)
            member = self._members.of_connection(group, connection)
            if member is not None:
                return self._dead_letters.bury(
                    request,
                    send,
                    self._host_of(connection),
                    group=group,
                    client_id=member.client_id,
                    attempts=attempts,
                )
        if fields.get("defaultTopic") == DEFAULT_TOPIC and not self._guard.knows(send.topic):
            return self._send_to_new(connection, request, send)
        self._store(connection, request, send)
        return None

    async def _send_to_new(
        self, connection: Connection, request: Command, send: Send
    ) -> Command | None:
        """The client had no route, and sends where a topic may begin."""
        check_topic_name(send.topic)
        await self._cluster.create_missing(connection, send.topic)
        queues = self._guard.write_queues(send.topic)
        if queues and send.queue_id >= queues:
            send = replace(send, queue_id=send.queue_id % queues)
        self._store(connection, request, send)
        return None

    def _store(self, connection: Connection, request: Command, send: Send) -> None:
        sending = self._read(connection, send, request)
        part = QueueRecords(
            sending.queue_id, sending.parts, sending.messages[0].is_half, sending.sizes
        )

        def told(sent: list[Sent] | Exception) -> None:
            try:
                answer = self._answer(request, sending, sent)
            except Exception as error:
                answer = failure(request, error)
            if not request.is_one_way:
                connection.reply(answer)
            connection.finished()

        connection.begun()
        self._queues.send_then(sending.topic, [part], _SAFE_MS, told)

    async def recall(self, connection: Connection, request: Command) -> Command:
        """Code 370. Raises AerobeeError."""
        handle = read.text(request.fields, "recallHandle")
        try:
            named = RecallHandle.decode(handle)
        except RecallHandleIllegal as error:
            raise MessageIllegal(str(error)) from None
        if (topic := request.fields.get("topic", named.topic)) != named.topic:
            raise MessageIllegal(f"the handle is of a message of {named.topic}, not of {topic}")
        await self._queues.recall(handle)
        return request.answer(fields={"msgId": named.unique_key})

    # ------------------------------------------------------------------------------ reading

    def _read(self, connection: Connection, send: Send, request: Command) -> _Sending:
        sys_flag = send.sys_flag & ~SYSFLAG_TRANSACTION_MASK
        if sys_flag & _INNER:
            raise MessageIllegal(
                "its system flag says that it holds several messages, which this broker does not "
                "unwrap; send a batch instead"
            )
        is_batch = request.code == Ask.SEND_BATCH_MESSAGE or send.is_batch
        messages = send.messages(
            request.body, is_batch=is_batch, new_id=self._new_id, cluster=self._cluster.name
        )
        if len(messages) > 1 and any(each.is_half for each in messages):
            raise MessageIllegal("messages of transactions cannot be sent in a batch")
        host = self._host_of(connection)
        topic = send.topic.encode("utf-8", "replace")
        born_ms = send.born_ms if send.born_ms > 0 else self._clock.now_ms()
        try:
            parts, sizes = self._records(messages, topic, born_ms, sys_flag, host)
        except RecordIllegal as error:
            raise MessageIllegal(str(error)) from None
        return _Sending(send.topic, self._queue(send), messages, parts, sizes)

    def _records(
        self,
        messages: Sequence[Message],
        topic: bytes,
        born_ms: int,
        sys_flag: int,
        host: HostAddress,
    ) -> tuple[list[bytes], list[int]]:
        """Parts of records, and the size of each record. Raises RecordIllegal."""
        parts: list[bytes] = []
        sizes: list[int] = []
        for flag, alike in groupby(messages, key=_FLAG):
            bodies, properties = [], []
            for each in alike:
                bodies.append(each.body)
                properties.append(each.properties)
            if may_be_illegal(VALUE_END + b"".join(properties)):
                properties = list(map(without_received, properties))
            more_parts, more_sizes = encode_batch_parts(
                topic=topic,
                bodies=bodies,
                properties=properties,
                flag=flag,
                sys_flags=sys_flag,
                born_timestamp_ms=born_ms,
                born_host=host,
                store_host_ipv6=self._store_host.is_ipv6,
            )
            parts += more_parts
            sizes += more_sizes
        return parts, sizes

    def _host_of(self, connection: Connection) -> HostAddress:
        family = 6 if connection.peer.startswith("[") else 4
        return self._queues.host_of(f"ipv{family}:{connection.peer}")

    def _queue(self, send: Send) -> int:
        if send.queue_id >= 0:
            return send.queue_id
        count = self._guard.write_queues(send.topic)
        self._turn += 1
        return self._turn % count if count else 0

    def _new_id(self) -> str:
        return self._ids.next_id(self._clock.now_ms())

    # ------------------------------------------------------------------------------ answering

    def _answer(
        self, request: Command, sending: _Sending, result: list[Sent] | Exception
    ) -> Command:
        if isinstance(result, Exception):
            if not isinstance(result, AerobeeError):
                raise result
            return refusal(request, result)
        (sent,) = result
        if sent.error is not None:
            error = sent.error
            if isinstance(error, TopicNotFound):
                error = TopicNotFound(f"No topic route info for this topic: {error}")
            return refusal(request, error)
        ids = offset_message_ids(self._store_host, sent.physical_offset, sending.sizes)
        first = sending.messages[0]
        fields = {
            "msgId": ",".join(ids),
            "queueId": str(sending.queue_id),
            "queueOffset": str(sent.queue_offset),
            "transactionId": sent.transaction_id or first.message_id,
            "MSG_REGION": REGION,
            "TRACE_ON": "true",
        }
        if sent.deliver_ms and len(sending.messages) == 1:
            handle = self._recall_handle(sending, sent.deliver_ms)
            if handle:
                fields["recallHandle"] = handle
        code = Code.SUCCESS if sent.unsafe is None else _UNSAFE[sent.unsafe]
        return request.answer(code, fields)

    def _recall_handle(self, sending: _Sending, deliver_ms: int) -> str:
        content = content_of(Record(b"".join(sending.parts)))
        try:
            return RecallHandle(
                sending.topic,
                self._guard.broker_name,
                deliver_ms,
                sending.messages[0].message_id,
                content,
            ).encode()
        except RecallHandleIllegal:
            return ""
