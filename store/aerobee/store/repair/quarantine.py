"""Records that replace damaged ones, of exactly the same size.

A stand-in keeps what is known of the message: topic, queue, offset, position, store time, and its
properties if they can still be read. Its body is empty, and the property `QUARANTINED` says where
the original bytes are kept. So queue offsets have no gaps, consumers get an empty message that
explains itself, and every reader of the log, including Apache's, steps over it.

Bytes of which nothing is known are filled with records of the transaction type "rollback": readers
step over them too, and no queue lists them. At a segment's end a blank record fills the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import (
    PHYSICAL_OFFSET_AT,
    PROPERTIES_BYTES_MAX,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_AT,
    SYSFLAG_HOSTS_MASK,
    SYSFLAG_STORE_HOST_V6,
    SYSFLAG_TRANSACTION_MASK,
    SYSFLAG_TRANSACTION_PREPARED,
    SYSFLAG_TRANSACTION_ROLLBACK,
    TOPIC_V1_BYTES_MAX,
    HostAddress,
    RecordCorrupt,
)
from aerobee.store.format.record_view import Record

QUARANTINED: Final = "QUARANTINED"
"""The property of a stand-in: the path of the file with the original bytes, below the store's
folder; if there is not enough room, only the repair's folder."""
FILLER_TOPIC: Final = b"QUARANTINE_FILLER"

# Readers skip empty segments between properties, so separators can fill any space.
_PADDING: Final = b"\x02"
_UNKNOWN_HOST: Final = HostAddress(bytes(4), 0)
# Apache's recovery reads a record's bytes into memory at once.
_FILLER_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StandIn:
    """A message whose record is to be replaced: its position and size."""

    topic: str
    queue_id: int
    queue_offset: int
    position: int
    size: int


def size_min(topic: bytes) -> int:
    """The smallest record of a topic: no body, no properties, IPv4 hosts."""
    return 91 + len(topic) + (len(topic) > TOPIC_V1_BYTES_MAX)


FILLER_SIZE_MIN: Final = size_min(b"Q")


def stand_in_record(
    wanted: StandIn, original: bytes, *, kept_at: str, store_timestamp_ms: tuple[int, int]
) -> bytes:
    """The record for `wanted`, of its size.

    `original` are the damaged bytes, from which readable values are kept; `store_timestamp_ms` are
    the limits set by the neighbours. Raises ValueError if the size is too small for the topic.
    """
    topic = wanted.topic.encode()
    known = _read_original(original, topic)
    shorter = (kept_at, kept_at.partition("/")[0], "yes")
    marks = [f"{QUARANTINED}\x01{where}\x02".encode() for where in shorter if where]
    own = b"" if known is None else _without_crc(known.properties_bytes)
    plain = _Template(topic, None)
    choices = [(plain, mark) for mark in [*marks, b""]]
    if known is not None:
        like_known = _Template(topic, known)
        choices = [
            *((like_known, own + mark) for mark in marks),
            *((like_known, mark) for mark in marks),
            *choices,
        ]
    for template, properties in choices:
        record = template.record(wanted.size, properties)
        if record is not None:
            break
    else:
        raise ValueError(f"{wanted.size} bytes are too few for a record of {wanted.topic}")
    low, high = store_timestamp_ms
    said = low if known is None else known.store_timestamp_ms
    _stamp(record, wanted, min(max(said, low), high))
    return bytes(record)


def filler_records(start: int, size: int, store_timestamp_ms: int) -> list[bytes]:
    """Records that are never read, for the `size` bytes at the log offset `start`.

    Raises ValueError if `size` is too small for a record.
    """
    records: list[bytes] = []
    while size:
        if size < FILLER_SIZE_MIN:
            raise ValueError(f"{size} bytes are too few for a record")
        part = size if size <= _FILLER_BYTES_MAX else _FILLER_BYTES_MAX // 2
        topic = FILLER_TOPIC if part >= size_min(FILLER_TOPIC) else b"Q"
        record = _Template(topic, None, SYSFLAG_TRANSACTION_ROLLBACK).record(part, b"")
        assert record is not None
        _stamp(record, StandIn("", 0, 0, start, part), store_timestamp_ms)
        records.append(bytes(record))
        start += part
        size -= part
    return records


