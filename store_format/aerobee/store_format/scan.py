"""Records end to end in a buffer, up to the first byte that is none: recovery and rebuilding.

Only hopping from size to size is a loop; lengths, checksums and fields are checked and read as
arrays. The result is what a record-by-record reader finds, and says where and why it stopped.
Always: everything before `valid_end` is whole records, and bodies have their CRC if asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from isal.isal_zlib import crc32

from aerobee.store_format.index_file import IndexKeys
from aerobee.store_format.index_keys import hash_keys, topic_hash
from aerobee.store_format.record_arrays import (
    Int64Array,
    RecordArrays,
    byte_field,
    hosts_extra,
    parse_records,
    read_field,
)
from aerobee.store_format.record_layout import (
    BLANK_SIZE_MIN,
    BODY_CRC_AT,
    CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_AT,
    SYSFLAG_TRANSACTION_MASK,
    SYSFLAG_TRANSACTION_ROLLBACK,
    is_topic_storable,
)
from aerobee.store_format.tags import SCHEDULE_TOPIC, TagsCodes



class ScanEnd(StrEnum):
    """Why a scan stopped."""

    BUFFER_END = "buffer end"  # every byte belongs to a record
    BLANK = "blank"  # the filler at a segment's end
    ZERO = "zero"  # never written: size and magic are 0
    BAD_MAGIC = "bad magic"
    BAD_LENGTHS = "bad lengths"  # lengths inside the record contradict its size
    BAD_TOPIC = "bad topic"  # a name that can be no topic's: torn inside the topic
    BAD_CRC = "bad crc"  # the body is not the one that was written
    TORN = "torn"  # never given by a scan: zeros where a sector of properties belongs
    TRUNCATED = "truncated"  # needs bytes behind the buffer's end


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Columns over the whole records, in log order; positions are relative to the buffer.

    `topic_codes` index `topic_table`; properties lie from `properties_starts` to the record's end.
    """

    positions: Int64Array
    sizes: Int64Array
    sys_flags: Int64Array
    queue_ids: Int64Array
    queue_offsets: Int64Array
    physical_offsets: Int64Array
    store_timestamps: Int64Array
    tags_codes: Int64Array
    topic_codes: Int64Array
    topic_table: tuple[str, ...]
    properties_starts: Int64Array
    # Where the first byte that is no whole record lies, and why.
    valid_end: int
    end: ScanEnd
    # The size field found at `valid_end`, 0 if there is none: of a blank, the bytes it covers.
    end_size: int

    @property
    def count(self) -> int:
        return len(self.positions)

    def index_keys(
        self, buffer: bytes | bytearray | memoryview, position: int, chosen: Int64Array
    ) -> IndexKeys:
        """What the key index is to know of the records with the indexes `chosen`, which rise.

        `buffer` is what was scanned, `position` its place in the log. Rollbacks are left out.
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
    """All whole records from the buffer's first byte on. Never raises for what the bytes say."""
    starts, ends = hop(buffer)
    valid_end = int(ends[-1]) if len(ends) else 0
    end = _why_hopping_ended(buffer, valid_end)
    arrays = parse_records(buffer, starts, ends)
    if not arrays.legal.all():
        arrays = _first(arrays, int(np.argmin(arrays.legal)))
        end = ScanEnd.BAD_LENGTHS
    topic_codes, topics = number_pieces(buffer, arrays.topic_starts, arrays.topic_ends)
    unfit = [code for code, topic in enumerate(topics) if not is_topic_storable(topic)]
    if unfit:
        # Codes are numbered by first appearance, so the first unfit one appears first.
        arrays = _first(arrays, int(np.argmax(topic_codes == unfit[0])))
        end = ScanEnd.BAD_TOPIC
    if check_crc:
        sound = _count_sound(buffer, arrays)
        if sound < len(arrays.starts):
            arrays = _first(arrays, sound)
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


def _count_sound(buffer: bytes | bytearray | memoryview, arrays: RecordArrays) -> int:
    """How many records, before the first other, have the body their CRC says.

    Empty bodies need none.
    """
    stored_crcs = read_field(byte_field(buffer, ">i4"), arrays.starts + BODY_CRC_AT)
    view = memoryview(buffer)
    spans = zip(arrays.body_starts.tolist(), arrays.body_ends.tolist(), strict=True)
    crcs = np.array([crc32(view[start:end]) for start, end in spans], np.int64) & CRC_MASK
    unsound = (crcs != stored_crcs) & (arrays.body_ends > arrays.body_starts)
    return int(np.argmax(unsound)) if unsound.any() else len(crcs)


def _first(arrays: RecordArrays, count: int) -> RecordArrays:
    return RecordArrays(
        starts=arrays.starts[:count],
        ends=arrays.ends[:count],
        sys_flags=arrays.sys_flags[:count],
        body_starts=arrays.body_starts[:count],
        body_ends=arrays.body_ends[:count],
        topic_starts=arrays.topic_starts[:count],
        topic_ends=arrays.topic_ends[:count],
        properties_starts=arrays.properties_starts[:count],
        legal=arrays.legal[:count],
    )


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
    # Searching needs bytes; properties are all that is searched.
    data, properties_starts, properties_ends = _searchable(buffer, arrays)
    tags_codes = np.array(tags.codes_in(data, properties_starts, properties_ends), np.int64)
    if SCHEDULE_TOPIC in topic_table:
        scheduled = topic_codes == topic_table.index(SCHEDULE_TOPIC)
        for index in np.flatnonzero(scheduled).tolist():
            tags_codes[index] = tags.scheduled_code_in(
                data,
                properties_starts[index],
                properties_ends[index],
                int(store_timestamps[index]),
            )
    return ScanResult(
        positions=starts,
        sizes=arrays.ends - starts,
        sys_flags=arrays.sys_flags,
        queue_ids=read_field(int32s, starts + QUEUE_ID_AT),
        queue_offsets=read_field(int64s, starts + QUEUE_OFFSET_AT),
        physical_offsets=read_field(int64s, starts + PHYSICAL_OFFSET_AT),
        store_timestamps=store_timestamps,
        tags_codes=tags_codes,
        topic_codes=topic_codes,
        topic_table=topic_table,
        properties_starts=arrays.properties_starts,
        valid_end=valid_end,
        end=end,
        end_size=end_size,
    )
