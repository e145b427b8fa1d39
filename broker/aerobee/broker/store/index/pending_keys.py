"""Keys that are dispatched and not yet in index files.

Owns: their columns, in log order, and beside them single records whose keys were not looked for
yet: that is done for many at once, because its cost hardly depends on how many there are.

Columns only grow at their end and are given up at their front. What `view` returned stays as it is,
whatever comes after it, so other threads may read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from aerobee.store_format.index_file import IndexKeys
from aerobee.store_format.index_keys import LooseRecord, hash_loose_records

KEY_BYTES: Final = 20
"""What a key takes in memory: hash, offset, time."""

_CAPACITY_MIN: Final = 1_024
_LOOSE_RECORDS_MAX: Final = 256


class PendingKeys:
    """See the module; loop thread only, unless said otherwise."""

    __slots__ = ("_columns", "_end", "_loose", "_loose_bytes", "_start")

    def __init__(self) -> None:
        self._columns = _columns_of(_CAPACITY_MIN)
        self._start = 0
        self._end = 0
        self._loose: list[LooseRecord] = []
        self._loose_bytes = 0

    def __len__(self) -> int:
        """How many keys; those of loose records are not known and count as one each."""
        return self._end - self._start + len(self._loose)

    @property
    def bytes(self) -> int:
        return (self._end - self._start) * KEY_BYTES + self._loose_bytes

    # ------------------------------------------------------------------------------ growing

    def add(self, keys: IndexKeys) -> None:
        """Append keys that lie behind all others in the log."""
        if self._loose:
            self._take_in_loose()
        self._append(keys)

    def add_loose(self, records: Sequence[LooseRecord]) -> None:
        """The same for records whose keys are still to be found."""
        self._loose += records
        for record in records:
            self._loose_bytes += len(record.properties)
        if len(self._loose) >= _LOOSE_RECORDS_MAX:
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

    def _make_room(self, count: int) -> None:
        """New columns: the old ones may be in use elsewhere."""
        kept = self._columns.part(self._start, self._end)
        wanted = max(_CAPACITY_MIN, (len(kept) + count) * 2)
        self._columns = _columns_of(wanted)
        self._start = self._end = 0
        self._append(kept)

    def _take_in_loose(self) -> None:
        loose, self._loose, self._loose_bytes = self._loose, [], 0
        self._append(hash_loose_records(loose))

    # ------------------------------------------------------------------------------ leaving

    def view(self) -> IndexKeys:
        """All keys there are now. [any thread] may read it."""
        if self._loose:
            self._take_in_loose()
        return self._columns.part(self._start, self._end)

    def drop(self, count: int) -> None:
        """The first `count` keys are in files."""
        assert 0 <= count <= self._end - self._start
        self._start += count
        if self._start == self._end and len(self._columns) > _CAPACITY_MIN:
            self._columns = _columns_of(_CAPACITY_MIN)
            self._start = self._end = 0


def _columns_of(capacity: int) -> IndexKeys:
    return IndexKeys(
        np.empty(capacity, np.int32), np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    )
