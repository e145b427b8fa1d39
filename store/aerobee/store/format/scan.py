"""Scans records end to end in a buffer, up to the first byte that is not one: for recovery and
rebuilding.

Lengths and fields are checked and read as arrays, and what neighbours share is examined once;
checksums of bodies are computed one by one. The result is what a record-by-record reader would
find, and says where and why it stopped.
Invariant: everything before `valid_end` is whole records, whose bodies match their CRC if that was
requested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from aerobee.store.format.body_checksums import sound_bodies
from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_keys import hash_keys, topic_hash
from aerobee.store.format.like_pieces import LikeProperties, group_properties, number_pieces
from aerobee.store.format.properties import PropertyName
from aerobee.store.format.record_arrays import (
    Int64Array,
    RecordArrays,
    byte_field,
    hosts_extra,
    parse_records,
    read_field,
)
from aerobee.store.format.record_hops import SIZE_AND_MAGIC, hop
from aerobee.store.format.record_layout import (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    PREPARED_TRANSACTION_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_AT,
    SYSFLAG_TRANSACTION_MASK,
    SYSFLAG_TRANSACTION_ROLLBACK,
    is_topic_storable,
)
from aerobee.store.format.tags import SCHEDULE_TOPIC, TagsCodes

_LIGHT_QUEUES = PropertyName.INNER_MULTI_DISPATCH.encode()


class ScanEnd(StrEnum):
    """Why a scan stopped."""

    BUFFER_END = "buffer end"  # every byte belongs to a record
    BLANK = "blank"  # the filler at a segment's end
    ZERO = "zero"  # never written: size and magic are 0
    BAD_MAGIC = "bad magic"
    BAD_LENGTHS = "bad lengths"  # lengths inside the record contradict its size
    BAD_TOPIC = "bad topic"  # a name that no topic can have: torn inside the topic
    BAD_CRC = "bad crc"  # the body is not the one that was written
    TORN = "torn"  # never from a scan: zeros where a sector of properties belongs
    MISPLACED = "misplaced"  # never from a scan: a record of another position of the log
    TRUNCATED = "truncated"  # needs bytes past the buffer's end


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Columns over the whole records, in log order; positions are relative to the buffer.

    `topic_codes` index `topic_table`; properties are from `properties_starts` to the record's end.
    """

    positions: Int64Array
    sizes: Int64Array
    # Where the parts of each record are in the buffer.
    arrays: RecordArrays
    sys_flags: Int64Array
    queue_ids: Int64Array
    queue_offsets: Int64Array
    physical_offsets: Int64Array
    store_timestamps: Int64Array
    # 0 for none; see producer_number.py.
    producer_numbers: Int64Array
    tags_codes: Int64Array
    topic_codes: Int64Array
    topic_table: tuple[str, ...]
    properties_starts: Int64Array
    # Whether records may name further queues to which they belong; may be true without reason.
    may_name_queues: bool
    # Where and why the first byte that is not a whole record was found.
    valid_end: int
    end: ScanEnd
    # The size field at `valid_end`, 0 if there is none; for a blank, the bytes it covers.
    end_size: int

    @property
    def count(self) -> int:
        return len(self.positions)

    def index_keys(
        self, buffer: bytes | bytearray | memoryview, position: int, chosen: Int64Array
    ) -> IndexKeys:
        """What the key index needs of the records with the rising indexes `chosen`.

        `buffer` is what was scanned, `position` its position in the log. Rollbacks are left out.
        """
        transactions = self.sys_flags[chosen] & SYSFLAG_TRANSACTION_MASK
        chosen = chosen[transactions != SYSFLAG_TRANSACTION_ROLLBACK]
        starts = self.positions[chosen]
        topic_hashes = np.array([topic_hash(topic) for topic in self.topic_table], np.uint32)
        found = hash_keys(
            buffer,
            self.properties_starts[chosen],
            starts + self.sizes[chosen],
            topic_hashes[self.topic_codes[chosen]],
        )
        return IndexKeys(
            found.hashes,
            starts[found.records] + position,
            self.store_timestamps[chosen][found.records],
        )

    def before(self, index: int, end: ScanEnd) -> ScanResult:
        """The records before the one with this index, where the scan is to end."""
        return replace(
            self,
            positions=self.positions[:index],
            sizes=self.sizes[:index],
            arrays=self.arrays.only(slice(index)),
            sys_flags=self.sys_flags[:index],
            queue_ids=self.queue_ids[:index],
            queue_offsets=self.queue_offsets[:index],
            physical_offsets=self.physical_offsets[:index],
            store_timestamps=self.store_timestamps[:index],
            producer_numbers=self.producer_numbers[:index],
            tags_codes=self.tags_codes[:index],
            topic_codes=self.topic_codes[:index],
            properties_starts=self.properties_starts[:index],
            valid_end=int(self.positions[index]),
            end=end,
            end_size=int(self.sizes[index]),
        )

    @property
    def topics(self) -> list[str]:
        """The topic of each record."""
        table = self.topic_table
        return [table[code] for code in self.topic_codes.tolist()]


