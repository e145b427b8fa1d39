"""The chain of one slot in one index file, newest entry first.

Every entry points to the next older one of its slot. Most chains have a few entries, but that of a
key shared by millions of records has millions. Adjacent entries are read in blocks, and if the
wanted time is far back, the chain is entered there instead of being walked from its head: entries
are ordered by time, so the place is found by binary search.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from aerobee.store.engine.disk import DiskFile
from aerobee.store.engine.index.index_write import Slots
from aerobee.store.engine.index.search_budget import SearchBudget
from aerobee.store.format.index_file import (
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    SLOT_SIZE,
    IndexGeometry,
    IndexHeader,
)

_ENTRY: Final = struct.Struct(">iqii")

# Entries read at once: when the next one may be near, and when it is known to be.
_NEAR_ENTRIES: Final = 64
_BLOCK_ENTRIES: Final = 2_048
_NEAR_MAX: Final = 256
# After this many entries that are too new: how many to scan for the chain's next entry at the
# wanted time. If there is none among them, walking on may be faster.
_JUMPS: Final = {32: 1 << 16, 1_024: 1 << 20, 16_384: 1 << 62}
_SCAN_ENTRIES: Final = 1 << 14
# Scanning this many entries of a block costs no more than following one in the chain: 2^5.
_SCAN_BITS: Final = 5


@dataclass(frozen=True, slots=True)
class WantedKey:
    """The search criteria. Times are store times in Unix ms, both inclusive."""

    key_hash: int
    begin_ms: int
    end_ms: int

    def overlaps(self, header: IndexHeader) -> bool:
        """Whether a file's keys may fall into the time range, as Apache's broker decides."""
        first, last = header.begin_timestamp_ms, header.end_timestamp_ms
        return (
            (self.begin_ms < first and self.end_ms > last)
            or first <= self.begin_ms <= last
            or first <= self.end_ms <= last
        )


class SlotChain:
    """Used on one thread, while another may add entries to the file."""

    __slots__ = (
        "_block",
        "_block_start",
        "_file",
        "_geometry",
        "_header",
        "_slot",
        "_slots",
        "_wanted",
        "went_below",
    )

    def __init__(
        self,
        file: DiskFile,
        geometry: IndexGeometry,
        header: IndexHeader,
        wanted: WantedKey,
        *,
        slots: Slots | None = None,
    ) -> None:
        """`slots` are used instead of the file's own."""
        self._file = file
        self._geometry = geometry
        self._header = header
        self._wanted = wanted
        self._slots = slots
        self._slot = wanted.key_hash % geometry.slots
        # The number of the first buffered entry, and the bytes from there on.
        self._block_start = 0
        self._block = b""
        self.went_below = False

    def raw_matches(self) -> Iterator[int]:
        """Physical offsets of matching entries, as Apache's broker finds them: a clock that stepped
        back while the file was written changes nothing. Raises OSError."""
        wanted = self._wanted
        for number, key_hash, offset, timestamp_ms in self._entries(may_jump=False):
            # Others were added to the file after the plan was made.
            if number < self._header.count:
                is_in_time = wanted.begin_ms <= timestamp_ms <= wanted.end_ms
                if key_hash == wanted.key_hash and is_in_time:
                    yield offset
                if timestamp_ms < wanted.begin_ms:
                    return

    def matches(self, lowest: int, budget: SearchBudget) -> Iterator[int]:
        """The same, while they are `lowest` or higher and the budget lasts.

        Entries are in log order, so after a lower one all are lower, except those that Apache's
        broker filed a second time; those came before. `went_below` says whether the chain ended
        this way.
        """
        wanted = self._wanted
        for number, key_hash, offset, timestamp_ms in self._entries(may_jump=True, budget=budget):
            if number < self._header.count:
                if offset < lowest:
                    self.went_below = True
                    return
                is_in_time = wanted.begin_ms <= timestamp_ms <= wanted.end_ms
                if key_hash == wanted.key_hash and is_in_time:
                    yield offset
                if timestamp_ms < wanted.begin_ms:
                    return

    def _entries(
        self, *, may_jump: bool, budget: SearchBudget | None = None
    ) -> Iterator[tuple[int, int, int, int]]:
        """(number, hash, physical offset, store time) of the chain's entries, newest first."""
        end_ms, header = self._wanted.end_ms, self._header
        number = self._slot_value()
        too_new = 0
        while 0 < number < self._geometry.entries:
            key_hash, offset, seconds, previous = self._entry(number)
            if budget is not None:
                if not budget.spend():
                    return
                # In a rolled file, the seconds of the first entry mean something else.
                seconds = 0 if number == 1 else seconds
            if number < header.count:
                if seconds < 0:
                    return
                timestamp_ms = header.begin_timestamp_ms + seconds * 1_000
                too_new += timestamp_ms > end_ms
                yield number, key_hash, offset, timestamp_ms
            if previous >= number:
                return
            if may_jump and too_new in _JUMPS:
                number = min(previous, self._jump(previous, _JUMPS[too_new], budget))
                too_new += 1
            else:
                number = previous

    # ------------------------------------------------------------------------------ reading

    def _slot_value(self) -> int:
        if self._slots is not None:
            return int(self._slots[self._slot])
        data = self._file.read_at(self._geometry.slot_at(self._slot), SLOT_SIZE)
        return int.from_bytes(data, "big", signed=True)

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        """(hash, physical offset, seconds, previous number)."""
        at = (number - self._block_start) * INDEX_ENTRY_SIZE
        if not 0 <= at < len(self._block):
            is_near = bool(self._block) and self._block_start - number < _NEAR_MAX
            count = _BLOCK_ENTRIES if is_near else _NEAR_ENTRIES
            start = max(1, number - count + 1)
            self._block = self._read(start, number + 1)
            self._block_start = start
            at = (number - start) * INDEX_ENTRY_SIZE
        key_hash, offset, seconds, previous = _ENTRY.unpack_from(self._block, at)
        return key_hash, offset, seconds, previous

    def _read(self, start: int, end: int) -> bytes:
        wanted = (end - start) * INDEX_ENTRY_SIZE
        data = self._file.read_at(self._geometry.entry_at(start), wanted)
        if len(data) < wanted:
            raise OSError(f"entries {start} to {end} of an index file are missing: it is too short")
        return data

    # ------------------------------------------------------------------------------ jumping

    def _jump(self, number: int, entries_max: int, budget: SearchBudget | None) -> int:
        """The newest entry of the chain, at or before `number`, that is not too new.

        `number` itself if there is none among the `entries_max` entries scanned.
        """
        low, high = 0, number
        while low < high:
            middle = (low + high + 1) // 2
            seconds = _ENTRY.unpack(self._read(middle, middle + 1))[2] if middle > 1 else 0
            if self._header.begin_timestamp_ms + seconds * 1_000 <= self._wanted.end_ms:
                low = middle
            else:
                high = middle - 1
        end = low + 1
        lowest = max(1, end - entries_max)
        while end > lowest:
            start = max(lowest, end - _SCAN_ENTRIES)
            if budget is not None and not budget.spend((end - start) >> _SCAN_BITS):
                return 0
            entries = np.frombuffer(self._read(start, end), INDEX_ENTRY_DTYPE)
            mine = entries["hash"].astype(np.int64) % self._geometry.slots == self._slot
            if mine.any():
                return start + int(np.flatnonzero(mine)[-1])
            end = start
        return 0 if lowest == 1 else number
