"""Messages for users: what is sent, what was received, and the name of a queue.

A Message is immutable and checked when it is made, so that a mistake shows up where it was made and
not at the broker. A ReceivedMessage is a view of a stored record: nothing is decoded or
decompressed before it is used.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from isal.isal_zlib import crc32

from aerobee.client_core.schedule import (
    SCHEDULE_BYTES_MAX,
    Delay,
    DeliverAt,
    Schedule,
    schedule_of,
)
from aerobee.cluster_view.route import MessageQueue
from aerobee.domain.names import (
    NO_TARGET,
    TOPIC_LENGTH_MAX,
    check_topic_name,
    is_retry_topic,
)
from aerobee.runtime.errors import CorruptBody, MessageIllegal, NotWritableTopic, PropertiesTooLarge
from aerobee.store.format.compression import BodyCorrupt, decompress
from aerobee.store.format.message_id import offset_message_id, parse_offset_message_id
from aerobee.store.format.properties import (
    PropertyIllegal,
    PropertyName,
    encode_properties,
)
from aerobee.store.format.record import HostAddress, Record, RecordCorrupt
from aerobee.store.format.record_layout import (
    BODY_AT,
    CRC_MASK,
    SYSFLAG_COMPRESSED,
    SYSFLAG_HOSTS_MASK,
)
from aerobee.store.format.reserved_properties import allowed_of

PROPERTIES_BYTES_MAX = 32_767
UNIQUE_KEY_PROPERTY_BYTES_MAX = len(PropertyName.UNIQ_KEY) + 2 + 56
"""What the producer adds to every message: name, value of an IPv6 host, two separators."""


_CRC_FLAG_AND_BODY_LENGTH = struct.Struct(">8xi24xi44xi")
_UNUSUAL_MASK = SYSFLAG_HOSTS_MASK | SYSFLAG_COMPRESSED


class MessageId(NamedTuple):
    """Where a message is: the broker that stored it and the offset in its commit log.

    >>> MessageId.parse("0A00000500002A9F0000000040000400")
    MessageId(store_host='10.0.0.5:10911', physical_offset=1073742848)
    """

    store_host: str
    physical_offset: int

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Reads an offset message id: 32 hex digits (IPv4) or 56 (IPv6).

        Raises:
            MessageIllegal: the text is not such an id.
        """
        try:
            host, physical_offset = parse_offset_message_id(text)
        except ValueError as error:
            raise MessageIllegal(
                f"{text[:60]!r} is not an offset message id: 32 or 56 hexadecimal digits"
            ) from error
        return cls(str(host), physical_offset)

    def __str__(self) -> str:
        return offset_message_id(HostAddress.parse(self.store_host), self.physical_offset)


