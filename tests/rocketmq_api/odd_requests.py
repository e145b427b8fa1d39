"""Requests of Apache's API as no client sends them: every field, with every kind of value.

A request is a plain one of which some fields were changed, or one of nothing but chance. A seed
says all of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from aerobee.rocketmq_api.times import duration
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

DEPTH_MAX: Final = 5
_WHOLE: Final = (0, 1, -1, 2, 31, 32, 33, 10_000, 2**31 - 1, -(2**31), 2**32 - 1)
_LONG: Final = (*_WHOLE, 2**63 - 1, -(2**63), 2**64 - 1, 1_700_000_000, 253_402_300_800)
_TEXTS: Final = (
    "", " ", "*", "a||b", "a && b", "\x00", "ü" * 40, "%RETRY%g", "%DLQ%g", "../..", "x" * 300,
    "x" * 70_000, "TagA||" * 2_000, "\u200b", "𝒳", "SCHEDULE_TOPIC_XXXX", "null", "-1", "{}",
)  # fmt: skip
_TYPES: Final = FieldDescriptor
_RANGES: Final = {
    **dict.fromkeys(
        (_TYPES.TYPE_INT32, _TYPES.TYPE_SINT32, _TYPES.TYPE_SFIXED32), (-(2**31), 2**31 - 1)
    ),
    **dict.fromkeys(
        (_TYPES.TYPE_INT64, _TYPES.TYPE_SINT64, _TYPES.TYPE_SFIXED64), (-(2**63), 2**63 - 1)
    ),
    **dict.fromkeys((_TYPES.TYPE_UINT32, _TYPES.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((_TYPES.TYPE_UINT64, _TYPES.TYPE_FIXED64), (0, 2**64 - 1)),
}
Field = Any
"""A FieldDescriptor: protobuf has two classes of them."""

Names = Mapping[str, tuple[str, ...]]
"""What fields of a name have that are to be known: `topic`, `group`."""


class OddRequests:
    """Of one seed."""

    def __init__(self, seed: int, names: Names) -> None:
        self._chance = random.Random(seed)
        self._names = names

    def request(self, plain: Message) -> Message:
        """One of the same type."""
        made = type(plain)()
        if self._chance.random() < 0.75:
            made.CopyFrom(plain)
            for _ in range(self._chance.randrange(1, 4)):
                self._change_one(made)
        else:
            self._fill(made, DEPTH_MAX)
        return made

    def _change_one(self, message: Message) -> None:
        fields: Sequence[Field] = message.DESCRIPTOR.fields
        if not fields:
            return
        field = self._chance.choice(fields)
        inner = self._inner(message, field)
        if inner is not None and self._chance.random() < 0.8:
            self._change_one(inner)
        elif self._chance.random() < 0.3:
            message.ClearField(field.name)
        else:
            self._set(message, field, 2)

    def _inner(self, message: Message, field: Field) -> Message | None:
        """The message in a field, or one of those."""
        if field.message_type is None or _is_map(field):
            return None
        value: Any = getattr(message, field.name)
        if not field.is_repeated:
            found: Message = value
            return found
        return self._chance.choice(list(value)) if len(value) else None

    def _fill(self, message: Message, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            if self._chance.random() < 0.4:
                self._set(message, field, depth)

    def _set(self, message: Message, field: Field, depth: int) -> None:
        count = self._chance.choice((0, 1, 1, 2, 3, 40, 1_000 if depth > 3 else 5))
        value: Any = getattr(message, field.name)
        if _is_map(field):
            for _ in range(count):
                self._put(value, *field.message_type.fields)
        elif field.is_repeated:
            for _ in range(min(count, 40) if field.message_type else count):
                if field.message_type is None:
                    value.append(self._value(field))
                else:
                    self._fill(value.add(), depth - 1)
        elif field.message_type is None:
            setattr(message, field.name, self._value(field))
        elif depth:
            value.SetInParent()
            self._fill(value, depth - 1)

    def _put(self, entries: Any, key: Field, value: Field) -> None:
        name = self._value(key)
        if value.message_type is not None:
            self._fill(entries[name], 1)
        else:
            entries[name] = self._value(value)

    def _value(self, field: Field) -> Any:
        chance, kind = self._chance, field.type
        if kind == _TYPES.TYPE_STRING:
            return self._text(field.name if field.name != "name" else _named_by(field))
        if kind == _TYPES.TYPE_BYTES:
            return chance.randbytes(chance.choice((0, 1, 100, 5_000)))
        if kind == _TYPES.TYPE_BOOL:
            return chance.random() < 0.5
        if kind == _TYPES.TYPE_ENUM:
            return chance.choice((0, 1, 2, 3, 4, 5, 77, -1))
        if kind in (_TYPES.TYPE_FLOAT, _TYPES.TYPE_DOUBLE):
            return chance.choice((0.0, -1.5, 1e300, math.inf, math.nan))
        least, most = _RANGES[kind]
        return max(least, min(most, chance.choice(_WHOLE if most < 2**32 else _LONG)))

    def _text(self, name: str) -> str:
        known = self._names.get(name, self._names["topic"] + self._names["group"])
        if self._chance.random() < 0.4:
            return self._chance.choice(known)
        if self._chance.random() < 0.2:
            return "".join(chr(self._chance.randrange(1, 0x250)) for _ in range(20))
        return self._chance.choice(_TEXTS)


def _is_map(field: Field) -> bool:
    inner = field.message_type
    return inner is not None and bool(inner.GetOptions().map_entry)


def _named_by(field: Field) -> str:
    return "resource" if field.containing_type.name == "Resource" else "name"


def plain_requests(
    queue: v2.MessageQueue, group: str, handle: str
) -> dict[str, Callable[[], Message]]:
    """What clients send, by method."""
    place: dict[str, Any] = {"topic": queue.topic}
    who: dict[str, Any] = {"group": v2.Resource(name=group)}
    entry: dict[str, Any] = {"message_id": "ID-1", "receipt_handle": handle}

    def sent() -> Message:
        system = v2.SystemProperties(message_id="ID-1", body_encoding=v2.IDENTITY, tag="TagA")
        system.born_timestamp.GetCurrentTime()
        message = v2.Message(**place, body=b"body", system_properties=system)
        return service_pb2.SendMessageRequest(messages=[message] * 2)

    return {
        "QueryRoute": lambda: service_pb2.QueryRouteRequest(**place),
        "Heartbeat": lambda: service_pb2.HeartbeatRequest(**who, client_type=v2.SIMPLE_CONSUMER),
        "SendMessage": sent,
        "QueryAssignment": lambda: service_pb2.QueryAssignmentRequest(**place, **who),
        "ReceiveMessage": lambda: service_pb2.ReceiveMessageRequest(
            **who,
            message_queue=queue,
            batch_size=8,
            filter_expression=v2.FilterExpression(expression="*"),
            invisible_duration=duration(10_000),
        ),
        "AckMessage": lambda: service_pb2.AckMessageRequest(
            **place, **who, entries=[service_pb2.AckMessageEntry(**entry)]
        ),
        "ForwardMessageToDeadLetterQueue": lambda: (
            service_pb2.ForwardMessageToDeadLetterQueueRequest(
                **place, **who, **entry, delivery_attempt=1, max_delivery_attempts=3
            )
        ),
        "PullMessage": lambda: service_pb2.PullMessageRequest(
            **who, message_queue=queue, batch_size=8
        ),
        "UpdateOffset": lambda: service_pb2.UpdateOffsetRequest(
            **who, message_queue=queue, offset=1
        ),
        "GetOffset": lambda: service_pb2.GetOffsetRequest(**who, message_queue=queue),
        "QueryOffset": lambda: service_pb2.QueryOffsetRequest(message_queue=queue),
        "EndTransaction": lambda: service_pb2.EndTransactionRequest(
            **place, message_id="ID-1", transaction_id="t", resolution=v2.COMMIT
        ),
        "Telemetry": lambda: service_pb2.TelemetryCommand(
            settings=v2.Settings(client_type=v2.PUSH_CONSUMER, subscription=v2.Subscription(**who))
        ),
        "NotifyClientTermination": lambda: service_pb2.NotifyClientTerminationRequest(**who),
        "ChangeInvisibleDuration": lambda: service_pb2.ChangeInvisibleDurationRequest(
            **place, **who, **entry
        ),
        "RecallMessage": lambda: service_pb2.RecallMessageRequest(**place, recall_handle=handle),
        "SyncLiteSubscription": lambda: service_pb2.SyncLiteSubscriptionRequest(),
    }
