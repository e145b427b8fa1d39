"""Messages of queues, block by block of their offsets: once from the log, once from the queue
files. Where both agree, block by block, every entry points to its record and none is missing.

Records without an entry (prepared, rolled back; those of batch topics, whose queues are elsewhere)
are left out, and so are entries of what the log no longer has. A record that names further queues
counts in each of them.

Invariant: however a log or a queue is divided, messages and digests of the parts sum up to those of
the whole; memory is bounded by what is taken in before rows are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.log_chunks import LogChunk
from aerobee.offset_audit.sources.store.plain_values import decimal
from aerobee.offset_audit.sources.store.queue_chunks import QueueChunk
from aerobee.offset_audit.sources.store.ranges_digest import (
    Int64Array,
    group_starts,
    mix_messages,
    sum_groups,
)
from aerobee.offset_audit.sources.store.ranges_rows import (
    ENTRIES_SOURCE,
    LOG_SOURCE,
    QUEUE_RANGES,
    Codes,
    RecordBatch,
    make_batch,
)
from aerobee.offset_audit.tables import BLOCK_OFFSETS
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX
from aerobee.store.format.properties import PropertyName, find_property
from aerobee.store.format.record_layout import (
    SYSFLAG_TRANSACTION_COMMIT,
    SYSFLAG_TRANSACTION_MASK,
    SYSFLAG_TRANSACTION_NONE,
)

_WINDOW_RECORDS: Final = 1 << 20
_SMALL_CODES: Final = 1 << 16
_NAMES: Final = PropertyName.INNER_MULTI_DISPATCH.encode()
_OFFSETS: Final = PropertyName.INNER_MULTI_QUEUE_OFFSET.encode()


@dataclass(frozen=True, slots=True)
class QueueMessages:
    """Messages in log order, a row each. `topics` are codes of `topic_names`."""

    topic_names: Sequence[str]
    topics: Int64Array
    queue_ids: Int64Array
    queue_offsets: Int64Array
    positions: Int64Array
    sizes: Int64Array
    tags_codes: Int64Array
    store_timestamps: Int64Array

    def __len__(self) -> int:
        return len(self.topics)

    def chosen(self, rows: Int64Array) -> QueueMessages:
        return QueueMessages(self.topic_names, *(column[rows] for column in self.columns))

    @property
    def columns(self) -> tuple[Int64Array, ...]:
        return (
            self.topics,
            self.queue_ids,
            self.queue_offsets,
            self.positions,
            self.sizes,
            self.tags_codes,
            self.store_timestamps,
        )


class QueuedMessages:
    """Takes chunks of a log and gives the messages that must have entries in queues."""

    def __init__(self, *, without: frozenset[str], end: int) -> None:
        """`without`: topics whose queues are of another kind; `end`: of the log, anything after it
        does not count."""
        self._without = without
        self._end = end
        self._codes: dict[str, int] = {}

    def of_chunk(self, chunk: LogChunk) -> QueueMessages:
        """Those of the chunk; topics keep their codes over all chunks."""
        records = chunk.records
        kinds = records.sys_flags & SYSFLAG_TRANSACTION_MASK
        queued = (kinds == SYSFLAG_TRANSACTION_NONE) | (kinds == SYSFLAG_TRANSACTION_COMMIT)
        positions = records.positions + chunk.position
        queued &= positions < self._end
        codes = np.array([self._code(topic) for topic in records.topic_table], np.int64)
        if self._without:
            others = [topic in self._without for topic in records.topic_table]
            queued &= ~np.array(others, np.bool_)[records.topic_codes]
        messages = QueueMessages(
            self._names(),
            codes[records.topic_codes] if len(codes) else records.topic_codes,
            records.queue_ids,
            records.queue_offsets,
            positions,
            records.sizes,
            records.tags_codes,
            records.store_timestamps,
        )
        if records.may_name_queues:
            messages = self._with_light_queues(chunk, messages, queued)
        elif not queued.all():
            messages = messages.chosen(np.flatnonzero(queued))
        return messages

    def _names(self) -> Sequence[str]:
        return list(self._codes)

    def _code(self, topic: str) -> int:
        return self._codes.setdefault(topic, len(self._codes))

    def _with_light_queues(
        self, chunk: LogChunk, messages: QueueMessages, queued: np.ndarray
    ) -> QueueMessages:
        """The queued ones, and each once more for every other queue that it names."""
        rows = np.flatnonzero(queued)
        extra: list[tuple[int, int, int]] = []
        for row in rows.tolist():
            for name, offset in _light_queues(chunk, row):
                extra.append((row, self._code(name), offset))
        if not extra:
            return messages.chosen(rows)
        more = np.array(extra, np.int64)
        order = np.concatenate((rows, more[:, 0]))
        joined = messages.chosen(order)
        joined.topics[len(rows) :] = more[:, 1]
        joined.queue_ids[len(rows) :] = 0
        joined.queue_offsets[len(rows) :] = more[:, 2]
        return QueueMessages(self._names(), *joined.columns)


def _light_queues(chunk: LogChunk, row: int) -> list[tuple[str, int]]:
    """Empty if the two properties do not match each other."""
    records = chunk.records
    start = int(records.properties_starts[row])
    end = int(records.positions[row] + records.sizes[row])
    names = find_property(chunk.buffer, start, end, _NAMES)
    offsets = find_property(chunk.buffer, start, end, _OFFSETS)
    if names is None or offsets is None:
        return []
    try:
        pairs = zip(names.decode().split(","), offsets.decode().split(","), strict=True)
        found = [(name, decimal(text)) for name, text in pairs]
    except ValueError:
        return []
    if any(offset is None for _, offset in found):
        return []
    light = ((name, at) for name, at in found if name.startswith(LIGHT_QUEUE_PREFIX))
    return [(name, at) for name, at in light if at is not None]


class LogQueueRanges:
    """QUEUE_RANGES of a log's chunks. `add` gives rows from time to time, `finish` the rest."""

    def __init__(self, store: StoreFolder, *, window_records: int = _WINDOW_RECORDS) -> None:
        self._store = store
        self._window_records = window_records
        self._parts: list[QueueMessages] = []
        self._count = 0

    def add(self, messages: QueueMessages) -> Iterator[RecordBatch]:
        self._parts.append(messages)
        self._count += len(messages)
        if self._count >= self._window_records:
            yield from self.finish()

    def finish(self) -> Iterator[RecordBatch]:
        parts, self._parts, self._count = self._parts, [], 0
        if parts and sum(map(len, parts)):
            columns = zip(*(part.columns for part in parts), strict=True)
            joined = QueueMessages(parts[-1].topic_names, *map(np.concatenate, columns))
            yield _reduce(self._store, joined)


