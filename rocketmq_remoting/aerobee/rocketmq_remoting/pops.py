"""POP: what clients ask for when the broker chooses their messages, and their handles of these.

A client makes the handle of each message itself, from the fields of the answer:

   START POPPED_MS INVISIBLE_MS REVIVE RETRY BROKER QUEUE OFFSET      separated by single blanks

START is the answer's first offset in the queue, and batches of acknowledgements count from there.
RETRY is 0, or 1 or 2 if the message came from a retry topic, as its name looks to the client. The
times say which delivery it is: all messages of an answer have the same. REVIVE is ours: which of
the group's retry topics it was, or Apache's mark of a poll in order.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from aerobee.remoting_core.command import Command
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.json_bodies import read_object
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.pop_records import pop_retry_topics

IN_ORDER: Final = 999
"""Apache's REVIVE of polls in order."""
MESSAGES_MAX: Final = 32
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
WAIT_MS_MAX: Final = 60_000
EXPRESSION_MAX: Final = 64 << 10
ATTEMPT_ID_MAX: Final = 256
HANDLE_MAX: Final = 1_024
ACKS_MAX: Final = 4_096
"""Messages of one batch."""

_FROM_FIRST: Final = 0
_NUMBER: Final = "(0|[1-9][0-9]{0,17})"
_HANDLE: Final = re.compile(
    rf"(-?[0-9]{{1,18}}) {_NUMBER} {_NUMBER} {_NUMBER} ([012]) ([!-~]+) {_NUMBER} {_NUMBER}"
)
_SET_BYTES: Final = re.compile(rb"[^\0]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PopAsked:
    """The fields of codes 200050 and 200054."""

    group: str
    topic: str
    queue_id: int
    """Below 0: all queues of the broker."""
    messages_max: int
    invisible_ms: int
    wait_ms: int
    begins_at_first: bool
    expression: str
    is_sql: bool
    is_ordered: bool
    attempt_id: str

    @classmethod
    def of(cls, fields: Mapping[str, str], *, takes: bool = True) -> Self:
        """`takes` False: it only wants to know whether there is something. Raises
        InvalidArgument."""
        messages_max = read.number(fields, "maxMsgNums") if takes else 1
        if not 0 < messages_max <= MESSAGES_MAX:
            raise InvalidArgument(
                f"maxMsgNums is {messages_max}; ask for 1 to {MESSAGES_MAX} messages"
            )
        invisible_ms = _invisible_ms(fields) if takes else 1
        if not invisible_ms:
            raise InvalidArgument("invisibleTime is 0; give the time that handling may take")
        expression, attempt_id = fields.get("exp") or "*", fields.get("attemptId") or ""
        if len(expression) > EXPRESSION_MAX or len(attempt_id) > ATTEMPT_ID_MAX:
            raise InvalidArgument("the field exp or attemptId is longer than any client's")
        return cls(
            read.text(fields, "consumerGroup"),
            read.text(fields, "topic"),
            max(-1, read.number(fields, "queueId", -1)),
            messages_max,
            invisible_ms,
            min(max(0, read.number(fields, "pollTime", 0)), WAIT_MS_MAX),
            read.number(fields, "initMode", _FROM_FIRST) == _FROM_FIRST,
            expression,
            fields.get("expType") == "SQL92",
            read.flag(fields, "order"),
            attempt_id,
        )


def _invisible_ms(fields: Mapping[str, str]) -> int:
    found = read.number(fields, "invisibleTime")
    if not 0 <= found <= INVISIBLE_MS_MAX:
        raise InvalidArgument(f"invisibleTime is {found}; it must be 0 to {INVISIBLE_MS_MAX} ms")
    return found


# ------------------------------------------------------------------------------------- handles


class PopHandle(NamedTuple):
    """One delivery, as its client names it. It proves nothing: a client that may read for a group
    may acknowledge its messages, and only the broker knows which delivery is the last one."""

    group: str
    topic: str
    """The poll's; the queue may be that of a retry topic."""
    popped_ms: int
    invisible_ms: int
    revive: int
    broker_name: str
    queue_id: int
    offset: int

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Self:
        """The handle in codes 200051 and 200053. Raises InvalidArgument."""
        text = read.text(fields, "extraInfo")
        found = _HANDLE.fullmatch(text) if len(text) <= HANDLE_MAX else None
        if found is None:
            raise InvalidArgument("extraInfo is no handle of a popped message")
        _, popped_ms, invisible_ms, revive, _, name, queue_id, offset = found.groups()
        group = read.text(fields, "consumerGroup")
        topic = origin_of(group, read.text(fields, "topic"))
        handle = cls(
            group, topic, int(popped_ms), int(invisible_ms), int(revive), name, int(queue_id),
            int(offset),
        )  # fmt: skip
        told = read.number(fields, "queueId"), read.number(fields, "offset")
        if told != (handle.queue_id, handle.offset):
            raise InvalidArgument("the fields queueId and offset are not those of extraInfo")
        return handle

    @property
    def visible_ms(self) -> int:
        """When the message comes again, Unix ms."""
        return self.popped_ms + self.invisible_ms


def origin_of(group: str, topic: str) -> str:
    """The topic of a poll: clients name a retry topic made of it if a message came from any."""
    for prefix in pop_retry_topics(group, ""):
        if topic.startswith(prefix) and len(topic) > len(prefix):
            return topic.removeprefix(prefix)
    return topic


def changed_ms(fields: Mapping[str, str]) -> int:
    """How long a message shall be invisible from now on. Raises InvalidArgument."""
    return _invisible_ms(fields)


# ------------------------------------------------------------------------------------- batches


def read_acks(body: bytes) -> list[PopHandle]:
    """The messages of code 200151. Raises InvalidArgument."""
    found = read_object(body)
    name, acks = found.get("brokerName"), found.get("acks")
    if not isinstance(name, str) or not isinstance(acks, list) or len(acks) > ACKS_MAX:
        raise InvalidArgument("the body names no broker, or no list of acknowledgements")
    handles: list[PopHandle] = []
    for each in acks:
        for handle in _acks(name, each):
            if len(handles) == ACKS_MAX:
                raise InvalidArgument(f"at most {ACKS_MAX} messages are acknowledged at once")
            handles.append(handle)
    return handles


def _acks(broker_name: str, found: Any) -> Iterator[PopHandle]:
    if not isinstance(found, Mapping):
        raise InvalidArgument("an acknowledgement is no JSON object")
    group, topic = (_text(found, name) for name in "ct")
    topic = origin_of(group, topic)
    start, queue_id, revive, popped_ms, invisible_ms = (
        _whole(found, name) for name in ("so", "q", "rq", "pt", "it")
    )
    for at in _bits(_text(found, "b")):
        if start + at >= 0:
            yield PopHandle(
                group, topic, popped_ms, invisible_ms, revive, broker_name, queue_id, start + at
            )


def _bits(text: str) -> Iterator[int]:
    """The numbers in a set of Java's, whose bytes are in base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidArgument("the offsets of an acknowledgement are not base64") from None
    for each in _SET_BYTES.finditer(data):
        byte, first = each[0][0], each.start() * 8
        yield from (first + bit for bit in range(8) if byte >> bit & 1)


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"an acknowledgement lacks its text {name}")
    return value


def _whole(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        raise InvalidArgument(f"an acknowledgement lacks its number {name}")
    return value


# ------------------------------------------------------------------------------------- answers


class PoppedFrom(NamedTuple):
    """What an answer has from one queue."""

    topic: str
    """Of the queue."""
    queue_id: int
    offsets: Sequence[int]
    """Ascending."""


def popped_fields(
    parts: Sequence[PoppedFrom],
    *,
    popped_ms: int,
    invisible_ms: int,
    revive: int,
    left: int,
) -> dict[str, str]:
    """The fields by which a client makes its handles. `left`: messages that it may get now."""
    starts, offsets = [], []
    for part in parts:
        texts = ",".join(map(str, part.offsets))
        for mark in _marks(part.topic):
            starts.append(f"{mark} {part.queue_id} {part.offsets[0]}")
            offsets.append(f"{mark} {part.queue_id} {texts}")
    return {
        "popTime": str(popped_ms),
        "invisibleTime": str(invisible_ms),
        "reviveQid": str(revive),
        "restNum": str(left),
        "startOffsetInfo": ";".join(starts),
        "msgOffsetInfo": ";".join(offsets),
    }


def _marks(topic: str) -> str:
    """How clients see a queue's topic: some tell two kinds of retry topics apart."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "12" if "+" in topic else "1"


def nothing(request: Command, code: int) -> Command:
    """The answer without messages, with the fields that clients read in any case."""
    return request.answer(
        code,
        {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"},
        remark="there is no message for this poll now",
    )
