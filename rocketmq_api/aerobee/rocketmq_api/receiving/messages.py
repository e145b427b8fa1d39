"""Turns a log record into the message that a client receives, with every field that clients read.

Several clients fail on a message without digest, encoding or times, so those are always set. The
digest is MD5, the only one that all languages format identically, of the bytes in the answer.
"""

from __future__ import annotations

import hashlib
from typing import Final

from aerobee.rocketmq_api.rules.message_ids import message_id_of
from aerobee.rocketmq_api.rules.message_types import TYPE_NAMES, MessageType, type_of
from aerobee.rocketmq_api.rules.reserved import HIDDEN
from aerobee.rocketmq_api.sending.message_types import V2_TYPES
from aerobee.rocketmq_api.times import duration, set_timestamp
from aerobee.store.format.compression import BodyCorrupt, decompress, gzip, is_gzip
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record import SYSFLAG_COMPRESSED, HostAddress, Record
from apache.rocketmq.v2 import definition_pb2 as v2

PLAIN_BYTES_MAX: Final = 4 << 20
"""Larger bodies are not decompressed for delivery unless the client can read nothing else: several
languages receive no message above 4 MiB."""

_N: Final = PropertyName
_I64_DIGITS_MAX: Final = 18
_RARE: Final = TYPE_NAMES | {
    _N.TRACE_CONTEXT,
    _N.CHECK_IMMUNITY_TIME_IN_SECONDS,
    _N.DLQ_ORIGIN_TOPIC,
}
"""What `_set_rare` looks for."""


class MessageWriter:
    """Writes the messages of one answer; what they share is made once."""

    def __init__(self, topic: v2.Resource, *, needs_plain_body: bool = False) -> None:
        """`topic` as the client named it, also for messages from the group's retry topic.
        `needs_plain_body`: the client cannot read gzip; see `Language.needs_plain_body`."""
        self._topic = topic
        self._needs_plain_body = needs_plain_body
        self._hosts: dict[bytes, HostAddress] = {}
        self._texts: dict[bytes, str] = {}

    def write(
        self, message: v2.Message, record: Record, *, attempt: int, receipt_handle: str = ""
    ) -> None:
        """Fill in an empty message. `attempt` is 1 for the first delivery; the handle is empty if
        there is nothing to acknowledge, as in transaction checks and pulls.

        Raises RecordCorrupt. Takes about 10 us for a small body, and up to 5 ms for each MiB that
        is decompressed.
        """
        properties = record.properties
        body, encoding = _body(record, self._needs_plain_body)
        # Fields are set one by one, which takes half as long as one call with all of them.
        message.topic.CopyFrom(self._topic)
        message.body = body
        user = message.user_properties
        for name, value in properties.items():
            if name not in HIDDEN:
                user[name] = value
        system = message.system_properties
        if tag := properties.get(_N.TAGS):
            system.tag = tag
        if keys := properties.get(_N.KEYS):
            system.keys.extend([key for key in keys.split(" ") if key])
        system.message_id = message_id_of(record)
        system.body_digest.type = v2.MD5
        system.body_digest.checksum = digest(body)
        system.body_encoding = encoding
        system.message_type = v2.NORMAL
        set_timestamp(system.born_timestamp, record.born_timestamp_ms)
        system.born_host = properties.get(_N.BORN_HOST) or self._host(record.packed_born_host).host
        set_timestamp(system.store_timestamp, record.store_timestamp_ms)
        system.store_host = self._text(record.packed_store_host)
        system.queue_id = record.queue_id
        system.queue_offset = record.queue_offset
        system.delivery_attempt = attempt
        if receipt_handle:
            system.receipt_handle = receipt_handle
        if not _RARE.isdisjoint(properties):
            _set_rare(system, properties)

    def _host(self, packed: bytes) -> HostAddress:
        host = self._hosts.get(packed)
        if host is None:
            host = self._hosts[packed] = HostAddress.unpack(packed)
        return host

    def _text(self, packed: bytes) -> str:
        text = self._texts.get(packed)
        if text is None:
            text = self._texts[packed] = str(HostAddress.unpack(packed))
        return text


def digest(body: bytes) -> str:
    """As all clients compute and format it."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


def _body(record: Record, needs_plain: bool) -> tuple[bytes, v2.Encoding]:
    """Bytes and encoding that the client can read.

    Stored bodies may also be zlib, LZ4 or Zstandard, and clients know only gzip. A body that cannot
    be decompressed is delivered unchanged: the client finds it corrupt, and it ends as a dead
    letter.
    """
    body = record.body
    if not record.sys_flag & SYSFLAG_COMPRESSED:
        return body, v2.IDENTITY
    if is_gzip(body) and not needs_plain:
        return body, v2.GZIP
    try:
        plain = decompress(body, record.sys_flag)
    except BodyCorrupt:
        return body, v2.GZIP
    if len(plain) > PLAIN_BYTES_MAX and not needs_plain:
        return gzip(plain), v2.GZIP
    return plain, v2.IDENTITY


def _set_rare(system: v2.SystemProperties, properties: dict[str, str]) -> None:
    """The type, and other fields that only some messages have."""
    message_type = type_of(properties)
    system.message_type = V2_TYPES[message_type]
    if group := properties.get(_N.SHARDING_KEY):
        system.message_group = group
    if context := properties.get(_N.TRACE_CONTEXT):
        system.trace_context = context
    if lite_topic := properties.get(_N.LITE_TOPIC):
        system.lite_topic = lite_topic
    deliver_ms = _number(properties, _N.TIMER_DELIVER_MS)
    if deliver_ms is not None and message_type is MessageType.DELAY:
        set_timestamp(system.delivery_timestamp, deliver_ms)
    seconds = _number(properties, _N.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if seconds is not None:
        system.orphaned_transaction_recovery_duration.CopyFrom(duration(seconds * 1_000))
    priority = _number(properties, _N.PRIORITY)
    if priority is not None and priority < 1 << 31:
        system.priority = priority
    topic = properties.get(_N.DLQ_ORIGIN_TOPIC)
    message_id = properties.get(_N.DLQ_ORIGIN_MESSAGE_ID)
    if topic and message_id:
        system.dead_letter_queue.topic = topic
        system.dead_letter_queue.message_id = message_id


def _number(properties: dict[str, str], name: str) -> int | None:
    """A property that other software may have written, as a non-negative number."""
    text = properties.get(name, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _I64_DIGITS_MAX
    return int(text) if is_number else None