def _reduce(store: StoreFolder, messages: QueueMessages) -> RecordBatch:
    """The rows of one window, a queue's block each."""
    queues = messages.topics * (int(messages.queue_ids.max()) + 1) + messages.queue_ids
    order = np.argsort(
        queues.astype(np.uint16) if int(queues.max()) < _SMALL_CODES else queues, kind="stable"
    )
    if int(messages.queue_ids.min()) < 0:  # no queue has such a number, but bits can flip
        order = np.lexsort((messages.queue_ids, messages.topics))
    sorted_ = messages.chosen(order)
    is_same = np.zeros(len(order), np.bool_)
    is_same[1:] = (sorted_.topics[1:] == sorted_.topics[:-1]) & (
        sorted_.queue_ids[1:] == sorted_.queue_ids[:-1]
    )
    steps = np.diff(sorted_.queue_offsets, prepend=sorted_.queue_offsets[:1])
    falls = is_same & (steps < 0)
    if falls.any():
        again = np.lexsort((sorted_.queue_offsets, sorted_.queue_ids, sorted_.topics))
        sorted_, falls = sorted_.chosen(again), falls[again]
    blocks = sorted_.queue_offsets // BLOCK_OFFSETS
    starts = group_starts(sorted_.topics, sorted_.queue_ids, blocks)
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = sorted_.queue_offsets[1:] != sorted_.queue_offsets[:-1]
    is_new[starts] = True
    ends = np.append(starts[1:], len(order))
    mixed = mix_messages(
        sorted_.queue_offsets, sorted_.positions, sorted_.sizes, sorted_.tags_codes
    )
    times = sorted_.store_timestamps
    return make_batch(
        QUEUE_RANGES,
        store,
        len(starts),
        {
            "source": LOG_SOURCE,
            "topic": Codes(sorted_.topics[starts], messages.topic_names),
            "queue_id": sorted_.queue_ids[starts].astype(np.int32),
            "block": blocks[starts],
            "first_offset": sorted_.queue_offsets[starts],
            "last_offset": sorted_.queue_offsets[ends - 1],
            "messages": ends - starts,
            "distinct_messages": np.add.reduceat(is_new.astype(np.int64), starts),
            "digest": sum_groups(mixed, starts).to_arrow(),
            "first_position": np.minimum.reduceat(sorted_.positions, starts),
            "last_position": np.maximum.reduceat(sorted_.positions, starts),
            "first_store_ms": np.minimum.reduceat(times, starts),
            "last_store_ms": np.maximum.reduceat(times, starts),
            "disorders": np.add.reduceat(falls.astype(np.int64), starts),
        },
    )


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The existing part of a log: entries that point elsewhere are ignored."""

    begin: int
    end: int


class EntryRanges:
    """QUEUE_RANGES of the chunks of one queue's files."""

    def __init__(self, store: StoreFolder, bounds: LogBounds) -> None:
        self._store = store
        self._bounds = bounds

    def of_chunk(self, chunk: QueueChunk, tags_codes: Int64Array) -> RecordBatch | None:
        """The rows of one chunk; None if nothing in it counts."""
        positions = chunk.positions
        counts = chunk.sound & (positions >= self._bounds.begin) & (positions < self._bounds.end)
        if not counts.any():
            return None
        offsets, sizes = chunk.queue_offsets, chunk.sizes
        if not counts.all():
            offsets, positions = offsets[counts], positions[counts]
            sizes, tags_codes = sizes[counts], tags_codes[counts]
        blocks = offsets // BLOCK_OFFSETS
        # Offsets rise without exception, so blocks do not fall.
        numbers = np.arange(int(blocks[0]) + 1, int(blocks[-1]) + 1)
        starts = np.concatenate(([0], np.searchsorted(offsets, numbers * BLOCK_OFFSETS)))
        starts = np.unique(starts[starts < len(offsets)])
        ends = np.append(starts[1:], len(offsets))
        falls = np.zeros(len(offsets), np.int64)
        falls[1:] = positions[1:] < positions[:-1]
        mixed = mix_messages(offsets, positions, sizes, tags_codes)
        return make_batch(
            QUEUE_RANGES,
            self._store,
            len(starts),
            {
                "source": ENTRIES_SOURCE,
                "topic": chunk.piece.topic,
                "queue_id": chunk.piece.queue_id,
                "block": blocks[starts],
                "first_offset": offsets[starts],
                "last_offset": offsets[ends - 1],
                "messages": ends - starts,
                "distinct_messages": ends - starts,
                "digest": sum_groups(mixed, starts).to_arrow(),
                "first_position": np.minimum.reduceat(positions, starts),
                "last_position": np.maximum.reduceat(positions, starts),
                "disorders": np.add.reduceat(falls, starts),
            },
        )
