"""Records of transactions, in Apache's system topics and formats.

    half message   RMQ_SYS_TRANS_HALF_TOPIC     the message, with REAL_TOPIC, REAL_QID, TRAN_MSG
    op message     RMQ_SYS_TRANS_OP_HALF_TOPIC  tag `d`; body: queue offsets of halves that are done
    set aside      TRANS_CHECK_MAX_TIME_TOPIC   a half message whose producers never answered; and
                                                our op messages, when an operator has decided

A half message that is checked is stored once more, with TRANSACTION_CHECK_TIMES increased; the
older record is then done. A committed message has system flag 0x8 and, as its prepared transaction
offset, the log position of its half message. Only `__transactionId__` shows that it ever waited.

`__transactionId__` is the id of the transaction: the message's, or another one if a different
message of the topic had the same id.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from aerobee.store.format.delayed_records import HALF_TOPIC, Moved, NotDelayed, destination
from aerobee.store.format.message_content import content_of
from aerobee.store.format.properties import (
    PropertyName,
    encode_properties,
    find_property,
    replace_properties,
)
from aerobee.store.format.record_encode import properties_too_large
from aerobee.store.format.record_layout import (
    HOST_V6_EXTRA,
    PREPARED_TRANSACTION_OFFSET_AT,
    PROPERTIES_BYTES_MAX,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_STORE_HOST_V6,
    SYSFLAG_TRANSACTION_COMMIT,
    SYSFLAG_TRANSACTION_MASK,
)
from aerobee.store.format.record_rewrite import fitting_properties, rewrite_record
from aerobee.store.format.record_view import Record

OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ASIDE_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTIONS_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Its committed offsets in the first two topics say how far a broker has finished there."""

LEAD: Final = "AEROBEE_TRANSACTION_LEAD"
"""Property of a half message that ends as another one, its lead, did: of which broker group, which
topic and which id that is, with spaces between them."""

CHECKS_BYTES_MAX: Final = 64
"""How much the properties of a half message may grow while it is being checked."""

_DONE_TAG: Final = "d"
_OUTCOME: Final = "AEROBEE_OUTCOME"
_N: Final = PropertyName
_TRAN_MSG: Final = b"TRAN_MSG"
_REAL_TOPIC: Final = b"REAL_TOPIC"
_REAL_QID: Final = b"REAL_QID"
_PGROUP: Final = b"PGROUP"
_UNIQ_KEY: Final = b"UNIQ_KEY"
_TRANSACTION_ID: Final = b"__transactionId__"
_CLIENT: Final = b"__CLIENT"
_CHECK_TIMES: Final = b"TRANSACTION_CHECK_TIMES"
_PREPARED_OFFSET: Final = b"TRAN_PREPARED_QUEUE_OFFSET"
_NUMBER: Final = re.compile("[0-9]{1,18}")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")


class HalfIllegal(ValueError):
    """A message that cannot be half of a transaction, or a record that is not a half message."""


class Outcome(Enum):
    """What happened to a half message's record."""

    COMMITTED = "commit"
    ROLLED_BACK = "rollback"
    SET_ASIDE = "aside"
    """Its producers did not answer; an operator decides."""
    CHECKED = "checked"
    """A newer record of the same message has replaced it."""
    UNKNOWN = ""
    """It is done. Apache's brokers do not record how."""


class HalfMessage(NamedTuple):
    """The content of a record in the half topic."""

    offset: int
    """In its queue."""
    position: int
    """In the log."""
    size: int
    transaction_id: str
    producer_group: str
    topic: str
    queue_id: int
    born_ms: int
    stored_ms: int
    checks: int = 0
    """How often its producers have been asked."""
    is_copy: bool = False
    """It replaces an older record of the message."""
    immunity_ms: int | None = None
    """How long after its birth no producer is to be asked; None: as configured in the broker."""
    content: str = ""
    """As `message_content.content_of`."""


# ------------------------------------------------------------------------------------- halves


def half_properties(
    properties: bytes, *, topic: str, queue_id: int, transaction_id: str = ""
) -> bytes:
    """The properties of the half message for a message to `topic`, `queue_id`. `transaction_id`
    empty: the message's id.

    Raises HalfIllegal if the message has no id; RecordIllegal if the properties do not fit.
    """
    end = len(properties)
    message_id = find_property(properties, 0, end, _UNIQ_KEY)
    if not message_id:
        raise HalfIllegal("it has no message id (UNIQ_KEY), by which its transaction could end")
    changes: dict[bytes, bytes | None] = {
        _TRAN_MSG: b"true",
        _REAL_TOPIC: topic.encode(),
        _REAL_QID: b"%d" % queue_id,
        _TRANSACTION_ID: transaction_id.encode() or message_id,
    }
    if not find_property(properties, 0, end, _PGROUP):
        changes[_PGROUP] = topic.encode()
    half = replace_properties(properties, changes)
    limit = PROPERTIES_BYTES_MAX - CHECKS_BYTES_MAX
    if len(half) > limit:
        raise properties_too_large(len(half), limit)
    return fitting_properties(half)


def half_of(record: Record) -> HalfMessage:
    """Raises HalfIllegal: it names no topic, or has no id; RecordCorrupt."""
    try:
        topic, queue_id = destination(record)
    except NotDelayed as error:
        raise HalfIllegal(str(error)) from None
    transaction_id = transaction_id_of(record)
    if not transaction_id:
        raise HalfIllegal(f"the half message at {record.physical_offset} has no UNIQ_KEY")
    place = record.queue_offset, record.physical_offset, record.size, record.store_timestamp_ms
    return half_at(place, record, topic, queue_id, transaction_id)


