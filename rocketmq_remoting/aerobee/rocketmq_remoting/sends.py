"""Sends: their fields in both spellings, and the messages in their bodies.

A batch's body, big-endian, for each message:

   size i32, unused i32, unused i32, flag i32, body length i32, body
   properties length i16, properties
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from aerobee.remoting_core.command import Command
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.runtime.errors import MessageIllegal, PropertiesTooLarge
from aerobee.store.format.properties import PropertyName, find_property, replace_properties
from aerobee.store.format.record import PROPERTIES_BYTES_MAX

MESSAGES_MAX: Final = 4_096
"""In one batch, which is taken apart in one turn of the event loop."""

_SHORT_NAMES: Final = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
}
_IN_BATCH: Final = struct.Struct(">iiiii")
_I16: Final = struct.Struct(">h")
_VALUE_END: Final = b"\x02"
_UNIQ_KEY: Final = PropertyName.UNIQ_KEY.encode()
_CLUSTER: Final = PropertyName.CLUSTER.encode()
_REPLY_TO_CLIENT: Final = PropertyName.REPLY_TO_CLIENT.encode()
_LONG_NAMED: Final = frozenset((Ask.SEND_MESSAGE, Ask.SEND_REPLY_MESSAGE))
_NOT_STORED: Final = tuple(
    name.encode() for name in (PropertyName.POP_CK, PropertyName.TRAN_MSG, PropertyName.WAIT)
)
"""A handle of the sender's own; and what is said to the broker alone."""
REGION: Final = "DefaultRegion"
"""Where every message is from: consumers trace only messages that say so, and producers are told
it. As with Apache's brokers, messages of batches do not say it."""
_REGION_NAMED: Final = PropertyName.MSG_REGION.encode() + b"\x01"
_REGION: Final = _REGION_NAMED + REGION.encode() + _VALUE_END
_USUAL: Final = b"WAIT\x01true\x02"
"""Java's clients say so with every message."""
_USUAL_AFTER: Final = _VALUE_END + _USUAL
_POP_CK, _TRAN_MSG, _WAIT = _NOT_STORED
_UNIQ_KEY_IS: Final = _UNIQ_KEY + b"\x01"


NewId = Callable[[], str]
"""Makes an id for a message that has none."""


def long_names(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of a send with short names, under their long ones."""
    return {_SHORT_NAMES.get(name, name): value for name, value in fields.items()}


def send_fields(request: Command) -> Mapping[str, str]:
    """The fields of a send under their long names: the rights of a request and what it does must
    depend on the same ones."""
    return request.fields if request.code in _LONG_NAMED else long_names(request.fields)


class Message(NamedTuple):
    """One message of a send, with its properties as they are stored."""

    body: bytes
    properties: bytes
    flag: int
    message_id: str
    is_half: bool


@dataclass(frozen=True, slots=True)
class Send:
    """What is the same for all messages of a send."""

    producer_group: str
    topic: str
    queue_id: int
    """Below 0: the broker chooses."""
    sys_flag: int
    born_ms: int
    flag: int
    properties: bytes
    is_batch: bool

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Send:
        """From fields with long names. Raises InvalidArgument."""
        return cls(
            read.text(fields, "producerGroup"),
            read.text(fields, "topic"),
            read.number(fields, "queueId"),
            read.number(fields, "sysFlag", 0),
            read.number(fields, "bornTimestamp", 0),
            read.number(fields, "flag", 0),
            fields.get("properties", "").encode("utf-8", "replace"),
            read.flag(fields, "batch"),
        )

    def messages(
        self, body: bytes, *, is_batch: bool, new_id: NewId, cluster: str = ""
    ) -> list[Message]:
        """`cluster`: where they are sent, for those who reply. Raises MessageIllegal."""
        if not is_batch:
            properties = _with_region(self.properties)
            return [_message(body, properties, self.flag, new_id, cluster)]
        found: list[Message] = []
        for flag, one, properties in _in_batch(body):
            if len(found) == MESSAGES_MAX:
                raise MessageIllegal(f"a batch has at most {MESSAGES_MAX} messages")
            found.append(_message(one, properties, flag, new_id, cluster))
        if not found:
            raise MessageIllegal("the batch has no message")
        return found


def _in_batch(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Flag, body and properties of each message. Raises MessageIllegal."""
    at, end = 0, len(body)
    try:
        while at < end:
            size, _, _, flag, length = _IN_BATCH.unpack_from(body, at)
            properties_at = at + _IN_BATCH.size + length
            if length < 0 or properties_at > end:
                raise MessageIllegal("a body of the batch is longer than the batch")
            (count,) = _I16.unpack_from(body, properties_at)
            following = properties_at + 2 + count
            if count < 0 or following > end or following - at != size:
                raise MessageIllegal("the sizes in the batch do not fit each other")
            yield (
                flag,
                body[at + _IN_BATCH.size : properties_at],
                body[properties_at + 2 : following],
            )
            at = following
    except struct.error:
        raise MessageIllegal("the batch ends inside a message") from None


def _message(body: bytes, properties: bytes, flag: int, new_id: NewId, cluster: str) -> Message:
    if properties and not properties.endswith(_VALUE_END):
        properties += _VALUE_END
    properties = _without_usual(properties)
    end = len(properties)
    if not (
        _POP_CK in properties
        or _TRAN_MSG in properties
        or _WAIT in properties
        or _REPLY_TO_CLIENT in properties
    ):
        # As nearly all are: what is searched for below cannot be there.
        at = properties.rfind(_UNIQ_KEY_IS)
        if (not at or (at > 0 and properties[at - 1] == 2)) and end <= PROPERTIES_BYTES_MAX:
            at += len(_UNIQ_KEY_IS)
            if text := properties[at : properties.find(_VALUE_END, at)]:
                return Message(body, properties, flag, text.decode("utf-8", "replace"), False)
    is_half, changes = False, dict[bytes, bytes | None]()
    for name in _NOT_STORED:
        # Most messages have none of them: a search of bytes is quick.
        if name in properties and find_property(properties, 0, end, name) is not None:
            changes[name] = None
    if _TRAN_MSG in changes:
        is_half = find_property(properties, 0, end, _TRAN_MSG) == b"true"
    if _REPLY_TO_CLIENT in properties and cluster:
        # The consumer that replies learns the reply topic from it.
        changes[_CLUSTER] = cluster.encode()
    found = find_property(properties, 0, end, _UNIQ_KEY)
    if not found:
        found = changes[_UNIQ_KEY] = new_id().encode()
    if changes:
        properties = replace_properties(properties, changes)
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise PropertiesTooLarge(
            f"the message's properties have {len(properties)} bytes in all, at most "
            f"{PROPERTIES_BYTES_MAX} are possible: put large values into the body"
        )
    return Message(body, properties, flag, found.decode("utf-8", "replace"), is_half)


def _with_region(properties: bytes) -> bytes:
    if _REGION_NAMED in properties:
        return properties  # it was received, and is sent on
    if properties and not properties.endswith(_VALUE_END):
        properties += _VALUE_END
    return properties + _REGION


def _without_usual(properties: bytes) -> bytes:
    if properties.startswith(_USUAL):
        return properties[len(_USUAL) :]
    return properties.replace(_USUAL_AFTER, _VALUE_END, 1)
