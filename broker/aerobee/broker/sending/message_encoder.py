"""Messages that clients pass in parts, encoded here as records, for the simplest clients.

Owns: the unique ids that the broker assigns, and the round robin over each topic's queues.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aerobee.broker.sending.guard import Guard
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument, MessageIllegal, PropertiesTooLarge
from aerobee.store.format.message_content import content_of
from aerobee.store.format.message_id import UniqueIdGenerator, offset_message_id
from aerobee.store.format.properties import (
    PropertyIllegal,
    PropertyName,
    encode_properties,
)
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import PROPERTIES_BYTES_MAX, HostAddress, RecordIllegal
from aerobee.store.format.record_view import Record
from aerobee.store.format.reserved_properties import check_property

KEY_SEPARATOR = " "


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message in parts. `queue_id` -1: one of the topic's queues in turn."""

    topic: str
    queue_id: int
    body: bytes
    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    timeout_ms: int = 0


class PlainBatch(NamedTuple):
    """A batch as Ingest takes it, with records that were encoded here."""

    topic: str
    queue_id: int
    records: bytes
    record_sizes: Sequence[int]
    timeout_ms: int
    skip_wait: bool = False
    sequence: int = 0
    producer_id: int = 0
    producer_sequence: int = 0
    is_half: bool = False


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """The batch and the unique id of its message."""

    batch: PlainBatch
    message_id: str


class MessageEncoder:
    """Makes batches of one message."""

    def __init__(
        self,
        guard: Guard,
        clock: Clock,
        chance: random.Random,
        store_host: HostAddress,
        *,
        process_id: int,
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._store_host = store_host
        self._ids = UniqueIdGenerator(chance, ip=store_host.ip, process_id=process_id)
        self._turn = chance.randrange(1 << 16)

    def encode(self, message: OutgoingMessage, born_host: HostAddress) -> EncodedMessage:
        """Encode a message for one queue, with a new unique id unless it has one.

        Raises:
            MessageIllegal: no body, or properties that cannot be stored or may not be sent.
            PropertiesTooLarge: above 32,767 bytes.
            InvalidArgument: a key that is empty or has a space.
        """
        if not message.body:
            raise MessageIllegal("the message has no body; send at least one byte")
        now_ms = self._clock.now_ms()
        properties = _properties(message)
        message_id = properties.setdefault(PropertyName.UNIQ_KEY, self._ids.next_id(now_ms))
        try:
            for name, value in properties.items():
                check_property(name, value)
            encoded_properties = encode_properties(properties)
        except PropertyIllegal as error:
            raise MessageIllegal(str(error)) from error
        if len(encoded_properties) > PROPERTIES_BYTES_MAX:
            raise PropertiesTooLarge(
                f"the properties take {len(encoded_properties)} bytes; at most "
                f"{PROPERTIES_BYTES_MAX} are allowed: put large values into the body"
            )
        try:
            record = encode_record(
                topic=message.topic.encode(),
                body=message.body,
                properties=encoded_properties,
                flag=message.flag,
                born_timestamp_ms=now_ms,
                born_host=born_host,
                store_host_ipv6=self._store_host.is_ipv6,
            )
        except RecordIllegal as illegal:
            raise MessageIllegal(str(illegal)) from illegal
        batch = PlainBatch(
            topic=message.topic,
            queue_id=self._queue(message),
            records=record,
            record_sizes=(len(record),),
            timeout_ms=message.timeout_ms,
            skip_wait=properties.get(PropertyName.WAIT, "true").lower() == "false",
        )
        return EncodedMessage(batch, message_id)

    def offset_message_id(self, physical_offset: int) -> str:
        """The id that identifies a record by broker and log position."""
        return offset_message_id(self._store_host, physical_offset)

    def recall_handle(self, message: EncodedMessage, deliver_ms: int) -> str:
        """Identifies a message that waits here until `deliver_ms`."""
        handle = RecallHandle(
            message.batch.topic,
            self._guard.broker_name,
            deliver_ms,
            message.message_id,
            content_of(Record(message.batch.records)),
        )
        return handle.encode()

    def _queue(self, message: OutgoingMessage) -> int:
        if message.queue_id != -1:
            return message.queue_id
        queues = self._guard.write_queues(message.topic)
        self._turn += 1
        return self._turn % queues if queues else 0


def _properties(message: OutgoingMessage) -> dict[str, str]:
    properties = {name: value for name, value in message.properties.items() if value}
    if message.tag:
        properties[PropertyName.TAGS] = message.tag
    if message.keys:
        for number, key in enumerate(message.keys, 1):
            if not key or KEY_SEPARATOR in key:
                raise InvalidArgument(
                    f"key {number} of {len(message.keys)} of the message must not be empty or "
                    "contain spaces"
                )
        properties[PropertyName.KEYS] = KEY_SEPARATOR.join(message.keys)
    return properties
