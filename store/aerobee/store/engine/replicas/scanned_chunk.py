"""Records received as bytes of another log, on their way to the queues and the key index.

A piece of the log has records of many queues, and any record may be the last confirmed one. So the
end of each record is kept, and the piece can be split there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from aerobee.store.engine.queues.consume_queue import ConsumeQueue
from aerobee.store.format.checked_batch import HASHED_BYTES_MAX
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_keys import gather_pieces, hash_alike, topic_hash
from aerobee.store.format.index_unhashed import LooseRecord, UnhashedKeys, join_keys
from aerobee.store.format.record_arrays import Int64Array
from aerobee.store.format.record_layout import (
    SYSFLAG_TRANSACTION_MASK,
    SYSFLAG_TRANSACTION_ROLLBACK,
)
from aerobee.store.format.scan import ScanResult

Keys = IndexKeys | UnhashedKeys | Sequence[LooseRecord]

_LOOSE_RECORDS_MAX: Final = 24
"""For up to this many records, keys are extracted together with those of others."""
_COPIED_RECORDS_MAX: Final = 4_096


class QueueRun(NamedTuple):
    """A queue's part of a piece of the log; `ends` are those of its records."""

    queue: ConsumeQueue
    entries: bytes
    ends: Int64Array

    def part(self, start: int, end: int) -> QueueRun:
        entries = self.entries[start * ENTRY_SIZE : end * ENTRY_SIZE]
        return QueueRun(self.queue, entries, self.ends[start:end])


class EndedQueues(NamedTuple):
    """Queues of a topic whose end is the record that ends at `end`."""

    end: int
    queues: Sequence[ConsumeQueue]


class ScannedChunk(NamedTuple):
    """Complete records in log order; `ends` and `store_timestamps_ms` cover all of them, including
    those that have no place in a queue."""

    ends: Int64Array
    store_timestamps_ms: Int64Array
    runs: Sequence[QueueRun]
    keys: Keys
    ended: Sequence[EndedQueues] = ()

    @property
    def end(self) -> int:
        return int(self.ends[-1])

    @property
    def store_timestamp_ms(self) -> int:
        """The time of the last record."""
        return int(self.store_timestamps_ms[-1])

    def divide(self, end: int) -> tuple[ScannedChunk, ScannedChunk] | None:
        """The records that end at or before `end`, and the others; None if all or none do."""
        count = _count(self.ends, end)
        if count in (0, len(self.ends)):
            return None
        first: list[QueueRun] = []
        rest: list[QueueRun] = []
        for run in self.runs:
            in_first = _count(run.ends, end)
            if in_first:
                first.append(run.part(0, in_first))
            if in_first < len(run.ends):
                rest.append(run.part(in_first, len(run.ends)))
        keys, rest_keys = _divide_keys(self.keys, int(self.ends[count - 1]))
        ended = [each for each in self.ended if each.end <= end]
        rest_ended = self.ended[len(ended) :]
        return (
            ScannedChunk(self.ends[:count], self.store_timestamps_ms[:count], first, keys, ended),
            ScannedChunk(
                self.ends[count:], self.store_timestamps_ms[count:], rest, rest_keys, rest_ended
            ),
        )


def _count(ends: Int64Array, end: int) -> int:
    return int(np.searchsorted(ends, end, side="right"))


def _divide_keys(keys: Keys, end: int) -> tuple[Keys, Keys]:
    if isinstance(keys, UnhashedKeys):
        keys = join_keys(list(keys.hashed()))
    if isinstance(keys, IndexKeys):
        count = int(np.searchsorted(keys.physical_offsets, end))
        return keys.part(0, count), keys.part(count, len(keys))
    first = [record for record in keys if record.physical_offset < end]
    return first, keys[len(first) :]


def scanned_keys(result: ScanResult, data: bytes, position: int) -> Keys:
    """The keys of scanned records for the key index; `data` is at `position` of the log.

    As for the keys of a batch, hashing many long properties is left to another thread.
    """
    indexed = (result.sys_flags & SYSFLAG_TRANSACTION_MASK) != SYSFLAG_TRANSACTION_ROLLBACK
    chosen = np.flatnonzero(indexed)
    if len(chosen) <= _LOOSE_RECORDS_MAX:
        return _loose_records(result, data, position, chosen.tolist())
    starts = result.positions[chosen]
    ends = starts + result.sizes[chosen]
    properties_starts = result.properties_starts[chosen]
    if int((ends - properties_starts).sum()) <= HASHED_BYTES_MAX:
        return result.index_keys(data, position, chosen)
    table = result.topic_table
    codes = result.topic_codes[chosen]
    prefixes = np.array([topic_hash(topic) for topic in table], np.uint32)[codes]
    alike = hash_alike(data, properties_starts, ends, prefixes)
    if alike is not None:
        records = alike.records
        times = result.store_timestamps[chosen]
        return IndexKeys(alike.hashes, starts[records] + position, times[records])
    properties: bytes | bytearray = data
    places = properties_starts, ends
    if len(chosen) <= _COPIED_RECORDS_MAX:
        properties = gather_pieces(data, properties_starts, ends)
        sizes = ends - properties_starts
        places = np.cumsum(sizes) - sizes, np.cumsum(sizes)
    topics = [table[code] for code in codes.tolist()]
    return UnhashedKeys(
        topics, properties, places, starts + position, result.store_timestamps[chosen]
    )


def _loose_records(
    result: ScanResult, data: bytes, position: int, chosen: list[int]
) -> list[LooseRecord]:
    starts = result.positions.tolist()
    sizes = result.sizes.tolist()
    properties_starts = result.properties_starts.tolist()
    topics = result.topics
    times = result.store_timestamps.tolist()
    return [
        LooseRecord(
            topics[index],
            data[properties_starts[index] : starts[index] + sizes[index]],
            starts[index] + position,
            times[index],
        )
        for index in chosen
    ]