Place = tuple[int, int, int, int]
"""Offset, position, size, and store time (Unix ms) of a half message's record."""


def half_at(
    place: Place, record: Record, topic: str, queue_id: int, transaction_id: str
) -> HalfMessage:
    """The half message at `place`; `record` is its own or that of the message it was made from."""
    offset, position, size, stored_ms = place
    properties = record.properties
    checks = properties.get(_N.TRANSACTION_CHECK_TIMES, "")
    immunity_s = properties.get(_N.CHECK_IMMUNITY_TIME_IN_SECONDS, "")
    return HalfMessage(
        offset,
        position,
        size,
        transaction_id,
        properties.get(_N.PGROUP, topic),
        topic,
        queue_id,
        record.born_timestamp_ms,
        stored_ms,
        int(checks) if checks and _NUMBER.fullmatch(checks) else 0,
        bool(checks) or _N.TRAN_PREPARED_QUEUE_OFFSET in properties,
        int(immunity_s) * 1_000 if immunity_s and _NUMBER.fullmatch(immunity_s) else None,
        content_of(record),
    )


def transaction_id_of(record: Record) -> str:
    """The transaction of a half message; empty: it has no id."""
    message_id = record.unique_key
    return (message_id and (record.property_value(_N.TRANSACTION_ID) or message_id)) or ""


def checked_record(
    record: Record, *, checks: int, transaction_id: str, store_host_ipv6: bool
) -> bytes:
    """The record that replaces a half message's when its producers are asked for the `checks`-th
    time. Raises RecordIllegal, RecordCorrupt."""
    changes: dict[bytes, bytes | None] = {
        _CHECK_TIMES: b"%d" % checks,
        _TRANSACTION_ID: transaction_id.encode(),
    }
    return rewrite_record(
        record,
        topic=HALF_TOPIC.encode(),
        properties=replace_properties(record.properties_bytes, changes),
        store_host_ipv6=store_host_ipv6,
    )


def aside_record(record: Record, *, transaction_id: str, store_host_ipv6: bool) -> bytes:
    """The half message's record in the topic of those set aside. Raises RecordIllegal,
    RecordCorrupt."""
    changes: dict[bytes, bytes | None] = {_TRANSACTION_ID: transaction_id.encode()}
    return rewrite_record(
        record,
        topic=ASIDE_TOPIC.encode(),
        properties=replace_properties(record.properties_bytes, changes),
        store_host_ipv6=store_host_ipv6,
    )


# ------------------------------------------------------------------------------------- commits


_WAITING_ONLY: Final[dict[bytes, bytes | None]] = dict.fromkeys(
    (_TRAN_MSG, _REAL_TOPIC, _REAL_QID, _PREPARED_OFFSET, _CHECK_TIMES, _CLIENT)
)


def committed_record(
    record: Record, *, store_host_ipv6: bool, target: tuple[str, int] | None = None
) -> Moved:
    """The message in a half message, as it is delivered; to `target`, if that is known. Raises
    HalfIllegal, RecordIllegal, RecordCorrupt."""
    try:
        topic, queue_id = target or destination(record)
    except NotDelayed as error:
        raise HalfIllegal(str(error)) from None
    rewritten = bytearray(
        rewrite_record(
            record,
            topic=topic.encode(),
            properties=replace_properties(record.properties_bytes, _WAITING_ONLY),
            store_host_ipv6=store_host_ipv6,
        )
    )
    (sys_flag,) = _I32.unpack_from(rewritten, SYS_FLAG_AT)
    _I32.pack_into(rewritten, SYS_FLAG_AT, sys_flag | SYSFLAG_TRANSACTION_COMMIT)
    prepared_at = PREPARED_TRANSACTION_OFFSET_AT
    for flag in (SYSFLAG_BORN_HOST_V6, SYSFLAG_STORE_HOST_V6):
        prepared_at += HOST_V6_EXTRA if sys_flag & flag else 0
    _I64.pack_into(rewritten, prepared_at, record.physical_offset)
    return Moved(topic, queue_id, bytes(rewritten))


def is_commit_of(record: Record, half_position: int) -> bool:
    """Whether this is the committed message of the half message at a log position."""
    is_commit = record.sys_flag & SYSFLAG_TRANSACTION_MASK == SYSFLAG_TRANSACTION_COMMIT
    return is_commit and record.prepared_transaction_offset == half_position


# ------------------------------------------------------------------------------------- ops


def op_body(offsets: Iterable[int]) -> bytes:
    """The body of the op message that marks these records of the half topic as done."""
    return "".join(f"{offset}," for offset in offsets).encode()


def op_properties(outcome: Outcome) -> bytes:
    """The outcome is for our own brokers; Apache's read only the tag."""
    properties = {_N.TAGS: _DONE_TAG}
    if outcome is not Outcome.UNKNOWN:
        properties[_OUTCOME] = outcome.value
    return encode_properties(properties)


def is_op_of_aside(record: Record) -> bool:
    """Whether a record in the topic of messages set aside is not a half message, but says which of
    them are done."""
    properties = record.properties
    return _OUTCOME in properties and _N.REAL_TOPIC not in properties


def op_of(record: Record) -> tuple[Sequence[int], Outcome]:
    """The records of the half topic that an op message marks as done, and how. None of them if it
    has another tag."""
    if record.tag != _DONE_TAG:
        return (), Outcome.UNKNOWN
    words = bytes(record.body).decode("ascii", "replace").split(",")
    try:
        outcome = Outcome(record.property_value(_OUTCOME) or "")
    except ValueError:
        outcome = Outcome.UNKNOWN
    return [int(word) for word in words if _NUMBER.fullmatch(word)], outcome
