"""A search in the key index: planned on the loop, run on any thread while the index grows.

A plan holds the state at its creation: each file's header, and the keys that are not in a file yet.
Entries after a header's count are skipped, as their keys are among the latter, and keys not yet in
files are searched too, so none is missed on its way there.

The rules are those of Apache's broker: newest file first; in each, the chain of the key's slot;
whole seconds; no further than the first entry before the wanted time. `run_raw` answers exactly as
it does; `unique_matches` gives each record once, ends where the log begins, uses the true age of a
file's first entry, and has a budget.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.index.index_files import IndexFileInfo
from aerobee.store.engine.index.index_write import Slots
from aerobee.store.engine.index.pending_keys import PendingView, hashed_keys
from aerobee.store.engine.index.search_budget import SearchBudget
from aerobee.store.engine.index.slot_chain import SlotChain, WantedKey
from aerobee.store.format.index_file import (
    IndexGeometry,
    IndexHeader,
    IndexKeys,
    entry_seconds,
    share_out,
)
from aerobee.store.format.index_unhashed import UnhashedKeys

TIMESTAMP_MAX: Final = (1 << 63) - 1

_REPLACEMENT: Final = "\ufffd"
# The cost of hashing this many bytes, in entries: 2^4.
_PART_BITS: Final = 4


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """The keys of one file that are not in it yet, newest last; none before `header`'s time."""

    header: IndexHeader
    keys: IndexKeys
    seconds: npt.NDArray[np.int32]

    def matches(self, wanted: WantedKey) -> Iterator[int]:
        """Physical offsets, newest first."""
        for index in np.flatnonzero(self.keys.hashes == wanted.key_hash)[::-1].tolist():
            timestamp_ms = self.header.begin_timestamp_ms + int(self.seconds[index]) * 1_000
            if wanted.begin_ms <= timestamp_ms <= wanted.end_ms:
                yield int(self.keys.physical_offsets[index])


def memory_parts(
    newest: IndexHeader | None, keys: IndexKeys, entries: int
) -> list[tuple[bool, MemoryPart]]:
    """The part of `keys` that each file would get, oldest first, and whether the file is new.

    The header of a part is the file's header as if it contained the part.
    """
    parts = []
    for share in share_out(newest, keys, entries):
        part = keys.part(share.start, share.end)
        begin_ms, seconds = entry_seconds(share.header, part.store_timestamps_ms)
        first = share.header.begin_physical_offset
        header = IndexHeader(
            begin_ms,
            int(part.store_timestamps_ms[-1]),
            first if share.header.has_entries else int(part.physical_offsets[0]),
            int(part.physical_offsets[-1]),
            share.header.used_slots,
            share.header.count + len(part),
        )
        parts.append((share.is_new, MemoryPart(header, part, seconds)))
    return parts


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The index at one moment. `slots`, by name, are used instead of a file's own."""

    files: Sequence[IndexFileInfo]
    pending: PendingView
    slots: Mapping[str, Slots]


class KeySearch:
    """`run` and `run_raw` may be called on any thread, and more than once."""

    def __init__(
        self,
        disk: Disk,
        geometry: IndexGeometry,
        snapshot: IndexSnapshot,
        wanted: WantedKey,
        *,
        key: str,
        max_results: int,
    ) -> None:
        self._disk = disk
        self._geometry = geometry
        self._files = snapshot.files
        self._pending = snapshot.pending
        self._slots = snapshot.slots
        self._wanted = wanted
        # Bytes that were not valid UTF-8 were replaced, so the key cannot be found as it is.
        self._needle = b"" if _REPLACEMENT in key else key.encode("utf-8", "surrogatepass")
        self._max_results = max_results

    def run(self) -> list[int]:
        """Physical offsets, newest first, each once. May include records with a different key of
        the same hash, and removed records. Raises OSError."""
        return list(islice(self.unique_matches(0, SearchBudget(None)), self._max_results))

    def run_raw(self) -> list[int]:
        """The answer of Apache's index: an offset filed twice under the key comes twice."""
        return list(islice(self._raw_matches(), self._max_results))

    def unique_matches(self, lowest: int, budget: SearchBudget) -> Iterator[int]:
        """All offsets that are `lowest` or higher, newest first, as many as the caller takes and
        the budget allows.

        Offsets fall. Where they do not, Apache's broker filed the same records again after a crash,
        so they were already returned.
        """
        last = 1 << 63
        for offset in self._matches(lowest, budget):
            if offset < last:
                last = offset
                yield offset

    def _matches(self, lowest: int, budget: SearchBudget) -> Iterator[int]:
        yield from self._in_memory(lowest, budget)
        wanted = self._wanted
        for info in reversed(self._files):
            header = info.header
            if budget.is_spent or 0 < header.end_physical_offset < lowest:
                return
            if wanted.overlaps(header):
                with self._chain(info) as chain:
                    if chain is not None:
                        yield from chain.matches(lowest, budget)
                        if chain.went_below:
                            return
            if header.begin_timestamp_ms < wanted.begin_ms:
                return

    def _in_memory(self, lowest: int, budget: SearchBudget) -> Iterator[int]:
        """In memory, times are the records' own."""
        wanted = self._wanted
        for part in reversed(self._pending.parts):
            for keys in reversed(hashed_keys(part, self._needle)):
                for index in np.flatnonzero(keys.hashes == wanted.key_hash)[::-1].tolist():
                    if not budget.spend() or int(keys.physical_offsets[index]) < lowest:
                        return
                    timestamp_ms = int(keys.store_timestamps_ms[index])
                    if wanted.begin_ms <= timestamp_ms <= wanted.end_ms:
                        yield int(keys.physical_offsets[index])
            if not budget.spend(
                part.memory_bytes >> _PART_BITS if isinstance(part, UnhashedKeys) else 1
            ):
                return

    def _raw_matches(self) -> Iterator[int]:
        wanted = self._wanted
        newest = self._files[-1].header if self._files else None
        parts = memory_parts(newest, self._pending.hashed(), self._geometry.entries)
        for is_new, part in reversed(parts):
            if wanted.overlaps(part.header):
                yield from part.matches(wanted)
                if not is_new:
                    yield from self._raw_in_file(self._files[-1])
            if part.header.begin_timestamp_ms < wanted.begin_ms:
                return
        begun = bool(parts) and not parts[0][0]
        for info in reversed(self._files[:-1] if begun else self._files):
            if wanted.overlaps(info.header):
                yield from self._raw_in_file(info)
            if info.header.begin_timestamp_ms < wanted.begin_ms:
                return

    def _raw_in_file(self, info: IndexFileInfo) -> Iterator[int]:
        with self._chain(info) as chain:
            if chain is not None:
                yield from chain.raw_matches()

    @contextlib.contextmanager
    def _chain(self, info: IndexFileInfo) -> Iterator[SlotChain | None]:
        """None for a file without entries, and for one that is gone by now: it pointed only to
        removed records."""
        if not info.header.has_entries:
            yield None
            return
        try:
            file = self._disk.open_file(info.path, read_only=True)
        except FileNotFoundError:
            yield None
            return
        try:
            slots = self._slots.get(info.name)
            yield SlotChain(file, self._geometry, info.header, self._wanted, slots=slots)
        finally:
            file.close()
