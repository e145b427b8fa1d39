"""Single messages and keys of some blocks, read again where log and queues, or log and index,
differ.

Both engines read them as any other source. What is to be read is planned from the blocks: a queue's
blocks together, because its folder is listed for them, and a stretch of the log once for all blocks
that may have records in it. Blocks are few: 10^10 messages have 150,000, if all of them differ.

Invariant: the rows are those of which the blocks' sums were made, from the same readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from pyspark.sql.datasource import DataSourceReader, InputPartition

from aerobee.offset_audit.sources.store.files import index_files, log_segments, queue_files
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.index_geometry import IndexFile
from aerobee.offset_audit.sources.store.index_reach import ChainWalk
from aerobee.offset_audit.sources.store.log_chunks import LogChunk, log_chunks
from aerobee.offset_audit.sources.store.plan import LogPiece, QueuePiece, queue_pieces
from aerobee.offset_audit.sources.store.queue_chunks import queue_chunks
from aerobee.offset_audit.sources.store.ranges_digest import Int64Array
from aerobee.offset_audit.sources.store.ranges_ext import ExtTags
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.offset_audit.sources.store.ranges_index import (
    IndexedReach,
    Keys,
    index_keys,
    log_keys,
)
from aerobee.offset_audit.sources.store.ranges_queues import QueuedMessages, QueueMessages
from aerobee.offset_audit.sources.store.ranges_rows import (
    ENTRIES_SOURCE,
    INDEX_SOURCE,
    KEY_ROWS,
    LOG_SOURCE,
    QUEUE_ROWS,
    Codes,
    RecordBatch,
    make_batch,
)
from aerobee.offset_audit.tables import BLOCK_OFFSETS, INDEX_BLOCK_BYTES
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE

UNIT_BYTES: Final = 128 * 1024 * 1024
"""A stretch of the log that is read at once for all blocks that may have records in it."""
_PARTITIONS_MAX: Final = 256

Queue = tuple[str, int]
Blocks = Mapping[Queue, frozenset[int]]
"""Numbers of blocks by queue."""
Facts = Mapping[str, StoreFacts]
"""By the stores' roots."""
_Rows = Iterable[Mapping[str, Any]]


class Drill(Protocol):
    """What is read at once: picklable."""

    def batches(self) -> Iterator[RecordBatch]: ...


class DrillPartition(InputPartition):
    """`value` is a sequence of drills."""