def scan_records(
    buffer: bytes | bytearray | memoryview,
    *,
    check_crc: bool,
    tags: TagsCodes,
) -> ScanResult:
    """All whole records from the buffer's first byte on. Never raises, whatever the bytes
    contain."""
    starts, ends = hop(buffer)
    valid_end = int(ends[-1]) if len(ends) else 0
    end = _why_hopping_ended(buffer, valid_end)
    arrays = parse_records(buffer, starts, ends)
    if not arrays.legal.all():
        arrays = arrays.only(slice(int(np.argmin(arrays.legal))))
        end = ScanEnd.BAD_LENGTHS
    topic_codes, topics = number_pieces(buffer, arrays.topic_starts, arrays.topic_ends)
    unfit = [code for code, topic in enumerate(topics) if not is_topic_storable(topic)]
    if unfit:
        # Codes are numbered by first appearance, so the lowest invalid code is the first to appear.
        arrays = arrays.only(slice(int(np.argmax(topic_codes == unfit[0]))))
        end = ScanEnd.BAD_TOPIC
    if check_crc:
        sound = sound_bodies(buffer, arrays)
        if not sound.all():
            arrays = arrays.only(slice(int(np.argmin(sound))))
            end = ScanEnd.BAD_CRC
    count = len(arrays.starts)
    if count < len(starts):
        valid_end = int(starts[count])
        topic_codes = topic_codes[:count]
        topics = topics[: int(topic_codes.max(initial=-1)) + 1]
    end_size = 0
    if len(buffer) - valid_end >= BLANK_SIZE_MIN:
        end_size = SIZE_AND_MAGIC.unpack_from(buffer, valid_end)[0]
    return _read_columns(
        buffer,
        arrays,
        topic_codes=topic_codes,
        topic_table=tuple(topic.decode("utf-8", "replace") for topic in topics),
        tags=tags,
        valid_end=valid_end,
        end=end,
        end_size=end_size,
    )


def _why_hopping_ended(buffer: bytes | bytearray | memoryview, position: int) -> ScanEnd:
    left = len(buffer) - position
    if left == 0:
        return ScanEnd.BUFFER_END
    if left < BLANK_SIZE_MIN:
        return ScanEnd.TRUNCATED
    size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return ScanEnd.BLANK
    if magic not in (MAGIC_V1, MAGIC_V2):
        return ScanEnd.ZERO if size == magic == 0 else ScanEnd.BAD_MAGIC
    if size < RECORD_SIZE_MIN:
        return ScanEnd.BAD_LENGTHS
    return ScanEnd.TRUNCATED


