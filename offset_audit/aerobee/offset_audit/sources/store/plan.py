"""Partitions: pieces of files, about equal in bytes, that executors read one by one.

A log is cut at multiples of the partition's bytes, counted from the log's first byte ever, so all
replicas are cut at the same places, and ranges of a grid whose width divides them are never cut.
Queue files are cut at entries, index files never. Small pieces share a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from aerobee.offset_audit.sources.store.files import (
    QueueFiles,
    StoreFile,
    index_files,
    log_segments,
    queue_files,
)
from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE

PARTITION_BYTES: Final = 128 * 1024 * 1024
"""A multiple of `tables.LOG_RANGE_BYTES` and `tables.INDEX_BLOCK_BYTES`."""

_FILE_COST_BYTES: Final = 256 * 1024
"""What opening a file costs, in bytes that could have been read instead."""

_SHARE_QUEUES: Final = 4096

ENTRY_BLOCK_BYTES: Final = 65_536 * ENTRY_SIZE
"""Long queue files are cut at multiples of this, counted from the queue's first entry ever."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """The records of a segment that begin in [begin, end) of the log."""

    store: StoreFolder
    segment: StoreFile
    begin: int
    end: int
    is_open: bool
    """The log's newest segment: it may still be written to, and need not be full."""

    @property
    def bytes(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class QueuePiece:
    """The entries [begin, end) of a queue, counted in bytes of the queue, all in one file."""

    store: StoreFolder
    topic: str
    queue_id: int
    file: StoreFile
    begin: int
    end: int
    is_first: bool
    """In the queue's first file: anything before the first message is blank."""
    is_open: bool
    """In the queue's last file."""

    @property
    def bytes(self) -> int:
        return self.end - self.begin

    def cut(self, begin: int, end: int) -> QueuePiece | None:
        """The part in [begin, end); None: there is none."""
        low, high = max(self.begin, begin), min(self.end, end)
        return replace(self, begin=low, end=high) if low < high else None


def queue_pieces(store: StoreFolder, queue: QueueFiles) -> Iterator[QueuePiece]:
    """A queue's files, each with as many whole entries as it has."""
    for file in queue.files:
        yield QueuePiece(
            store,
            queue.topic,
            queue.queue_id,
            file,
            file.base,
            file.end - file.size % ENTRY_SIZE,
            is_first=file is queue.files[0],
            is_open=file is queue.files[-1],
        )


@dataclass(frozen=True, slots=True)
class IndexPiece:
    """A whole index file."""

    store: StoreFolder
    file: StoreFile
    is_open: bool

    @property
    def bytes(self) -> int:
        return self.file.size


@dataclass(frozen=True, slots=True)
class StorePiece:
    """A store's own tables. `share`: which one of `shares` equal shares of its queues."""

    store: StoreFolder
    share: int = 0
    shares: int = 1


Piece = TypeVar("Piece")


@dataclass(frozen=True, slots=True)
class Partition(Generic[Piece]):
    """What one executor reads in one go."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """The wanted part of a log: positions [begin, end)."""

    begin: int = 0
    end: int = 1 << 63


def plan_log(
    stores: Iterable[StoreFolder],
    *,
    partition_bytes: int = PARTITION_BYTES,
    reach: Reach | None = None,
) -> list[Partition[LogPiece]]:
    """The commit logs of `stores`."""
    wanted = reach or Reach()
    pieces = (piece for store in stores for piece in _log_pieces(store, partition_bytes))
    return _share_out(
        [piece for piece in pieces if piece.begin < wanted.end and piece.end > wanted.begin],
        partition_bytes,
    )


def _log_pieces(store: StoreFolder, partition_bytes: int) -> Iterator[LogPiece]:
    segments = log_segments(store)
    for segment in segments:
        is_open = segment is segments[-1]
        for begin, end in _cut(segment.base, segment.end, partition_bytes):
            yield LogPiece(store, segment, begin, end, is_open)


def plan_queues(
    stores: Iterable[StoreFolder],
    *,
    partition_bytes: int = PARTITION_BYTES,
    is_wanted: Callable[[str, int], bool] = lambda topic, queue_id: True,
) -> list[Partition[QueuePiece]]:
    """The consume queues of `stores` that are wanted by topic and queue id."""
    step = max(ENTRY_BLOCK_BYTES, partition_bytes // ENTRY_BLOCK_BYTES * ENTRY_BLOCK_BYTES)
    pieces: list[QueuePiece] = []
    for store in stores:
        for queue in queue_files(store, is_wanted):
            for piece in queue_pieces(store, queue):
                for begin, end in _cut(piece.begin, piece.end, step):
                    pieces.append(replace(piece, begin=begin, end=end))
    return _share_out(pieces, partition_bytes)


def plan_index(
    stores: Iterable[StoreFolder], *, partition_bytes: int = PARTITION_BYTES
) -> list[Partition[IndexPiece]]:
    """The index files of `stores`."""
    pieces: list[IndexPiece] = []
    for store in stores:
        files = index_files(store)
        pieces += [IndexPiece(store, file, is_open=file is files[-1]) for file in files]
    return _share_out(pieces, partition_bytes)


def plan_stores(stores: Iterable[StoreFolder]) -> list[Partition[StorePiece]]:
    """Each of `stores` as a whole."""
    return [Partition((StorePiece(store),)) for store in stores]


def plan_queue_ends(
    stores: Iterable[StoreFolder],
    is_wanted: Callable[[str, int], bool] = lambda topic, queue_id: True,
) -> list[Partition[StorePiece]]:
    """Each of `stores` in shares of some thousand queues."""
    partitions: list[Partition[StorePiece]] = []
    for store in stores:
        count = sum(1 for _ in queue_files(store, is_wanted))
        shares = max(1, -(-count // _SHARE_QUEUES))
        partitions += [Partition((StorePiece(store, share, shares),)) for share in range(shares)]
    return partitions


def _cut(begin: int, end: int, step: int) -> Iterator[tuple[int, int]]:
    """[begin, end) cut at the multiples of `step`."""
    while begin < end:
        border = min(end, (begin // step + 1) * step)
        yield begin, border
        begin = border


_File = TypeVar("_File", LogPiece, QueuePiece, IndexPiece)


def _share_out(pieces: Sequence[_File], partition_bytes: int) -> list[Partition[_File]]:
    """Neighbours together, up to one partition's share."""
    shares: list[list[_File]] = []
    cost = 0
    for piece in pieces:
        piece_cost = max(piece.bytes, _FILE_COST_BYTES)
        if not shares or cost + piece_cost > partition_bytes:
            shares.append([])
            cost = 0
        shares[-1].append(piece)
        cost += piece_cost
    return [Partition(tuple(share)) for share in shares]