class DrillReader(DataSourceReader):
    """Reads what was planned."""

    def __init__(self, drills: Sequence[Drill]) -> None:
        self._drills = drills

    def partitions(self) -> list[InputPartition]:
        count = min(len(self._drills), _PARTITIONS_MAX)
        return [DrillPartition(self._drills[first::count]) for first in range(count)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        for drill in partition.value:
            yield from drill.batches()


def queue_drills(facts: Facts, blocks: _Rows) -> list[Drill]:
    """QUEUE_ROWS of blocks with `store`, `topic`, `queue_id`, `block`, and, where records may be,
    `first_position` and `last_position`. A damaged entry may point anywhere."""
    wanted: dict[tuple[str, Queue], set[int]] = {}
    units: dict[tuple[str, int], dict[Queue, set[int]]] = {}
    spans = {root: _unit_span(one.store) for root, one in facts.items()}
    for row in blocks:
        store, queue = row["store"], (row["topic"], row["queue_id"])
        wanted.setdefault((store, queue), set()).add(row["block"])
        if row["first_position"] is None or row["last_position"] is None:
            continue
        low, high = spans[store]
        first, last = (
            min(max(row[name] // UNIT_BYTES, low), high)
            for name in ("first_position", "last_position")
        )
        for unit in range(first, last + 1):
            units.setdefault((store, unit), {}).setdefault(queue, set()).add(row["block"])
    return [
        *(EntryDrill(facts[store], *queue, tuple(each)) for (store, queue), each in wanted.items()),
        *(
            LogDrill(facts[store], unit, {queue: frozenset(each) for queue, each in found.items()})
            for (store, unit), found in units.items()
        ),
    ]


def key_drills(facts: Facts, blocks: _Rows) -> list[Drill]:
    """KEY_ROWS of blocks with `store` and `block`. A key that a broker filed twice, in two files,
    has two rows."""
    wanted: dict[str, set[int]] = {}
    for row in blocks:
        wanted.setdefault(row["store"], set()).add(row["block"])
    found: list[Drill] = []
    for store, numbers in wanted.items():
        one = facts[store]
        found += [LogKeysDrill(one, number) for number in sorted(numbers)]
        files: dict[int, list[int]] = {}
        for file, block in _index_files_of(one, numbers):
            files.setdefault(file, []).append(block)
        found += [IndexKeysDrill(one, file, tuple(each)) for file, each in files.items()]
    return found


def _unit_span(store: StoreFolder) -> tuple[int, int]:
    """The first and the last unit of a store's log."""
    segments = log_segments(store)
    if not segments:
        return 0, 0
    begin, end = segments[0].base, segments[-1].end
    return begin // UNIT_BYTES, max(begin, end - 1) // UNIT_BYTES


def _pieces_of_log(facts: StoreFacts, begin: int, end: int) -> Iterator[LogPiece]:
    """The pieces of segments in [begin, end) of the log."""
    segments = log_segments(facts.store)
    for segment in segments:
        low, high = max(begin, segment.base), min(end, segment.end, facts.bounds.end)
        if low < high:
            yield LogPiece(facts.store, segment, low, high, is_open=segment is segments[-1])


# ------------------------------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True)
class LogDrill:
    """The blocks' records in one unit of the log."""

    facts: StoreFacts
    unit: int
    blocks: Blocks

    def batches(self) -> Iterator[RecordBatch]:
        facts, begin = self.facts, self.unit * UNIT_BYTES
        queued = QueuedMessages(without=facts.batch_topics, end=facts.bounds.end)
        tags = facts.tags()
        for piece in _pieces_of_log(facts, begin, begin + UNIT_BYTES):
            for chunk in log_chunks(piece, tags=tags):
                messages = queued.of_chunk(chunk)
                rows = self._rows_in(messages)
                if len(rows):
                    yield _message_batch(facts, messages.chosen(rows))

    def _rows_in(self, messages: QueueMessages) -> Int64Array:
        """Which messages belong to the blocks."""
        names = messages.topic_names
        wanted = {topic for topic, _ in self.blocks}
        of_topic = np.array([name in wanted for name in names], np.bool_)
        if not of_topic.any():
            return np.empty(0, np.int64)
        candidates = np.flatnonzero(of_topic[messages.topics])
        topics, queue_ids = messages.topics[candidates], messages.queue_ids[candidates]
        blocks = messages.queue_offsets[candidates] // BLOCK_OFFSETS
        chosen = np.zeros(len(candidates), np.bool_)
        for (topic, queue_id), numbers in self.blocks.items():
            if topic in names:
                here = np.flatnonzero((topics == names.index(topic)) & (queue_ids == queue_id))
                chosen[here] = np.isin(blocks[here], np.array(sorted(numbers), np.int64))
        return candidates[chosen]


def _message_batch(facts: StoreFacts, messages: QueueMessages) -> RecordBatch:
    return make_batch(
        QUEUE_ROWS,
        facts.store,
        len(messages),
        {
            "source": LOG_SOURCE,
            "topic": Codes(messages.topics, messages.topic_names),
            "queue_id": messages.queue_ids.astype(np.int32),
            "queue_offset": messages.queue_offsets,
            "position": messages.positions,
            "size": messages.sizes.astype(np.int32),
            "tags_code": messages.tags_codes,
            "store_ms": messages.store_timestamps,
        },
    )


@dataclass(frozen=True, slots=True)
class EntryDrill:
    """The entries of blocks of one queue."""

    facts: StoreFacts
    topic: str
    queue_id: int
    numbers: tuple[int, ...]

    def batches(self) -> Iterator[RecordBatch]:
        facts, name = self.facts, (self.topic, self.queue_id)
        ext = ExtTags(facts.store)
        for queue in queue_files(facts.store, lambda topic, queue_id: (topic, queue_id) == name):
            for piece in queue_pieces(facts.store, queue):
                for number in self.numbers:
                    begin = number * BLOCK_OFFSETS * ENTRY_SIZE
                    cut = piece.cut(begin, begin + BLOCK_OFFSETS * ENTRY_SIZE)
                    if cut is not None:
                        yield from self._of_piece(cut, ext)

    def _of_piece(self, piece: QueuePiece, ext: ExtTags) -> Iterator[RecordBatch]:
        bounds = self.facts.bounds
        for chunk in queue_chunks(piece):
            positions = chunk.positions
            counts = chunk.sound & (positions >= bounds.begin) & (positions < bounds.end)
            if not counts.any():
                continue
            yield make_batch(
                QUEUE_ROWS,
                self.facts.store,
                int(counts.sum()),
                {
                    "source": ENTRIES_SOURCE,
                    "topic": self.topic,
                    "queue_id": self.queue_id,
                    "queue_offset": chunk.queue_offsets[counts],
                    "position": positions[counts],
                    "size": chunk.sizes[counts].astype(np.int32),
                    "tags_code": ext.tags_codes(piece, chunk.tags_codes)[counts],
                },
            )


# ------------------------------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True)
class LogKeysDrill:
    """The keys of the records in a block of the log."""

    facts: StoreFacts
    block: int

    def batches(self) -> Iterator[RecordBatch]:
        begin = self.block * INDEX_BLOCK_BYTES
        tags = self.facts.tags()
        for piece in _pieces_of_log(self.facts, begin, begin + INDEX_BLOCK_BYTES):
            for chunk in log_chunks(piece, tags=tags):
                keys = log_keys(chunk, self.facts.indexed)
                if len(keys):
                    yield _key_batch(self.facts, LOG_SOURCE, keys, _topics_of(chunk, keys))


@dataclass(frozen=True, slots=True)
class IndexKeysDrill:
    """The keys of blocks that a search finds in one index file."""

    facts: StoreFacts
    number: int
    blocks: tuple[int, ...]

    def batches(self) -> Iterator[RecordBatch]:
        facts = self.facts
        files = index_files(facts.store)
        if facts.index_geometry is None or self.number >= len(files):
            return
        try:
            index = IndexFile(files[self.number])
        except FileNotFoundError:
            return
        header = index.header()
        try:
            if header is None:
                return
            walk = ChainWalk(index, facts.index_geometry, header)
            is_open = self.number == len(files) - 1
            reach = walk.reach(may_be_ahead=is_open and not facts.is_clean)
            spans = np.array(sorted(self.blocks), np.int64)
            wanted = IndexedReach(
                max(facts.indexed.begin, int(spans[0]) * INDEX_BLOCK_BYTES),
                min(facts.indexed.end, (int(spans[-1]) + 1) * INDEX_BLOCK_BYTES),
            )
            for keys in index_keys(walk, reach, wanted):
                chosen = np.isin(keys.positions // INDEX_BLOCK_BYTES, spans)
                if chosen.any():
                    found = Keys(keys.hashes[chosen], keys.positions[chosen], keys.store_timestamps)
                    yield _key_batch(facts, INDEX_SOURCE, found, None)
        finally:
            index.close()


def _topics_of(chunk: LogChunk, keys: Keys) -> Codes:
    records = chunk.records
    rows = np.searchsorted(records.positions + chunk.position, keys.positions)
    return Codes(records.topic_codes[rows], records.topic_table)


def _index_files_of(facts: StoreFacts, blocks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(number in file order, block) of each file that may have keys of a block."""
    wanted = sorted(blocks)
    for number, file in enumerate(index_files(facts.store)):
        try:
            index = IndexFile(file)
        except FileNotFoundError:
            continue
        header = index.header()
        index.close()
        if header is None or not header.has_entries:
            continue
        for block in wanted:
            begin = block * INDEX_BLOCK_BYTES
            is_behind = header.end_physical_offset < begin
            is_before = header.begin_physical_offset >= begin + INDEX_BLOCK_BYTES
            if not (is_behind or is_before):
                yield number, block


def _key_batch(facts: StoreFacts, source: str, keys: Keys, topics: Codes | None) -> RecordBatch:
    return make_batch(
        KEY_ROWS,
        facts.store,
        len(keys),
        {
            "source": source,
            "position": keys.positions,
            "key_hash": keys.hashes,
            "topic": topics,
            "store_ms": keys.store_timestamps if len(keys.store_timestamps) else None,
        },
    )
