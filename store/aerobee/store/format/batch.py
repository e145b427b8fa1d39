"""A batch of records as the broker accepts it: checked as a whole before anything is stored.

A batch is refused as a whole, with the index of the first bad record. Large batches are checked
with arrays, smaller ones in a loop over records that have the same layout. Both only find out
*whether* something is wrong; the check of single records always says what, so all paths refuse
alike.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NoReturn

import numpy as np
from isal.isal_zlib import crc32

from aerobee.store.format.batch_properties import BatchProperties
from aerobee.store.format.body_checksums import bodies_match
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.property_crc import (
    PROPERTY_CRC_NAME,
    PROPERTY_CRC_PREFIX,
    PROPERTY_CRC_SIZE,
    has_property_crc,
)
from aerobee.store.format.record_arrays import RecordArrays, byte_field, parse_records, read_field
from aerobee.store.format.record_layout import (
    BODY_AT,
    CRC_MASK,
    HOST_V6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_BYTES_MAX,
    RECORD_SIZE_MIN,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_HOSTS_MASK,
    SYSFLAG_STORE_HOST_V6,
    TOPIC_V1_BYTES_MAX,
)
from aerobee.store.format.tags import TagsCodes, has_tags

__all__ = [
    "BatchFault",
    "BatchIllegal",
    "BatchLimits",
    "CheckedBatch",
    "check_batch",
    "number_batch",
]

MIB: Final = 1 << 20

# Below this many records the arrays cost more than they save.
ARRAY_RECORDS_MIN: Final = 100
# Below this many they are checked one by one, without looking for a common layout.
ALIKE_RECORDS_MIN: Final = 3

# By the number of IPv6 hosts among the two.
_HEADS: Final = tuple(struct.Struct(f">iii24xi{44 + HOST_V6_EXTRA * n}xi") for n in range(3))
_HEAD: Final = _HEADS[0]
_I32: Final = struct.Struct(">i")


Rows = tuple[list[int], list[int], list[int], list[bytes]]
"""For each record its start, its system flag, and the start of its properties; and the properties.
"""


class BatchFault(StrEnum):
    """Why a batch is refused."""

    EMPTY = "empty"
    SIZES = "sizes"
    BATCH_TOO_LARGE = "batch too large"
    MAGIC = "magic"
    LENGTHS = "lengths"
    TOPIC = "topic"
    HOST = "host"
    BODY_EMPTY = "body empty"
    BODY_TOO_LARGE = "body too large"
    RECORD_TOO_LARGE = "record too large"
    PROPERTIES_TOO_LARGE = "properties too large"
    BODY_CRC = "body crc"
    TRANSACTION = "transaction"
    INNER_BATCH = "inner batch"
    RESERVED = "reserved property"
    DELAY = "delay"


class BatchIllegal(ValueError):
    """A refused batch: why, and the index of the first bad record (-1: the batch itself)."""

    def __init__(self, kind: BatchFault, index: int, message: str) -> None:
        super().__init__(message if index < 0 else f"record {index}: {message}")
        self.kind = kind
        self.index = index
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What a broker accepts, in bytes."""

    body_bytes_min: int = 0
    """1 refuses empty bodies, which the format allows."""
    body_bytes_max: int = 4 * MIB
    record_bytes_max: int = 4 * MIB + 65_536
    batch_bytes_max: int = 4 * MIB + 65_536
    properties_bytes_max: int = PROPERTIES_BYTES_MAX
    topic_bytes_max: int = 127
    retry_topic_bytes_max: int = 255


def check_batch(
    records: bytes | memoryview,
    sizes: Sequence[int],
    *,
    topic: str,
    limits: BatchLimits,
    store_host_ipv6: bool,
    tags: TagsCodes,
    array_records_min: int = ARRAY_RECORDS_MIN,
) -> CheckedBatch:
    """Verify records. Raises BatchIllegal.

    A large batch in writable memory is checked, stamped and written where it is: the memory must
    be nobody else's. All other records are copied once.

    `store_host_ipv6` is the family of the broker's own host: the slot in each record must fit it.
    From `array_records_min` records on, arrays are used; the result is the same.
    """
    topic_bytes = topic.encode("utf-8", "surrogatepass")
    _check_whole(records, sizes, topic, len(topic_bytes), limits)
    if len(sizes) >= array_records_min:
        arrays = _records_of(records, sizes, topic_bytes, limits, store_host_ipv6=store_host_ipv6)
        if arrays is not None:
            return _batch_of_arrays(records, arrays, topic, tags, store_host_ipv6=store_host_ipv6)
    check = _RecordCheck(bytes(records), topic_bytes, limits, store_host_ipv6)
    return _batch_of_rows(check, sizes, topic, tags)


