"""A verified batch, and the stamp that makes it part of the log.

Owns: the bytes. `stamp` writes queue id, queue offset, physical offset, store timestamp, store host
and the producer's number into every record, as arrays for many records and one by one for few.
Invariant: prepared and rollback records get queue offset 0, use up no offset and have no entry.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from aerobee.store.format.batch_properties import BatchProperties
from aerobee.store.format.consume_queue_entry import pack_entries, pack_entry
from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_keys import gather_pieces, hash_alike, hash_keys, topic_hash
from aerobee.store.format.index_unhashed import LooseRecord, UnhashedKeys
from aerobee.store.format.producer_number import ProducerRun, producer_number, producer_numbers
from aerobee.store.format.property_crc import write_property_crc
from aerobee.store.format.record_arrays import Int64Array, byte_field
from aerobee.store.format.record_layout import (
    HOST_V6_EXTRA,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    PREPARED_TRANSACTION_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_TRANSACTION_MASK,
    SYSFLAG_TRANSACTION_PREPARED,
    SYSFLAG_TRANSACTION_ROLLBACK,
    HostAddress,
)
from aerobee.store.format.tags import SCHEDULE_TOPIC, TagsCodes

_MAGIC_V1_LAST_BYTE: Final = MAGIC_V1 & 0xFF

# Set in prepared and rollback, clear in none and commit.
UNQUEUED_BIT: Final = SYSFLAG_TRANSACTION_PREPARED

HASHED_BYTES_MAX: Final = 1 << 16
"""Up to this many bytes of properties, a batch's keys are hashed at once; larger ones are left to a
thread."""
_COPIED_RECORDS_MAX: Final = 4_096

_QUEUE_ID: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qq")
_NUMBER: Final = struct.Struct(">q")
_STORED: Final = {False: struct.Struct(">q8s"), True: struct.Struct(">q20s")}


class CheckedBatch:
    """Records end to end in `buffer`, verified by `check_batch`, and nobody else's.

    `buffer` must not be resized. `starts` and `sizes` are relative to it; `tags_codes` are final
    once stamped (those of the schedule topic depend on the store timestamp). `property_crcs` are
    the indexes of the records that end in a CRC of the whole record. `producers`, set before
    stamping, assigns all records, in order, to their producers; empty: no producer.
    """

    __slots__ = (
        "_any_flags",
        "_properties_starts",
        "_property_crcs",
        "_sizes",
        "_starts",
        "_sys_flags",
        "_tags",
        "_tags_codes",
        "buffer",
        "count",
        "producers",
        "properties",
        "queued_count",
        "store_host_ipv6",
        "topic",
    )

    def __init__(
        self,
        *,
        buffer: bytearray | memoryview,
        topic: str,
        store_host_ipv6: bool,
        starts: list[int] | Int64Array,
        sizes: list[int] | Int64Array,
        sys_flags: list[int] | Int64Array,
        properties_starts: list[int] | Int64Array,
        properties: BatchProperties,
        property_crcs: list[int],
        tags: TagsCodes,
        tags_codes: list[int] | Int64Array,
    ) -> None:
        self.buffer = buffer
        self.topic = topic
        self.store_host_ipv6 = store_host_ipv6
        self.count = len(starts)
        self.producers: Sequence[ProducerRun] = ()
        self._starts = starts
        self._sizes = sizes
        self._sys_flags = sys_flags
        self._properties_starts = properties_starts
        self.properties = properties
        self._property_crcs = property_crcs
        self._tags = tags
        self._tags_codes = tags_codes
        self._any_flags = (
            reduce(or_, sys_flags)
            if isinstance(sys_flags, list)
            else int(np.bitwise_or.reduce(sys_flags))
        )
        # How many queue offsets the batch uses.
        self.queued_count = self.count
        if self._any_flags & UNQUEUED_BIT:
            self.queued_count -= int(np.count_nonzero(self.sys_flags & UNQUEUED_BIT))

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return len(self.buffer)

    @property
    def starts(self) -> Int64Array:
        """Position of each record in the buffer."""
        return np.asarray(self._starts, np.int64)

    @property
    def sizes(self) -> Int64Array:
        """Bytes of each record."""
        return np.asarray(self._sizes, np.int64)

    @property
    def body_ends(self) -> list[int]:
        """Position in the buffer after each record's body."""
        # The properties are preceded by their length and the topic, whose own length field depends
        # on the version.
        after_body = 2 + len(self.topic.encode())
        buffer = self.buffer
        return [
            properties_start - after_body - (1 if buffer[start + 7] == _MAGIC_V1_LAST_BYTE else 2)
            for start, properties_start in zip(
                self.starts.tolist(),
                np.asarray(self._properties_starts, np.int64).tolist(),
                strict=True,
            )
        ]

    @property
    def largest(self) -> int:
        """Bytes of the largest record."""
        sizes = self._sizes
        return max(sizes) if isinstance(sizes, list) else int(sizes.max())

    @property
    def smallest(self) -> int:
        """Bytes of the smallest record."""
        sizes = self._sizes
        return min(sizes) if isinstance(sizes, list) else int(sizes.min())

    def size_counts(self, bounds: Sequence[int]) -> list[int]:
        """How many records are at most as large as each bound, but larger than the bound before;
        the last number counts those above all bounds, which must rise."""
        counts = [0] * (len(bounds) + 1)
        largest = bisect_left(bounds, self.largest)
        if bisect_left(bounds, self.smallest) == largest:
            counts[largest] = self.count
            return counts
        buckets = np.searchsorted(bounds, self.sizes)
        return [int(count) for count in np.bincount(buckets, minlength=len(counts))]

    @property
    def sys_flags(self) -> Int64Array:
        return np.asarray(self._sys_flags, np.int64)

    @property
    def transaction_types(self) -> Int64Array:
        """One of the SYSFLAG_TRANSACTION_* values for each record."""
        return self.sys_flags & SYSFLAG_TRANSACTION_MASK

    @property
    def has_transactions(self) -> bool:
        """Whether any record takes part in a transaction; such records carry no producer's
        number."""
        return self.has_flags(SYSFLAG_TRANSACTION_MASK)

    def has_flags(self, mask: int) -> bool:
        """Whether the system flag of any record has any bit of `mask`."""
        return self._any_flags & mask != 0

    @property
    def tags_codes(self) -> Int64Array:
        return np.asarray(self._tags_codes, np.int64)

    def stamp(
        self,
        *,
        queue_id: int,
        base_queue_offset: int,
        base_physical_offset: int,
        store_timestamp_ms: int,
        store_host: HostAddress,
    ) -> None:
        """Write what only the broker knows. May be repeated; the last stamp counts.

        `store_host` must be of the family that the batch was checked for.
        """
        assert store_host.is_ipv6 == self.store_host_ipv6, "the store host does not fit its slot"
        if isinstance(self._starts, list):
            self._stamp_one_by_one(
                queue_id, base_queue_offset, base_physical_offset, store_timestamp_ms, store_host
            )
        else:
            self._stamp_as_arrays(
                queue_id, base_queue_offset, base_physical_offset, store_timestamp_ms, store_host
            )
        if self.topic == SCHEDULE_TOPIC:
            self._tags_codes = [
                self._tags.scheduled_code_in(text, 0, len(text), store_timestamp_ms)
                for text in self.properties
            ]
        # The CRC covers everything that was stamped.
        for index in self._property_crcs:
            start = int(self._starts[index])
            write_property_crc(self.buffer, start, start + int(self._sizes[index]))

    def dispatch_entries(self, base_physical_offset: int) -> bytes:
        """The consume queue entries, end to end, of the records that have a queue offset."""
        if isinstance(self._starts, list):
            return b"".join(
                [
                    pack_entry(base_physical_offset + start, size, tags_code)
                    for start, size, sys_flag, tags_code in zip(
                        self._starts, self._sizes, self._sys_flags, self._tags_codes, strict=True
                    )
                    if not sys_flag & UNQUEUED_BIT
                ]
            )
        columns = self.starts + base_physical_offset, self.sizes, self.tags_codes
        if self.queued_count < self.count:
            queued = (self.sys_flags & UNQUEUED_BIT) == 0
            columns = columns[0][queued], columns[1][queued], columns[2][queued]
        return pack_entries(*columns)

    def index_keys(
        self, base_physical_offset: int, store_timestamp_ms: int
    ) -> IndexKeys | UnhashedKeys | list[LooseRecord]:
        """What the key index needs of the records: all but rollbacks.

        For few records only their properties, to be hashed together with those of other batches;
        also for many long ones, because hashing their keys here would take too long.
        """
        if isinstance(self._starts, list):
            return self._loose_records(base_physical_offset, store_timestamp_ms)
        starts = self.starts
        ends = starts + self.sizes
        properties_starts = np.asarray(self._properties_starts, np.int64)
        if self.queued_count < self.count:
            indexed = self.transaction_types != SYSFLAG_TRANSACTION_ROLLBACK
            starts, ends = starts[indexed], ends[indexed]
            properties_starts = properties_starts[indexed]
        if int((ends - properties_starts).sum()) > HASHED_BYTES_MAX:
            alike = hash_alike(self.buffer, properties_starts, ends, topic_hash(self.topic))
            if alike is None:
                return self._unhashed(
                    properties_starts, ends, starts + base_physical_offset, store_timestamp_ms
                )
            found = alike
        else:
            found = hash_keys(self.buffer, properties_starts, ends, topic_hash(self.topic))
        return IndexKeys(
            found.hashes,
            starts[found.records] + base_physical_offset,
            np.full(len(found.hashes), store_timestamp_ms, np.int64),
        )

    def _unhashed(
        self,
        properties_starts: Int64Array,
        ends: Int64Array,
        physical_offsets: Int64Array,
        store_timestamp_ms: int,
    ) -> UnhashedKeys:
        places = properties_starts, ends
        # Copying many small pieces takes longer than keeping everything costs.
        if len(ends) > _COPIED_RECORDS_MAX:
            properties = bytes(self.buffer)
        else:
            properties = gather_pieces(self.buffer, properties_starts, ends)
            sizes = ends - properties_starts
            places = np.cumsum(sizes) - sizes, np.cumsum(sizes)
        timestamps_ms = np.full(len(ends), store_timestamp_ms, np.int64)
        return UnhashedKeys(self.topic, properties, places, physical_offsets, timestamps_ms)

    def _loose_records(self, base: int, store_timestamp_ms: int) -> list[LooseRecord]:
        topic = self.topic
        return [
            LooseRecord(topic, text, base + start, store_timestamp_ms)
            for start, sys_flag, text in zip(
                self._starts, self._sys_flags, self.properties, strict=True
            )
            if sys_flag & SYSFLAG_TRANSACTION_MASK != SYSFLAG_TRANSACTION_ROLLBACK
        ]

    def _stamp_one_by_one(
        self,
        queue_id: int,
        queue_offset: int,
        base_physical_offset: int,
        store_timestamp_ms: int,
        store_host: HostAddress,
    ) -> None:
        buffer = self.buffer
        host = store_host.pack()
        stored = _STORED[store_host.is_ipv6]
        number_at = PREPARED_TRANSACTION_OFFSET_AT + (HOST_V6_EXTRA if store_host.is_ipv6 else 0)
        numbers = [0] * self.count
        if self.producers:
            numbers = []
            for producer_id, first, count in self.producers:
                number = producer_number(producer_id, first) if producer_id else 0
                numbers += range(number, number + count) if number else [0] * count
        for start, sys_flag, number in zip(self._starts, self._sys_flags, numbers, strict=True):
            _QUEUE_ID.pack_into(buffer, start + QUEUE_ID_AT, queue_id)
            is_queued = not sys_flag & UNQUEUED_BIT
            _OFFSETS.pack_into(
                buffer,
                start + QUEUE_OFFSET_AT,
                queue_offset if is_queued else 0,
                base_physical_offset + start,
            )
            queue_offset += is_queued
            extra = HOST_V6_EXTRA if sys_flag & SYSFLAG_BORN_HOST_V6 else 0
            stored.pack_into(buffer, start + STORE_TIMESTAMP_AT + extra, store_timestamp_ms, host)
            if not sys_flag & SYSFLAG_TRANSACTION_MASK:
                _NUMBER.pack_into(buffer, start + number_at + extra, number)

    def _stamp_as_arrays(
        self,
        queue_id: int,
        base_queue_offset: int,
        base_physical_offset: int,
        store_timestamp_ms: int,
        store_host: HostAddress,
    ) -> None:
        starts = self.starts
        sys_flags = self.sys_flags
        int32s = byte_field(self.buffer, ">i4")
        int64s = byte_field(self.buffer, ">i8")
        int32s[starts + QUEUE_ID_AT] = queue_id
        if self.queued_count == self.count:
            queue_offsets = np.arange(base_queue_offset, base_queue_offset + self.count)
        else:
            queued = (sys_flags & UNQUEUED_BIT) == 0
            queue_offsets = np.where(queued, base_queue_offset + np.cumsum(queued) - queued, 0)
        int64s[starts + QUEUE_OFFSET_AT] = queue_offsets
        int64s[starts + PHYSICAL_OFFSET_AT] = starts + base_physical_offset
        stored_at = starts
        if (sys_flags & SYSFLAG_BORN_HOST_V6).any():
            stored_at = starts + np.where(sys_flags & SYSFLAG_BORN_HOST_V6, HOST_V6_EXTRA, 0)
        int64s[stored_at + STORE_TIMESTAMP_AT] = store_timestamp_ms
        host = store_host.pack()
        host_at = stored_at + STORE_HOST_AT
        for at in range(0, len(host) - 4, 8):
            int64s[host_at + at] = int.from_bytes(host[at : at + 8], "big", signed=True)
        int32s[host_at + (len(host) - 4)] = store_host.port
        self._stamp_numbers(stored_at)

    def _stamp_numbers(self, stored_at: Int64Array) -> None:
        """`stored_at`: the starts of records, shifted by what their born hosts take beyond IPv4's
        size."""
        at = stored_at + PREPARED_TRANSACTION_OFFSET_AT
        if self.store_host_ipv6:
            at += HOST_V6_EXTRA
        numbers: Int64Array | int = producer_numbers(self.producers) if self.producers else 0
        if self.has_transactions:
            ordinary = (self.sys_flags & SYSFLAG_TRANSACTION_MASK) == 0
            at = at[ordinary]
            numbers = numbers if isinstance(numbers, int) else numbers[ordinary]
        byte_field(self.buffer, ">i8")[at] = numbers
