"""Reads one index file from its first entry to its last, and checks what the insertions must have
left.

Owns: a slot table in memory, 4 bytes per slot, into which each entry is inserted once more with the
codec that writers use. Any difference from the file is a problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from aerobee.store.engine.disk import DiskFile
from aerobee.store.format.index_file import (
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    SLOT_SIZE,
    IndexEntries,
    IndexGeometry,
    IndexHeader,
    IndexKeys,
    insert,
)
from aerobee.store.repair.damage import Int64Array

_ENTRIES_PER_BLOCK = 100_000
_NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class Block:
    """Entries end to end; the first has the number `first`."""

    replay: IndexReplay
    first: int
    entries: IndexEntries

    @property
    def offsets(self) -> Int64Array:
        return self.entries["physical_offset"].astype(np.int64)

    def combined(self, start: int) -> Int64Array:
        """(position after `start`, hash) as one number; -1 if the position is not in the
        stretch."""
        behind = self.offsets - start
        hashes = self.entries["hash"].astype(np.int64)
        combined = (behind << 31) | hashes
        return np.where((behind >= 0) & (behind < 1 << 32) & (hashes >= 0), combined, -1)


class IndexReplay:
    """One file; 4 bytes of memory for each of its slots."""

    def __init__(
        self,
        name: str,
        file: DiskFile,
        geometry: IndexGeometry,
        header: IndexHeader,
        previous: IndexHeader | None,
    ) -> None:
        self.name = name
        self.header = header
        self._file = file
        self._geometry = geometry
        self._next = 1
        self._slots: Int64Array | None = None
        self._replayed = previous.rolled() if previous is not None else IndexHeader()
        self._has_unknown_times = False
        self._problems: list[tuple[int, str]] = []

    def entry_at(self, number: int) -> int:
        return self._geometry.entry_at(number)

    def slot_at(self, slot: int) -> int:
        return self._geometry.slot_at(slot)

    @property
    def is_done(self) -> bool:
        return self._next >= self.header.count

    # ------------------------------------------------------------------------------ reading

    def blocks_before(self, end: int) -> Iterator[Block]:
        """The following entries, up to the last one that points before `end`."""
        while not self.is_done:
            count = min(_ENTRIES_PER_BLOCK, self.header.count - self._next)
            data = self._file.read_at(self.entry_at(self._next), count * INDEX_ENTRY_SIZE)
            entries = np.frombuffer(
                data[: len(data) // INDEX_ENTRY_SIZE * INDEX_ENTRY_SIZE], INDEX_ENTRY_DTYPE
            )
            before = np.flatnonzero(entries["physical_offset"] < end)
            if not len(before):
                return
            taken = int(before[-1]) + 1
            block = Block(self, self._next, entries[:taken])
            self._next += taken
            yield block
            if taken < count:
                return

    # ------------------------------------------------------------------------------ inserting

    def insert(self, block: Block, store_timestamps_ms: Int64Array) -> None:
        """Insert the block's entries once more; -1 stands for an unknown time."""
        if self._slots is None:
            self._slots = np.zeros(self._geometry.slots, np.int32)
        entries = block.entries
        unknown = store_timestamps_ms < 0
        begin_ms = self.header.begin_timestamp_ms
        said_ms = begin_ms + entries["seconds"].astype(np.int64) * 1_000
        times = np.where(unknown, said_ms, store_timestamps_ms)
        self._has_unknown_times |= bool(unknown.any())
        if block.first == 1 and unknown[0]:
            times[0] = begin_ms
        hashes = np.maximum(entries["hash"].astype(np.int32), 0)
        insertion = insert(self._replayed, self._slots, IndexKeys(hashes, block.offsets, times))
        self._slots[insertion.slots] = insertion.slot_values
        self._replayed = insertion.header
        wrong = insertion.entries["previous"] != entries["previous"]
        for index in np.flatnonzero(wrong)[:_NAMED_MAX].tolist():
            self._problems.append(
                (
                    block.first + index,
                    f"entry {block.first + index} points to entry {entries['previous'][index]}, "
                    f"not to {insertion.entries['previous'][index]}",
                )
            )
        late = (insertion.entries["seconds"] != entries["seconds"]) & ~unknown
        if block.first == 1:
            late[0] = False  # counted from the file before, which may be gone
        for index in np.flatnonzero(late)[:_NAMED_MAX].tolist():
            self._problems.append(
                (
                    block.first + index,
                    f"entry {block.first + index} says {entries['seconds'][index]} s, its record "
                    f"was stored {insertion.entries['seconds'][index]} s after the file's first",
                )
            )

    def take_chain_problems(self) -> list[tuple[int, str]]:
        """(entry, problem) since the last call."""
        problems, self._problems = self._problems, []
        return problems

    # ------------------------------------------------------------------------------ the end

    def header_problem(self) -> str:
        """Where the header differs from the entries; empty if nowhere."""
        expected = self._replayed
        said = self.header
        if self._has_unknown_times or not said.has_entries:
            expected = replace(
                expected,
                begin_timestamp_ms=said.begin_timestamp_ms,
                end_timestamp_ms=said.end_timestamp_ms,
            )
        if not said.has_entries:
            return ""
        for name in IndexHeader.__slots__:
            if getattr(said, name) != getattr(expected, name):
                words = name.replace("_", " ")
                return f"{words} is {getattr(said, name)}, by the entries {getattr(expected, name)}"
        return ""

    def slot_problems(self, *, may_be_ahead: bool) -> Iterator[tuple[int, str]]:
        """(slot, problem); `may_be_ahead`: entries after the count were being inserted."""
        data = self._file.read_at(HEADER_SIZE, SLOT_SIZE * self._geometry.slots)
        said = np.frombuffer(data, ">i4").astype(np.int64)
        if self._slots is None:
            self._slots = np.zeros(self._geometry.slots, np.int32)
        wrong = said != self._slots
        if may_be_ahead:
            wrong &= said < self.header.count
        for slot in np.flatnonzero(wrong)[:_NAMED_MAX].tolist():
            yield slot, f"slot {slot} leads to entry {said[slot]}, not to {self._slots[slot]}"
        self._slots = None