class Message:
    """A message to be sent. Immutable; may be sent again, to get another message id.

    Args:
        topic: where to; created on first use if the cluster's policy allows it.
        body: at least 1 byte. How large it may be is for the producer to say, by default 4 MiB.
        tag: one word by which consumers filter; no white space, no "|".
        keys: words by which the message is found later, for example an order number.
        properties: any other text by name; names to which RocketMQ gives a meaning are reserved.
        sharding_key: messages with equal keys go to the same queue, in the order of sending.
        flag: a number of the application's, 32 bit, stored as it is.
        delay: how long after it is sent it arrives; a number is seconds. At most ten years.
        deliver_at: when it arrives: a datetime with a time zone, or Unix milliseconds.
        delay_level: it arrives after the time of this delay level, from 1 on, of the broker; one
            that is too high means the highest.

    Raises:
        IllegalName: no topic can have this name.
        NotWritableTopic: it is a group's retry topic or its dead letters.
        MessageIllegal: body empty or not bytes; a name, tag, key or value that cannot be stored; a
            time that cannot be.
        PropertiesTooLarge: tag, keys and properties together exceed 32,767 bytes.

    >>> Message("orders", b"{}", tag="new", keys=["order-7"]).keys
    ('order-7',)
    >>> Message("orders", b"")
    Traceback (most recent call last):
    ...
    aerobee.errors.MessageIllegal: the body is empty: give it at least one byte
    """

    __slots__ = (
        "body",
        "encoded_properties",
        "flag",
        "keys",
        "properties",
        "schedule",
        "sharding_key",
        "tag",
        "topic",
    )

    topic: str
    body: bytes
    tag: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    sharding_key: str | None
    flag: int
    encoded_properties: bytes
    """Tag, keys, sharding key and properties as they are stored, without the unique key."""
    schedule: Schedule | None
    """When it is delivered; None: at once."""

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        *,
        tag: str | None = None,
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        flag: int = 0,
        delay: Delay | None = None,
        deliver_at: DeliverAt | None = None,
        delay_level: int | None = None,
    ) -> None:
        if type(body) is not bytes:
            body = _body_bytes(body)
        if not body:
            raise MessageIllegal("the body is empty: give it at least one byte")
        # Recognises most legal names at a fraction of the cost of the full check.
        if not (
            isinstance(topic, str)
            and topic.isascii()
            and len(topic) <= TOPIC_LENGTH_MAX
            and topic.replace("-", "_").isidentifier()
        ):
            check_topic_name(topic)
            if is_retry_topic(topic):
                raise NotWritableTopic(NO_TARGET.format(topic))
        self.topic = topic
        self.body = body
        self.tag = tag
        self.sharding_key = sharding_key
        self.flag = flag
        if delay is None and deliver_at is None and delay_level is None:
            self.schedule = None
        else:
            self.schedule = schedule_of(delay, deliver_at, delay_level)
        if flag != 0 and (not isinstance(flag, int) or not -(1 << 31) <= flag < 1 << 31):
            raise MessageIllegal(f"flag {flag!r} is not a whole number of 32 bits")
        if tag is None and not keys and not properties and sharding_key is None:
            self.keys = ()
            self.properties = {}
            self.encoded_properties = b""
        else:
            self.keys = _checked_keys(keys)
            self.properties = _as_dict(properties)
            self.encoded_properties = self._encode_properties()

    def _encode_properties(self) -> bytes:
        stored: dict[str, str] = {}
        if self.tag is not None:
            stored[PropertyName.TAGS] = _checked_tag(self.tag)
        if self.keys:
            stored[PropertyName.KEYS] = " ".join(self.keys)
        if self.sharding_key is not None:
            if not isinstance(self.sharding_key, str):
                raise MessageIllegal(
                    f"the sharding key must be text, not {_shown(self.sharding_key)}"
                )
            if not self.sharding_key:
                raise MessageIllegal("the sharding key is empty: leave it out, or give it a value")
            stored[PropertyName.SHARDING_KEY] = self.sharding_key
        for name, value in self.properties.items():
            _check_property(name, value)
            stored[name] = value
        try:
            encoded = encode_properties(stored)
        except PropertyIllegal as error:
            raise MessageIllegal(str(error)) from error
        bytes_max = PROPERTIES_BYTES_MAX - UNIQUE_KEY_PROPERTY_BYTES_MAX
        if self.schedule is not None:
            bytes_max -= SCHEDULE_BYTES_MAX
        if len(encoded) > bytes_max:
            raise PropertiesTooLarge(
                f"tag, keys and properties take {len(encoded)} bytes; at most {bytes_max} fit: "
                "move data to the body"
            )
        return encoded

    @classmethod
    def json(
        cls,
        topic: str,
        value: object,
        *,
        tag: str | None = None,
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay: Delay | None = None,
        deliver_at: DeliverAt | None = None,
    ) -> Self:
        """A message whose body is a value as JSON; `ReceivedMessage.json` reads it.

        Raises: as `Message`; MessageIllegal: the value cannot be JSON.

        >>> Message.json("orders", {"order": 7}).body
        b'{"order":7}'
        """
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            body = text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageIllegal(f"the value cannot be written as JSON: {error}") from error
        return cls(
            topic,
            body,
            tag=tag,
            keys=keys,
            properties=properties,
            sharding_key=sharding_key,
            delay=delay,
            deliver_at=deliver_at,
        )

    def _facts(self) -> tuple[object, ...]:
        return self.topic, self.body, self.encoded_properties, self.flag, self.schedule

    def __eq__(self, other: object) -> bool:
        return self._facts() == other._facts() if isinstance(other, Message) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._facts())

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, body={len(self.body)} bytes, tag={self.tag!r}, "
            f"keys={self.keys!r}, properties={dict(self.properties)!r})"
        )