def number_batch(batch: CheckedBatch, runs: Sequence[ProducerRun]) -> None:
    """Let the stamp write producers' numbers; `runs` cover all records in order.

    Raises BatchIllegal: records of transactions use that field for something else.
    """
    if batch.has_transactions:
        message = "messages of a transaction have no producer's number; send them without one"
        raise BatchIllegal(BatchFault.TRANSACTION, -1, message)
    batch.producers = runs


def _check_whole(
    records: bytes | memoryview,
    sizes: Sequence[int],
    topic: str,
    topic_size: int,
    limits: BatchLimits,
) -> None:
    is_retry = topic.startswith(RETRY_PREFIX)
    topic_bytes_max = limits.retry_topic_bytes_max if is_retry else limits.topic_bytes_max
    if not 0 < topic_size <= topic_bytes_max:
        message = f"the topic's name has {topic_size} bytes; 1 to {topic_bytes_max} are allowed"
        raise BatchIllegal(BatchFault.TOPIC, -1, message)
    if not sizes:
        raise BatchIllegal(BatchFault.EMPTY, -1, "the batch has no records; send at least one")
    if sum(sizes) != len(records) or min(sizes) <= 0:
        message = f"the {len(sizes)} record sizes do not divide the batch's {len(records)} bytes"
        raise BatchIllegal(BatchFault.SIZES, -1, message)
    if len(records) > limits.batch_bytes_max:
        message = f"{len(records)} bytes exceed the limit of {limits.batch_bytes_max}; send less"
        if len(sizes) == 1:
            raise BatchIllegal(BatchFault.RECORD_TOO_LARGE, 0, message)
        raise BatchIllegal(BatchFault.BATCH_TOO_LARGE, -1, message)


def _batch_of_rows(
    check: _RecordCheck, sizes: Sequence[int], topic: str, tags: TagsCodes
) -> CheckedBatch:
    alike = check.alike(sizes) if len(sizes) >= ALIKE_RECORDS_MIN else None
    starts, sys_flags, properties_starts, properties = alike or check.each(sizes)
    texts = BatchProperties.of(properties)
    property_crcs: list[int] = []
    if PROPERTY_CRC_PREFIX in texts.joined:
        property_crcs = [
            index for index, text in enumerate(properties) if has_property_crc(text, 0, len(text))
        ]
    return CheckedBatch(
        buffer=check.buffer,
        topic=topic,
        store_host_ipv6=check.store_host_ipv6,
        starts=starts,
        sizes=list(sizes),
        sys_flags=sys_flags,
        properties_starts=properties_starts,
        properties=texts,
        property_crcs=property_crcs,
        tags=tags,
        tags_codes=tags.codes_of(properties, texts.joined),
    )


def _batch_of_arrays(
    records: bytes | memoryview,
    arrays: RecordArrays,
    topic: str,
    tags: TagsCodes,
    *,
    store_host_ipv6: bool,
) -> CheckedBatch:
    buffer: bytearray | memoryview
    if isinstance(records, memoryview) and not records.readonly:
        buffer = records
    else:
        buffer = bytearray(records)
    properties = BatchProperties.at(records, arrays.properties_starts, arrays.ends)
    # Records are longer than 20 bytes, so the positions are inside the buffer.
    names = byte_field(records, ">i8")[arrays.ends - PROPERTY_CRC_SIZE]
    property_crcs = [
        index
        for index in np.flatnonzero(names == PROPERTY_CRC_NAME).tolist()
        if has_property_crc(properties[index], 0, len(properties[index]))
    ]
    return CheckedBatch(
        buffer=buffer,
        topic=topic,
        store_host_ipv6=store_host_ipv6,
        starts=arrays.starts,
        sizes=arrays.ends - arrays.starts,
        sys_flags=arrays.sys_flags,
        properties_starts=arrays.properties_starts,
        properties=properties,
        property_crcs=property_crcs,
        tags=tags,
        tags_codes=(
            np.array(tags.codes_of(properties, properties.joined), np.int64)
            if has_tags(properties.joined)
            else np.zeros(len(properties), np.int64)
        ),
    )


