"""What executors do: read a part of a store once, and give the rows of all wanted tables.

One reading of a log serves all tables derived from it. Nothing here knows Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from aerobee.offset_audit.sources.store.failed import failed_rows
from aerobee.offset_audit.sources.store.faults import Fault, fault_rows
from aerobee.offset_audit.sources.store.faults_files import folder_faults
from aerobee.offset_audit.sources.store.faults_index import IndexFaults
from aerobee.offset_audit.sources.store.faults_log import LogFaults
from aerobee.offset_audit.sources.store.index_geometry import IndexFile
from aerobee.offset_audit.sources.store.index_reach import ChainWalk
from aerobee.offset_audit.sources.store.journal_entries import journal_rows
from aerobee.offset_audit.sources.store.log_chunks import LogChunk, log_chunks
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.pending import pending_rows
from aerobee.offset_audit.sources.store.plan import IndexPiece, LogPiece, QueuePiece
from aerobee.offset_audit.sources.store.queue_chunks import queue_chunks
from aerobee.offset_audit.sources.store.ranges_ext import ExtTags
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.offset_audit.sources.store.ranges_index import (
    file_index_ranges,
    index_keys,
    log_index_ranges,
    log_keys,
)
from aerobee.offset_audit.sources.store.ranges_log import LogRanges, StoredMinutes
from aerobee.offset_audit.sources.store.ranges_queues import (
    EntryRanges,
    LogQueueRanges,
    QueuedMessages,
)
from aerobee.offset_audit.sources.store.ranges_rows import (
    FAILED,
    FAULTS,
    INDEX_RANGES,
    JOURNAL,
    LOG_RANGES,
    MINUTES,
    PENDING,
    QUEUE_RANGES,
    RecordBatch,
)
from aerobee.offset_audit.tables import BLOCK_OFFSETS
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE

TableRows: TypeAlias = tuple[str, RecordBatch]

_ENTRIES_PER_CHUNK = 4 * BLOCK_OFFSETS


@dataclass(frozen=True, slots=True)
class LogWork:
    """Neighbouring pieces of one store's log: whole ranges of the grid."""

    facts: StoreFacts
    pieces: tuple[LogPiece, ...]
    check_bodies: bool
    record_bytes_max: int
    journal_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class QueueWork:
    """Pieces of one store's queue files."""

    facts: StoreFacts
    pieces: tuple[QueuePiece, ...]


@dataclass(frozen=True, slots=True)
class IndexWork:
    """An index file."""

    facts: StoreFacts
    piece: IndexPiece


@dataclass(frozen=True, slots=True)
class FolderWork:
    """What a store's names and small files show."""

    facts: StoreFacts


@dataclass(frozen=True, slots=True)
class PendingWork:
    """What waits in a store's system topics."""

    facts: StoreFacts


Work: TypeAlias = LogWork | QueueWork | IndexWork | FolderWork | PendingWork


def rows_of(works: Sequence[Work], tables: frozenset[str]) -> Iterator[TableRows]:
    """The works' rows of `tables`, with the table's name."""
    for work in works:
        if isinstance(work, LogWork):
            yield from _LogReading(work, tables).rows()
        elif isinstance(work, QueueWork):
            yield from _queue_rows(work)
        elif isinstance(work, IndexWork):
            yield from _index_rows(work, tables)
        elif isinstance(work, PendingWork):
            for batch in pending_rows(work.facts):
                yield PENDING, batch
        else:
            faults = folder_faults(work.facts)
            if faults:
                yield FAULTS, fault_rows(work.facts.store, faults)


