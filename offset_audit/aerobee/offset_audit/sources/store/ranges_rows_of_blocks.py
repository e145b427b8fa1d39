"""Single messages and keys of some blocks: read again where log and queues, or log and index, do
not agree. Nothing here knows Spark.

Invariant: the rows are those of which the blocks' sums were made, from the same readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.offset_audit.sources.store.files import index_files, log_segments, queue_files
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.index_geometry import IndexFile
from aerobee.offset_audit.sources.store.index_reach import ChainWalk
from aerobee.offset_audit.sources.store.log_chunks import LogChunk, log_chunks
from aerobee.offset_audit.sources.store.plan import LogPiece, QueuePiece
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


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a queue."""

    topic: str
    queue_id: int
    number: int


def pieces_of_log(facts: StoreFacts, begin: int, end: int) -> Iterator[LogPiece]:
    """The pieces of segments in [begin, end) of the log."""
    segments = log_segments(facts.store)
    for segment in segments:
        low, high = max(begin, segment.base), min(end, segment.end, facts.bounds.end)
        if low < high:
            yield LogPiece(facts.store, segment, low, high, is_open=segment is segments[-1])


def log_rows(facts: StoreFacts, unit: int, blocks: Iterable[Block]) -> Iterator[RecordBatch]:
    """QUEUE_ROWS of the blocks' records in one unit of the log."""
    wanted: dict[tuple[str, int], set[int]] = {}
    for block in blocks:
        wanted.setdefault((block.topic, block.queue_id), set()).add(block.number)
    queued = QueuedMessages(without=facts.batch_topics, end=facts.bounds.end)
    tags = facts.tags()
    for piece in pieces_of_log(facts, unit * UNIT_BYTES, (unit + 1) * UNIT_BYTES):
        for chunk in log_chunks(piece, tags=tags):
            messages = queued.of_chunk(chunk)
            rows = _rows_in(messages, wanted)
            if len(rows):
                yield _message_batch(facts, messages.chosen(rows))


def _rows_in(messages: QueueMessages, wanted: dict[tuple[str, int], set[int]]) -> Int64Array:
    """Which messages belong to wanted blocks."""
    names = messages.topic_names
    of_topic = np.zeros(len(names), np.bool_)
    for topic, _ in wanted:
        if topic in names:
            of_topic[names.index(topic)] = True
    candidates = np.flatnonzero(of_topic[messages.topics])
    if not len(candidates):
        return candidates
    topics, queue_ids = messages.topics[candidates], messages.queue_ids[candidates]
    blocks = messages.queue_offsets[candidates] // BLOCK_OFFSETS
    chosen = np.zeros(len(candidates), np.bool_)
    for (topic, queue_id), numbers in wanted.items():
        if topic not in names:
            continue
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


def entry_rows(facts: StoreFacts, block: Block) -> Iterator[RecordBatch]:
    """QUEUE_ROWS of the block's entries."""
    begin = block.number * BLOCK_OFFSETS * ENTRY_SIZE
    end = begin + BLOCK_OFFSETS * ENTRY_SIZE
    name = (block.topic, block.queue_id)
    ext = ExtTags(facts.store)
    bounds = facts.bounds
    for queue in queue_files(facts.store, lambda topic, queue_id: (topic, queue_id) == name):
        for file in queue.files:
            low, high = max(begin, file.base), min(end, file.end - file.size % ENTRY_SIZE)
            if low >= high:
                continue
            is_first, is_open = file is queue.files[0], file is queue.files[-1]
            piece = QueuePiece(facts.store, *name, file, low, high, is_first, is_open)
            for chunk in queue_chunks(piece):
                positions = chunk.positions
                counts = chunk.sound & (positions >= bounds.begin) & (positions < bounds.end)
                if not counts.any():
                    continue
                tags_codes = ext.tags_codes(piece, chunk.tags_codes)
                yield make_batch(
                    QUEUE_ROWS,
                    facts.store,
                    int(counts.sum()),
                    {
                        "source": ENTRIES_SOURCE,
                        "topic": block.topic,
                        "queue_id": block.queue_id,
                        "queue_offset": chunk.queue_offsets[counts],
                        "position": positions[counts],
                        "size": chunk.sizes[counts].astype(np.int32),
                        "tags_code": tags_codes[counts],
                    },
                )


# ------------------------------------------------------------------------------------- keys


def log_key_rows(facts: StoreFacts, block: int) -> Iterator[RecordBatch]:
    """KEY_ROWS of the records in a block of the log."""
    begin = block * INDEX_BLOCK_BYTES
    tags = facts.tags()
    for piece in pieces_of_log(facts, begin, begin + INDEX_BLOCK_BYTES):
        for chunk in log_chunks(piece, tags=tags):
            keys = log_keys(chunk, facts.indexed)
            if len(keys):
                yield _key_batch(facts, LOG_SOURCE, keys, _topics_of(chunk, keys))


def _topics_of(chunk: LogChunk, keys: Keys) -> Codes:
    records = chunk.records
    rows = np.searchsorted(records.positions + chunk.position, keys.positions)
    return Codes(records.topic_codes[rows], records.topic_table)


def index_files_of(facts: StoreFacts, blocks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(number in file order, block) of each file that may have keys of a block."""
    wanted = sorted(set(blocks))
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


def index_key_rows(facts: StoreFacts, number: int, blocks: Sequence[int]) -> Iterator[RecordBatch]:
    """KEY_ROWS of the blocks' keys that a search finds in one index file."""
    files = index_files(facts.store)
    if facts.index_geometry is None or number >= len(files):
        return
    try:
        index = IndexFile(files[number])
    except FileNotFoundError:
        return
    header = index.header()
    try:
        if header is None:
            return
        walk = ChainWalk(index, facts.index_geometry, header)
        is_open = number == len(files) - 1
        reach = walk.reach(may_be_ahead=is_open and not facts.is_clean)
        spans = np.array(sorted(blocks), np.int64)
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


def unit_span(store: StoreFolder) -> tuple[int, int]:
    """The first and the last unit of a store's log. A damaged entry may point anywhere."""
    segments = log_segments(store)
    if not segments:
        return 0, 0
    begin, end = segments[0].base, segments[-1].end
    return begin // UNIT_BYTES, max(begin, end - 1) // UNIT_BYTES