class _RecordCheck:
    """What every record of a batch must satisfy, checked for one record or for many."""

    __slots__ = (
        "buffer",
        "limits",
        "records",
        "store_host_bit",
        "store_host_ipv6",
        "topic",
        "view",
    )

    def __init__(
        self, records: bytes, topic: bytes, limits: BatchLimits, store_host_ipv6: bool
    ) -> None:
        # The incoming bytes are read because their slices are hashable; the copy is what is kept.
        self.records = records
        self.buffer = bytearray(records)
        self.view = memoryview(records)
        self.topic = topic
        self.limits = limits
        self.store_host_ipv6 = store_host_ipv6
        self.store_host_bit = SYSFLAG_STORE_HOST_V6 if store_host_ipv6 else 0

    def alike(self, sizes: Sequence[int]) -> Rows | None:
        """The columns of all records, or None if one of them is illegal, or unless all are of
        version 1 with hosts of the same families, as one producer's are."""
        records, view, topic = self.records, self.view, self.topic
        limits = self.limits
        size_min = min(sizes)
        if size_min < RECORD_SIZE_MIN or len(topic) > TOPIC_V1_BYTES_MAX:
            return None
        hosts = self.store_host_bit | (records[SYS_FLAG_AT + 3] & SYSFLAG_BORN_HOST_V6)
        ipv6_count = hosts.bit_count()
        if (
            size_min < RECORD_SIZE_MIN + HOST_V6_EXTRA * ipv6_count
            or max(sizes) > limits.record_bytes_max
        ):
            return None
        unpack = _HEADS[ipv6_count].unpack_from
        body_at = BODY_AT + HOST_V6_EXTRA * ipv6_count
        body_min, body_max = max(limits.body_bytes_min, 0), limits.body_bytes_max
        properties_max = min(limits.properties_bytes_max, PROPERTIES_BYTES_MAX)
        # From the body's end to the properties: the topic and two lengths.
        trailer_size = len(topic) + 3
        trailer = b""
        known_size = -1
        columns: Rows = ([], [], [], [])
        starts, sys_flags, properties_starts, properties = columns
        start = 0
        for size in sizes:
            total, magic, stored_crc, sys_flag, body_length = unpack(records, start)
            end = start + size
            body_start = start + body_at
            body_end = body_start + body_length
            properties_start = body_end + trailer_size
            properties_size = end - properties_start
            if properties_size != known_size:
                if not 0 <= properties_size <= properties_max:
                    return None
                known_size = properties_size
                trailer = b"%c%b%b" % (len(topic), topic, properties_size.to_bytes(2, "big"))
            if (
                total != size
                or magic != MAGIC_V1
                or sys_flag & SYSFLAG_HOSTS_MASK != hosts
                or not body_min <= body_length <= body_max
                or records[body_end:properties_start] != trailer
                or crc32(view[body_start:body_end]) & CRC_MASK != stored_crc
            ):
                return None
            starts.append(start)
            sys_flags.append(sys_flag)
            properties_starts.append(properties_start)
            properties.append(records[properties_start:end])
            start = end
        return columns

    def each(self, sizes: Sequence[int]) -> Rows:
        """The columns of all records, or BatchIllegal."""
        columns: Rows = ([], [], [], [])
        starts, sys_flags, properties_starts, properties = columns
        start = 0
        for index, size in enumerate(sizes):
            end = start + size
            sys_flag, properties_start = self.one(index, start, end)
            starts.append(start)
            sys_flags.append(sys_flag)
            properties_starts.append(properties_start)
            properties.append(self.records[properties_start:end])
            start = end
        return columns

    def one(self, index: int, start: int, end: int) -> tuple[int, int]:
        """System flag and properties' position of the record at [start, end), or BatchIllegal."""
        buffer = self.records
        size = end - start
        if size < RECORD_SIZE_MIN:
            _refuse(BatchFault.LENGTHS, index, f"{size} bytes are too few for a record")
        total, magic, stored_crc, sys_flag, body_length = _HEAD.unpack_from(buffer, start)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            _refuse(BatchFault.MAGIC, index, f"magic {magic & 0xFFFFFFFF:#010x} is not a message")
        if total != size:
            _refuse(BatchFault.LENGTHS, index, f"it says {total} bytes, the batch says {size}")
        body_start = start + BODY_AT
        if sys_flag & SYSFLAG_BORN_HOST_V6:
            body_start += HOST_V6_EXTRA
        if sys_flag & SYSFLAG_STORE_HOST_V6:
            body_start += HOST_V6_EXTRA
        topic_length_size = 1 if magic == MAGIC_V1 else 2
        trailer_size = topic_length_size + 2
        if body_start != start + BODY_AT:
            if body_start + trailer_size > end:
                _refuse(BatchFault.LENGTHS, index, f"{size} bytes are too few for its hosts")
            (body_length,) = _I32.unpack_from(buffer, body_start - 4)
        body_end = body_start + body_length
        if body_length < 0 or body_end + trailer_size > end:
            _refuse(BatchFault.LENGTHS, index, f"body length {body_length} does not fit")
        topic_start = body_end + topic_length_size
        topic_end = topic_start + int.from_bytes(buffer[body_end:topic_start], "big")
        if topic_end + 2 > end:
            _refuse(BatchFault.LENGTHS, index, "the topic length does not fit")
        properties_start = topic_end + 2
        properties_length = int.from_bytes(buffer[topic_end:properties_start], "big")
        if properties_length != end - properties_start:
            _refuse(BatchFault.LENGTHS, index, f"properties length {properties_length} is wrong")
        self._check_values(index, sys_flag, magic, buffer[topic_start:topic_end])
        self._check_limits(index, body_length, size, properties_length)
        if crc32(self.view[body_start:body_end]) & CRC_MASK != stored_crc:
            _refuse(BatchFault.BODY_CRC, index, "the body differs from its CRC; send it again")
        return sys_flag, properties_start

    def _check_values(self, index: int, sys_flag: int, magic: int, topic: bytes) -> None:
        if topic != self.topic:
            _refuse(BatchFault.TOPIC, index, f"it is for topic {topic!r:.80}")
        if magic == MAGIC_V1 and len(topic) > TOPIC_V1_BYTES_MAX:
            _refuse(BatchFault.TOPIC, index, "a topic above 127 bytes needs a version 2 record")
        if sys_flag & SYSFLAG_STORE_HOST_V6 != self.store_host_bit:
            family = "IPv6" if self.store_host_ipv6 else "IPv4"
            message = f"its store host slot does not fit the broker's {family} address"
            _refuse(BatchFault.HOST, index, message)

    def _check_limits(self, index: int, body: int, record: int, properties: int) -> None:
        limits = self.limits
        if body < limits.body_bytes_min:
            _refuse(BatchFault.BODY_EMPTY, index, "it has no body; send at least one byte")
        if body > limits.body_bytes_max:
            message = f"its body of {body} bytes exceeds the limit of {limits.body_bytes_max}"
            _refuse(BatchFault.BODY_TOO_LARGE, index, message)
        if record > limits.record_bytes_max:
            message = f"its {record} bytes exceed the limit of {limits.record_bytes_max}"
            _refuse(BatchFault.RECORD_TOO_LARGE, index, message)
        # The format itself ends there: the length is a signed 16-bit number.
        properties_bytes_max = min(limits.properties_bytes_max, PROPERTIES_BYTES_MAX)
        if properties > properties_bytes_max:
            message = (
                f"its properties of {properties} bytes exceed the limit "
                f"of {properties_bytes_max}; put large values into the body"
            )
            _refuse(BatchFault.PROPERTIES_TOO_LARGE, index, message)