def _read_columns(
    buffer: bytes | bytearray | memoryview,
    arrays: RecordArrays,
    *,
    topic_codes: Int64Array,
    topic_table: tuple[str, ...],
    tags: TagsCodes,
    valid_end: int,
    end: ScanEnd,
    end_size: int,
) -> ScanResult:
    starts = arrays.starts
    int32s = byte_field(buffer, ">i4")
    int64s = byte_field(buffer, ">i8")
    extra = hosts_extra(arrays.sys_flags)
    stored_at = starts if extra is None else starts + extra[0]
    store_timestamps = read_field(int64s, stored_at + STORE_TIMESTAMP_AT)
    tags_codes, may_name_queues = _read_properties(buffer, arrays, tags)
    if SCHEDULE_TOPIC in topic_table:
        scheduled = np.flatnonzero(topic_codes == topic_table.index(SCHEDULE_TOPIC))
        data, properties_starts, properties_ends = _searchable(buffer, arrays, scheduled)
        times = store_timestamps[scheduled].tolist()
        spans = zip(properties_starts, properties_ends, times, strict=True)
        tags_codes[scheduled] = [tags.scheduled_code_in(data, *span) for span in spans]
    return ScanResult(
        positions=starts,
        sizes=arrays.ends - starts,
        arrays=arrays,
        sys_flags=arrays.sys_flags,
        queue_ids=read_field(int32s, starts + QUEUE_ID_AT),
        queue_offsets=read_field(int64s, starts + QUEUE_OFFSET_AT),
        physical_offsets=read_field(int64s, starts + PHYSICAL_OFFSET_AT),
        store_timestamps=store_timestamps,
        producer_numbers=_read_producer_numbers(int64s, arrays, extra),
        tags_codes=tags_codes,
        topic_codes=topic_codes,
        topic_table=topic_table,
        properties_starts=arrays.properties_starts,
        may_name_queues=may_name_queues,
        valid_end=valid_end,
        end=end,
        end_size=end_size,
    )


def _read_producer_numbers(
    int64s: npt.NDArray[Any], arrays: RecordArrays, extra: tuple[Int64Array, Int64Array] | None
) -> Int64Array:
    at = arrays.starts + PREPARED_TRANSACTION_OFFSET_AT
    if extra is not None:
        at += extra[1]
    numbers = read_field(int64s, at)
    numbers[(arrays.sys_flags & SYSFLAG_TRANSACTION_MASK) != 0] = 0
    return numbers


def _read_properties(
    buffer: bytes | bytearray | memoryview, arrays: RecordArrays, tags: TagsCodes
) -> tuple[Int64Array, bool]:
    """The tags codes, and whether records may name further queues."""
    groups, others = group_properties(buffer, arrays.properties_starts, arrays.ends)
    codes = np.zeros(len(arrays.starts), np.int64)
    for group in groups:
        codes[group.records] = _tags_codes_of(buffer, arrays, group, tags)
    may_name_queues = any(_LIGHT_QUEUES in group.first for group in groups)
    if len(others):
        data, starts, ends = _searchable(buffer, arrays, others)
        texts = [data[start:end] for start, end in zip(starts, ends, strict=True)]
        codes[others] = tags.codes_of(texts)
        may_name_queues = may_name_queues or any(_LIGHT_QUEUES in text for text in texts)
    return codes, may_name_queues


def _tags_codes_of(
    buffer: bytes | bytearray | memoryview,
    arrays: RecordArrays,
    group: LikeProperties,
    tags: TagsCodes,
) -> int | Int64Array:
    span = group.span_of(b"TAGS")
    if span is None:
        return 0
    starts = arrays.properties_starts[group.records]
    numbers, values = number_pieces(buffer, starts + span[0], starts + span[1])
    return np.array([tags.code_of(value) for value in values], np.int64)[numbers]


def _searchable(
    buffer: bytes | bytearray | memoryview, arrays: RecordArrays, chosen: Int64Array
) -> tuple[bytes, list[int], list[int]]:
    """The properties of records in searchable bytes, and where each record's are in them."""
    starts, ends = arrays.properties_starts[chosen], arrays.ends[chosen]
    if isinstance(buffer, bytes):
        return buffer, starts.tolist(), ends.tolist()
    view = memoryview(buffer)
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    data = b"".join([view[start:end] for start, end in spans])
    data_ends = np.cumsum(ends - starts)
    return data, (data_ends - (ends - starts)).tolist(), data_ends.tolist()
