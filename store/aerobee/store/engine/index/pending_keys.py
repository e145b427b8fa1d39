"""Keys that are dispatched and not yet in index files.

Owns, in log order: columns of hashed keys, properties whose keys another thread will hash, and
after them single records whose keys are extracted together, because that costs hardly more for many
than for one. The loop hashes little at a time, however many keys clients send.

Columns only grow at their end and shrink at their front. What `view` returned never changes, so
other threads may read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_unhashed import (
    LooseRecord,
    UnhashedKeys,
    hash_loose_records,
    join_keys,
)

KEY_BYTES: Final = 20
"""Memory of a key: hash, offset, time."""

_CAPACITY_MIN: Final = 1_024
_LOOSE_RECORDS_MAX: Final = 256
_LOOSE_BYTES_MAX: Final = 1 << 16

Part = IndexKeys | UnhashedKeys


@dataclass(frozen=True, slots=True)
class PendingView:
    """The keys at one moment, oldest first. [any thread]"""

    parts: tuple[Part, ...]

    def hashed(self) -> IndexKeys:
        """All keys hashed, which may take many times the bytes of their properties."""
        return join_keys([keys for part in self.parts for keys in hashed_keys(part)])

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the newest record here, 0 if there is none."""
        for part in reversed(self.parts):
            if isinstance(part, UnhashedKeys):
                return part.end_timestamp_ms
            if len(part):
                return int(part.store_timestamps_ms[-1])
        return 0


def hashed_keys(part: Part, only_with: bytes = b"") -> Sequence[IndexKeys]:
    """A part's keys; unhashed ones that are not near the bytes `only_with` may be left out."""
    return list(part.hashed(only_with)) if isinstance(part, UnhashedKeys) else [part]


class PendingKeys:
    """Loop thread only, unless said otherwise."""

    __slots__ = ("_columns", "_end", "_loose", "_loose_bytes", "_sealed", "_start", "bytes")

    def __init__(self) -> None:
        self._columns = _columns_of(_CAPACITY_MIN)
        self._start = 0
        self._end = 0
        # Before the columns' keys, which start at `_start`.
        self._sealed: list[Part] = []
        self._loose: list[LooseRecord] = []
        self._loose_bytes = 0
        self.bytes = 0
        """The memory that all of them take."""

    def __len__(self) -> int:
        """The number of keys; those of unhashed records are unknown and count as one per record."""
        sealed = sum(map(len, self._sealed)) if self._sealed else 0
        return sealed + self._end - self._start + len(self._loose)

    # ------------------------------------------------------------------------------ growing

    def add(self, keys: IndexKeys) -> None:
        """Append keys that come after all others in the log."""
        if self._loose:
            self._take_in_loose()
        self._append(keys)

    def add_unhashed(self, keys: UnhashedKeys) -> None:
        """The same for many records whose keys are yet to be extracted."""
        if self._loose:
            self._take_in_loose()
        if self._start < self._end:
            self._sealed.append(self._columns.part(self._start, self._end))
            self._start = self._end
        self._sealed.append(keys)
        self.bytes += keys.memory_bytes

    def add_loose(self, records: Sequence[LooseRecord]) -> None:
        """The same for a few records."""
        self._loose += records
        size = sum([len(record.properties) for record in records])
        self._loose_bytes += size
        self.bytes += size
        if len(self._loose) >= _LOOSE_RECORDS_MAX or self._loose_bytes > _LOOSE_BYTES_MAX:
            self._take_in_loose()

    def _append(self, keys: IndexKeys) -> None:
        end = self._end + len(keys)
        if end > len(self._columns):
            self._make_room(len(keys))
            end = self._end + len(keys)
        place = slice(self._end, end)
        columns = self._columns
        columns.hashes[place] = keys.hashes
        columns.physical_offsets[place] = keys.physical_offsets
        columns.store_timestamps_ms[place] = keys.store_timestamps_ms
        self._end = end
        self.bytes += len(keys) * KEY_BYTES

    def _make_room(self, count: int) -> None:
        """Allocate new columns: the old ones may be in use elsewhere."""
        kept = self._columns.part(self._start, self._end)
        wanted = max(_CAPACITY_MIN, (len(kept) + count) * 2)
        self._columns = _columns_of(wanted)
        self._start = self._end = 0
        self.bytes -= len(kept) * KEY_BYTES
        self._append(kept)

    def _take_in_loose(self) -> None:
        loose, size = self._loose, self._loose_bytes
        self._loose, self._loose_bytes = [], 0
        self.bytes -= size
        if size > _LOOSE_BYTES_MAX:
            self.add_unhashed(UnhashedKeys.of_loose(loose))
        else:
            self._append(hash_loose_records(loose))

    # ------------------------------------------------------------------------------ leaving

    def view(self) -> PendingView:
        """All present keys. [any thread] may read it."""
        if self._loose:
            self._take_in_loose()
        return PendingView((*self._sealed, self._columns.part(self._start, self._end)))

    def drop(self, count: int) -> None:
        """The first `count` keys are in files. Unhashed ones among them were hashed for that."""
        while self._sealed:
            part = self._sealed[0]
            if isinstance(part, IndexKeys):
                dropped = min(count, len(part))
                self._sealed[0] = part.part(dropped, len(part))
                self.bytes -= dropped * KEY_BYTES
                is_empty = dropped == len(part)
            else:
                # The number of keys that were not reached is unknown.
                left = None if part.key_count is None else part.key_count - part.skipped
                dropped = count if left is None else min(count, left)
                # Readers of a view still need them.
                self._sealed[0] = part.without(dropped)
                is_empty = dropped == left
                self.bytes -= part.memory_bytes if is_empty else 0
            count -= dropped
            if not is_empty:
                assert count == 0
                return
            del self._sealed[0]
        assert 0 <= count <= self._end - self._start
        self._start += count
        self.bytes -= count * KEY_BYTES
        if self._start == self._end and len(self._columns) > _CAPACITY_MIN:
            self._columns = _columns_of(_CAPACITY_MIN)
            self._start = self._end = 0


def _columns_of(capacity: int) -> IndexKeys:
    return IndexKeys(
        np.empty(capacity, np.int32), np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    )