class _LogReading:
    """Everything that one reading of a log gives."""

    def __init__(self, work: LogWork, tables: frozenset[str]) -> None:
        facts = work.facts
        self._work = work
        self._tables = tables
        self._indexed = facts.indexed
        self._queued = QueuedMessages(without=facts.batch_topics, end=facts.bounds.end)
        self._queues = LogQueueRanges(facts.store)
        self._minutes = StoredMinutes(facts.store, facts.whole_minutes)
        self._index = log_index_ranges(facts.store)
        self._ranges = LogRanges(facts.store, facts.bounds.end)
        self._faults = LogFaults(facts, check_bodies=work.check_bodies)
        self._needs_messages = bool({QUEUE_RANGES, MINUTES} & tables)

    def rows(self) -> Iterator[TableRows]:
        work = self._work
        tags = work.facts.tags()
        for piece in work.pieces:
            if piece.begin >= work.facts.bounds.end:
                continue
            self._ranges.begin_piece(piece)
            self._faults.begin_piece(piece)
            chunks = log_chunks(piece, tags=tags, record_bytes_max=work.record_bytes_max)
            for chunk in chunks:
                yield from self._take(chunk)
            if FAULTS in self._tables:
                yield from self._faulty(list(self._faults.end_piece(piece)))
        if FAULTS in self._tables:
            yield from self._faulty(list(self._faults.finish()))
        yield from self._rest()

    def _take(self, chunk: LogChunk) -> Iterator[TableRows]:
        tables = self._tables
        if LOG_RANGES in tables:
            self._ranges.add(chunk)
        if FAULTS in tables:
            yield from self._faulty(list(self._faults.of_chunk(chunk)))
        if not chunk.records.count:
            return
        if self._needs_messages:
            messages = self._queued.of_chunk(chunk)
            if MINUTES in tables:
                self._minutes.add(messages)
            if QUEUE_RANGES in tables:
                for batch in self._queues.add(messages):
                    yield QUEUE_RANGES, batch
        if INDEX_RANGES in tables and self._indexed.end > chunk.position:
            self._index.add(log_keys(chunk, self._indexed))
        yield from self._single(chunk)

    def _single(self, chunk: LogChunk) -> Iterator[TableRows]:
        """Rows of single records: failed messages, and the entries of the offset journal."""
        end = self._work.facts.bounds.end
        if FAILED in self._tables:
            batch = failed_rows(chunk, end)
            if batch is not None:
                yield FAILED, batch
        if JOURNAL in self._tables:
            for batch in journal_rows(chunk, end, self._work.journal_since_ms):
                yield JOURNAL, batch

    def _faulty(self, faults: list[Fault]) -> Iterator[TableRows]:
        if faults:
            yield FAULTS, fault_rows(self._work.facts.store, faults)

    def _rest(self) -> Iterator[TableRows]:
        for batch in self._queues.finish():
            yield QUEUE_RANGES, batch
        for batch in self._minutes.finish():
            yield MINUTES, batch
        for batch in self._index.finish():
            yield INDEX_RANGES, batch
        if LOG_RANGES in self._tables:
            for batch in self._ranges.finish():
                yield LOG_RANGES, batch


def _queue_rows(work: QueueWork) -> Iterator[TableRows]:
    facts = work.facts
    ranges = EntryRanges(facts.store, facts.bounds)
    ext = ExtTags(facts.store)
    for piece in map(_without_hole, work.pieces):
        for chunk in queue_chunks(piece, chunk_entries=_ENTRIES_PER_CHUNK):
            batch = ranges.of_chunk(chunk, ext.tags_codes(piece, chunk.tags_codes))
            if batch is not None:
                yield QUEUE_RANGES, batch


def _without_hole(piece: QueuePiece) -> QueuePiece:
    """A queue's last file up to its last bytes on the disk: most of it may never have been written,
    and reading zeros takes as long as reading entries."""
    if not piece.is_open:
        return piece
    end = at = piece.begin
    try:
        with open(piece.file.path, "rb") as file:
            while at < piece.end:
                data = os.lseek(file.fileno(), at - piece.file.base, os.SEEK_DATA)
                at = piece.file.base + os.lseek(file.fileno(), data, os.SEEK_HOLE)
                end = at
    except OSError:
        # No data after `at`; or a file system that cannot tell, or a file that is gone.
        if at == piece.begin:
            return piece
    end += -end % ENTRY_SIZE
    return replace(piece, end=min(piece.end, end))


def _index_rows(work: IndexWork, tables: frozenset[str]) -> Iterator[TableRows]:
    facts, geometry = work.facts, work.facts.index_geometry
    if geometry is None:
        return
    try:
        index = IndexFile(work.piece.file)
    except FileNotFoundError:
        return
    header = index.header()
    lookup = LogLookup(facts.store)
    try:
        if header is None:
            return
        judge = IndexFaults(facts, index, geometry, lookup)
        is_settled = facts.is_clean or not work.piece.is_open
        faults = judge.of_header(header) if is_settled else []
        walk = ChainWalk(index, geometry, header)
        reach = walk.reach(may_be_ahead=not is_settled)
        if INDEX_RANGES in tables:
            ranges = file_index_ranges(facts.store)
            for keys in index_keys(walk, reach, facts.indexed):
                ranges.add(keys)
            for batch in ranges.finish():
                yield INDEX_RANGES, batch
        if FAULTS in tables:
            faults = faults or judge.of_chains(reach)
            if faults:
                yield FAULTS, fault_rows(facts.store, faults)
    finally:
        lookup.close()
        index.close()