class _Template:
    """The head of a stand-in: that of the original as far as it is known."""

    def __init__(self, topic: bytes, known: Record | None, sys_flag: int = 0) -> None:
        self._topic = topic
        self._known = known
        self._sys_flag = sys_flag
        if known is not None:
            self._sys_flag = known.sys_flag & (SYSFLAG_TRANSACTION_MASK | SYSFLAG_HOSTS_MASK)
            if known.sys_flag & SYSFLAG_TRANSACTION_PREPARED:
                self._sys_flag &= SYSFLAG_HOSTS_MASK  # its queue lists it, so it was none of these

    def record(self, size: int, properties: bytes) -> bytearray | None:
        """A record of exactly `size` bytes; None if the properties leave no room."""
        room = size - len(self._encode(b"", b""))
        if len(properties) > min(room, PROPERTIES_BYTES_MAX):
            return None
        padding = min(room, PROPERTIES_BYTES_MAX) - len(properties)
        if room > PROPERTIES_BYTES_MAX:
            # Too much for properties: the body takes it, as zeros.
            padding = 0
        body = bytes(room - len(properties) - padding)
        return bytearray(self._encode(body, properties + _PADDING * padding))

    def _encode(self, body: bytes, properties: bytes) -> bytes:
        known = self._known
        if known is None:
            return encode_record(
                topic=self._topic,
                body=body,
                properties=properties,
                born_timestamp_ms=0,
                born_host=_UNKNOWN_HOST,
                sys_flag=self._sys_flag,
            )
        return encode_record(
            topic=self._topic,
            body=body,
            properties=properties,
            born_timestamp_ms=known.born_timestamp_ms,
            born_host=known.born_host,
            flag=known.flag,
            sys_flag=self._sys_flag,
            store_host_ipv6=bool(known.sys_flag & SYSFLAG_STORE_HOST_V6),
            reconsume_times=known.reconsume_times,
            prepared_transaction_offset=known.prepared_transaction_offset,
            version=known.version,
        )


def _stamp(record: bytearray, wanted: StandIn, store_timestamp_ms: int) -> None:
    view = Record(record)
    struct.pack_into(">i", record, QUEUE_ID_AT, wanted.queue_id)
    struct.pack_into(">qq", record, QUEUE_OFFSET_AT, wanted.queue_offset, wanted.position)
    assert QUEUE_OFFSET_AT + 8 == PHYSICAL_OFFSET_AT
    extra = 12 if view.born_host.is_ipv6 else 0
    struct.pack_into(">q", record, STORE_TIMESTAMP_AT + extra, store_timestamp_ms)


def _read_original(original: bytes, topic: bytes) -> Record | None:
    """The damaged record, as far as its lengths agree and its topic is right."""
    try:
        record = Record(original, 0, len(original))
        return record if record.topic_bytes == topic else None
    except RecordCorrupt:
        return None


def _without_crc(properties: bytes) -> bytes:
    segments = properties.split(b"\x02")
    kept = [part for part in segments if part and not part.startswith(b"__CRC32#\x01")]
    return b"".join(part + b"\x02" for part in kept)


# ---------------------------------------------------------------------------------- filling


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes [start, end) of a region that no known record uses."""

    start: int
    end: int


def place(
    start: int, end: int, placed: Sequence[StandIn], unplaced: Sequence[StandIn]
) -> tuple[list[StandIn], list[Room], list[StandIn]]:
    """Assign bytes to every message of a region.

    `placed` stay where they are; `unplaced`, whose position and size are unknown, are put between.
    So are those of `placed` that overlap another: their positions are wrong. Returns the messages
    ordered by position, the unused rooms, and messages for which there was no room.
    """
    kept: list[StandIn] = []
    waiting: list[StandIn] = []
    at = start
    for message in sorted(placed, key=lambda each: each.position):
        fits = at <= message.position and message.position + message.size <= end
        if not fits or message.size < size_min(message.topic.encode()):
            waiting.append(message)
            continue
        kept.append(message)
        at = message.position + message.size
    rooms = _rooms(start, end, kept)
    waiting += unplaced
    result = [*kept]
    left: list[Room] = []
    for room in rooms:
        taken: list[StandIn] = []
        free = room.end - room.start
        while waiting and size_min(waiting[0].topic.encode()) <= free:
            taken.append(waiting.pop(0))
            free -= size_min(taken[-1].topic.encode())
        if not taken:
            left.append(room)
            continue
        result += _share(room, taken, free)
    return sorted(result, key=lambda each: each.position), left, waiting


def _rooms(start: int, end: int, kept: Sequence[StandIn]) -> list[Room]:
    rooms: list[Room] = []
    at = start
    for message in kept:
        if message.position > at:
            rooms.append(Room(at, message.position))
        at = message.position + message.size
    if at < end:
        rooms.append(Room(at, end))
    return rooms


def _share(room: Room, taken: Sequence[StandIn], free: int) -> list[StandIn]:
    """Lays the messages end to end over the whole room, sharing free space evenly."""
    shared: list[StandIn] = []
    at = room.start
    for index, message in enumerate(taken):
        extra = free // (len(taken) - index)
        free -= extra
        size = size_min(message.topic.encode()) + extra
        shared.append(StandIn(message.topic, message.queue_id, message.queue_offset, at, size))
        at += size
    return shared
