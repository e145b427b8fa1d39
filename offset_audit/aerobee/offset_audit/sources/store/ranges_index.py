"""Keys by block of the log: those that its records have, and those that the index files give.

A key counts once for each record that has it, however often it is named there or filed. Only what
the index should know by now is taken from the log: from the first record that it lists to the last
one.

Invariant: keys and digests of parts sum up to those of the whole, as each record and each entry is
seen by one reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.offset_audit.sources.store.index_reach import ChainWalk, Reach
from aerobee.offset_audit.sources.store.log_chunks import LogChunk
from aerobee.offset_audit.sources.store.ranges_digest import (
    Int64Array,
    UInt64Array,
    group_starts,
    mix_keys,
    sum_groups,
)
from aerobee.offset_audit.sources.store.ranges_rows import (
    INDEX_RANGES,
    INDEX_SOURCE,
    LOG_SOURCE,
    RecordBatch,
    make_batch,
)
from aerobee.offset_audit.tables import INDEX_BLOCK_BYTES

# Beyond this, equal keys of one record are found by sorting.
_KEYS_COMPARED_MAX = 8


@dataclass(frozen=True, slots=True)
class IndexedReach:
    """Which records the index should know: positions [begin, end); nothing if both are 0."""

    begin: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Keys:
    """Distinct (hash, position) pairs; `store_timestamps` is empty if unknown."""

    hashes: npt.NDArray[np.int32]
    positions: Int64Array
    store_timestamps: Int64Array

    def __len__(self) -> int:
        return len(self.hashes)


def log_keys(chunk: LogChunk, reach: IndexedReach) -> Keys:
    """The keys that the index should have of the chunk's records."""
    records = chunk.records
    places = records.positions + chunk.position
    chosen = np.flatnonzero((places >= reach.begin) & (places < reach.end))
    if not len(chosen):
        return Keys(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))
    found = records.index_keys(chunk.buffer, chunk.position, chosen)
    keep = _first_ones(found.hashes, found.physical_offsets)
    return Keys(found.hashes[keep], found.physical_offsets[keep], found.store_timestamps_ms[keep])


def index_keys(walk: ChainWalk, reach: Reach, wanted: IndexedReach) -> Iterator[Keys]:
    """The keys of an index file that a search finds, of records at `wanted` positions."""
    nothing = np.empty(0, np.int64)
    last = Keys(np.empty(0, np.int32), nothing, nothing)
    for stretch in walk.stretches():
        positions = stretch.entries["physical_offset"].astype(np.int64)
        counts = (positions >= wanted.begin) & (positions < wanted.end)
        if len(reach.unreachable):
            counts &= reach.is_found(stretch.numbers)
        hashes = stretch.entries["hash"].astype(np.int32)
        if not counts.all():
            positions, hashes = positions[counts], hashes[counts]
        if not len(positions):
            continue
        # A record's keys may continue in the next stretch.
        before = len(last)
        joined = np.concatenate((last.positions, positions))
        joined_hashes = np.concatenate((last.hashes, hashes))
        keep = _first_ones(joined_hashes, joined)
        keep[:before] = False
        tail = joined == joined[-1]
        last = Keys(joined_hashes[tail], joined[tail], nothing)
        yield Keys(joined_hashes[keep], joined[keep], nothing)


def _first_ones(hashes: npt.NDArray[np.int32], positions: Int64Array) -> npt.NDArray[np.bool_]:
    """Which rows differ from all earlier rows of the same record; rows of a record are adjacent."""
    count = len(hashes)
    keep = np.ones(count, np.bool_)
    starts = group_starts(positions)
    widest = int(np.diff(starts, append=count).max()) if len(starts) else 0
    if widest > _KEYS_COMPARED_MAX:
        _, first = np.unique(mix_keys(hashes, positions), return_index=True)
        keep[:] = False
        keep[first] = True
        return keep
    for distance in range(1, widest):
        same = positions[distance:] == positions[:-distance]
        keep[distance:] &= ~(same & (hashes[distance:] == hashes[:-distance]))
    return keep


class IndexRanges:
    """INDEX_RANGES of one source, collected over the chunks of one reader."""

    def __init__(self, store: StoreFolder, source: str) -> None:
        self._store = store
        self._source = source
        self._blocks: dict[int, _Block] = {}

    def add(self, keys: Keys) -> None:
        if not len(keys):
            return
        blocks = keys.positions // INDEX_BLOCK_BYTES
        starts = group_starts(blocks)
        ends = np.append(starts[1:], len(blocks))
        mixed = mix_keys(keys.hashes, keys.positions)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            block = self._blocks.setdefault(int(blocks[start]), _Block())
            block.add(keys, mixed, start, end)

    def finish(self) -> Iterator[RecordBatch]:
        """One row per block."""
        blocks, self._blocks = sorted(self._blocks.items()), {}
        if not blocks:
            return
        found = [block for _, block in blocks]
        yield make_batch(
            INDEX_RANGES,
            self._store,
            len(blocks),
            {
                "source": self._source,
                "block": [number for number, _ in blocks],
                "first_position": [block.first for block in found],
                "last_position": [block.last for block in found],
                "keys": [block.keys for block in found],
                "digest": [Decimal(block.digest) for block in found],
                "first_store_ms": [block.first_store_ms for block in found],
            },
        )


@dataclass(slots=True)
class _Block:
    """One block's keys so far."""

    keys: int = 0
    digest: int = 0
    first: int = 1 << 62
    last: int = -1
    first_store_ms: int | None = None

    def add(self, keys: Keys, mixed: UInt64Array, start: int, end: int) -> None:
        self.keys += end - start
        self.digest += sum_groups(mixed[start:end], np.zeros(1, np.int64))[0]
        positions = keys.positions[start:end]
        self.first = min(self.first, int(positions.min()))
        self.last = max(self.last, int(positions.max()))
        if len(keys.store_timestamps):
            earliest = int(keys.store_timestamps[start:end].min())
            known = self.first_store_ms
            self.first_store_ms = earliest if known is None else min(known, earliest)


def log_index_ranges(store: StoreFolder) -> IndexRanges:
    """Collects the keys that should exist according to the log."""
    return IndexRanges(store, LOG_SOURCE)


def file_index_ranges(store: StoreFolder) -> IndexRanges:
    """Collects what a search of the index files would find."""
    return IndexRanges(store, INDEX_SOURCE)