def _records_of(
    records: bytes | memoryview,
    sizes: Sequence[int],
    topic: bytes,
    limits: BatchLimits,
    *,
    store_host_ipv6: bool,
) -> RecordArrays | None:
    """The columns of all records, or None if one of them is illegal."""
    if isinstance(sizes, array):
        size_column = np.asarray(sizes).astype(np.int64)
    else:
        size_column = np.fromiter(sizes, np.int64, len(sizes))
    if int(size_column.min()) < RECORD_SIZE_MIN:
        return None
    ends = np.cumsum(size_column)
    arrays = parse_records(records, ends - size_column, ends)
    is_long_v1 = len(topic) > TOPIC_V1_BYTES_MAX
    if is_long_v1 and (read_field(byte_field(records, ">i4"), arrays.starts + 4) == MAGIC_V1).any():
        return None
    store_host_bit = SYSFLAG_STORE_HOST_V6 if store_host_ipv6 else 0
    body_sizes = arrays.body_ends - arrays.body_starts
    if not (
        arrays.legal.all()
        and ((arrays.sys_flags & SYSFLAG_STORE_HOST_V6) == store_host_bit).all()
        and _topics_equal(records, arrays, topic)
        and int(body_sizes.max()) <= limits.body_bytes_max
        and int(body_sizes.min()) >= limits.body_bytes_min
        and int(size_column.max()) <= limits.record_bytes_max
        and int((ends - arrays.properties_starts).max()) <= limits.properties_bytes_max
    ):
        return None
    return arrays if bodies_match(records, arrays).all() else None


def _topics_equal(records: bytes | memoryview, arrays: RecordArrays, topic: bytes) -> bool:
    """Whether each record has the batch's topic; lengths must be legal."""
    width = len(topic)
    if ((arrays.topic_ends - arrays.topic_starts) != width).any():
        return False
    # Element p is the text at byte p. Padding zeros do not matter: the lengths are equal.
    text = np.ndarray((len(records) - width + 1,), f"S{width}", records, 0, (1,))
    return bool((text[arrays.topic_starts] == topic).all())


def _refuse(kind: BatchFault, index: int, message: str) -> NoReturn:
    raise BatchIllegal(kind, index, message)