class ReceivedMessage:
    """A message as received by a consumer: a lazy view of the stored record."""

    __slots__ = ("_body", "_record", "_records", "_start", "attempts_before", "in_hand", "queue")

    queue: MessageQueue
    attempts_before: int
    """How often a consumer's listener was given it before without finishing; unset until then. Use
    `reconsume_times`."""
    in_hand: tuple[object, int, int]
    """What a pull consumer remembers about it: the offsets it stands for; unset until then."""

    def __init__(self, record: Record, queue: MessageQueue) -> None:
        self._records = record.buffer
        self._start = record.start
        self._record: Record | None = record
        self.queue = queue
        self._body: bytes | None = None

    @classmethod
    def at(cls, records: bytes | bytearray | memoryview, start: int, queue: MessageQueue) -> Self:
        """The message whose record starts at `start`; the record is parsed on first use.

        For consumers that receive many records at once: bytes that are not a record are noticed
        only then, as RecordCorrupt.
        """
        message = cls.__new__(cls)
        message._records = records
        message._start = start
        message._record = None
        message.queue = queue
        message._body = None
        return message

    @property
    def record(self) -> Record:
        """The stored bytes, for access to fields that are not exposed here."""
        record = self._record
        if record is None:
            record = self._record = Record(self._records, self._start)
        return record

    @property
    def topic(self) -> str:
        return self.queue.topic

    @property
    def body(self) -> bytes:
        """The body as the producer sent it, decompressed if necessary.

        Raises:
            CorruptBody: its checksum is wrong, or it says that it is compressed and is not.
        """
        body = self._body
        if body is None:
            records, start = self._records, self._start
            if self._record is None and type(records) is bytes:
                # The usual body, uncompressed, with IPv4 hosts: read without a view of the record.
                crc, sys_flag, length = _CRC_FLAG_AND_BODY_LENGTH.unpack_from(records, start)
                if not sys_flag & _UNUSUAL_MASK:
                    body = records[start + BODY_AT : start + BODY_AT + length]
                    if len(body) == length and crc32(body) & CRC_MASK == crc:
                        self._body = body
                        return body
            record = self.record
            try:
                record.check_body_crc()
                body = self._body = decompress(record.body, record.sys_flag)
            except RecordCorrupt as error:
                raise CorruptBody(f"{self!r} was damaged since it was sent: {error}") from error
            except BodyCorrupt as error:
                raise CorruptBody(f"{self!r} cannot be decompressed: {error}") from error
        return body

    def json(self) -> Any:
        """The body, parsed as JSON.

        Raises:
            MessageIllegal: it is not JSON. CorruptBody: as `body`.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise MessageIllegal(f"the body of {self!r} is not JSON: {error}") from error

    @property
    def tag(self) -> str | None:
        return self.record.tag or None

    @property
    def keys(self) -> tuple[str, ...]:
        return self.record.keys

    @property
    def sharding_key(self) -> str | None:
        """By which its producer chose the queue; the message group of RocketMQ's clients."""
        return self.record.property_value(PropertyName.SHARDING_KEY)

    @property
    def properties(self) -> Mapping[str, str]:
        """All stored properties, including reserved names."""
        return self.record.properties

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def message_id(self) -> str:
        """The producer's id of this message; without one, the offset message id, which for a
        redelivered message is that of its first record."""
        return self.record.unique_key or self.origin_message_id

    @property
    def offset_message_id(self) -> str:
        """Where the message is; see MessageId."""
        return offset_message_id(self.record.store_host, self.record.physical_offset)

    @property
    def born_timestamp_ms(self) -> int:
        return self.record.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int:
        return self.record.store_timestamp_ms

    @property
    def origin_topic(self) -> str:
        """The topic that it was sent to: differs from `topic` if it is redelivered after a failure,
        or is a dead letter."""
        return self.record.property_value(PropertyName.RETRY_TOPIC) or self.topic

    @property
    def origin_message_id(self) -> str:
        """The `offset_message_id` that it had when it was first delivered."""
        known = self.record.property_value(PropertyName.ORIGIN_MESSAGE_ID)
        return known or self.offset_message_id

    @property
    def reconsume_times(self) -> int:
        """How often this message was given to a listener before without being finished: 0 at first.
        docs/retry.md says what is counted across restarts."""
        return self.record.reconsume_times + int(getattr(self, "attempts_before", 0))

    @property
    def flag(self) -> int:
        return self.record.flag

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.queue}, offset={self.queue_offset}, id={self.message_id})"


def _body_bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise MessageIllegal(f"the body is {type(body).__name__}, not bytes: encode it first")


def _checked_tag(tag: str) -> str:
    if not isinstance(tag, str):
        raise MessageIllegal(f"the tag must be text, not {_shown(tag)}")
    if not tag or "|" in tag or any(character.isspace() for character in tag):
        raise MessageIllegal(f"tag {tag[:40]!r} must be one word without '|' and white space")
    return tag


def _checked_keys(keys: Iterable[str]) -> tuple[str, ...]:
    if not isinstance(keys, Iterable):
        raise MessageIllegal(f"the keys must be words, not {_shown(keys)}")
    words = (keys,) if isinstance(keys, str) else tuple(keys)
    for word in words:
        if not isinstance(word, str):
            raise MessageIllegal(f"a key must be text, not {_shown(word)}")
        if not word or any(character.isspace() for character in word):
            raise MessageIllegal(f"key {word[:40]!r} must be one word without white space")
    return words


def _as_dict(properties: Mapping[str, str] | None) -> dict[str, str]:
    if properties is not None and not isinstance(properties, Mapping):
        raise MessageIllegal(f"the properties must be a mapping, not {_shown(properties)}")
    return dict(properties or {})


def _shown(value: object) -> str:
    """What was given in place of a text."""
    return f"{type(value).__name__} {str(value)[:40]!r}"


def _check_property(name: str, value: str) -> None:
    if not isinstance(name, str):
        raise MessageIllegal(f"the name of a property must be text, not {_shown(name)}")
    reserved = allowed_of(name)
    if reserved is not None:
        if not reserved.form:
            raise MessageIllegal(reserved.refusal(name))
        raise MessageIllegal(f"property name {name!r} is reserved: choose another")
    if not name.strip():
        raise MessageIllegal(f"property name {name[:40]!r} is blank: give it a name")
    if not isinstance(value, str):
        raise MessageIllegal(f"property {name[:40]!r} must be text, not {_shown(value)}")
    if not value:
        raise MessageIllegal(
            f"property {name[:40]!r} needs a non-empty text: readers drop empty values"
        )
