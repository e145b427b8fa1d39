"""Faults of an index file: what keeps searches from finding keys.

A slot or a link that points elsewhere than it must may itself be wrong, or the entry that it points
to has lost a bit of its hash. The entry's record decides: an entry whose key the record does not
have is the cause, and what points to it or past it is not.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np

from aerobee.offset_audit.sources.store.faults import Fault, FaultKind, name_in
from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.index_geometry import IndexFile
from aerobee.offset_audit.sources.store.index_reach import BROKEN_MAX, Reach
from aerobee.offset_audit.sources.store.log_lookup import LogLookup
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.store.format.index_file import (
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    IndexGeometry,
    IndexHeader,
)
from aerobee.store.format.index_keys import record_keys
from aerobee.store.format.java_hash import index_key_hash

_SUSPECTS_MAX = 10_000


class IndexFaults:
    """The faults of one index file whose chains were looked at."""

    def __init__(
        self, facts: StoreFacts, index: IndexFile, geometry: IndexGeometry, lookup: LogLookup
    ) -> None:
        self._facts = facts
        self._index = index
        self._geometry = geometry
        self._lookup = lookup
        self._name = name_in(facts.store, index.path)

    def of_header(self, header: IndexHeader) -> list[Fault]:
        """A count or end that contradicts the entries."""
        count = header.count
        if count > self._geometry.entries:
            text = f"it counts {count} entries, the file has room for {self._geometry.entries}"
            return [Fault(FaultKind.INDEX_HEADER, self._name, 36, text)]
        if not header.has_entries:
            return []
        last = self._entry(count - 1)
        place = int(last["physical_offset"])
        if place != header.end_physical_offset:
            text = (
                f"entry {count - 1}, the last one by the header, leads to log position {place}, "
                f"not to {header.end_physical_offset}"
            )
            return [Fault(FaultKind.INDEX_HEADER, self._name, 0, text)]
        return []

    def of_chains(self, reach: Reach) -> list[Fault]:
        """Slots and entries that point elsewhere than they must, each cause once."""
        if not reach.broken:
            return []
        if reach.broken > BROKEN_MAX:
            return [self._of_all(reach)]
        wrong = self._without_key(reach)
        lost = Counter(reach.unreachable_slots.tolist())
        faults = [self._of_entry(number, lost) for number in sorted(wrong)]
        for link in reach.links:
            if wrong.isdisjoint((link.number, link.actual, link.expected)):
                text = f"entry {link.number} leads to {link.actual}, not to {link.expected}"
                faults.append(self._at_entry(link.number, text, lost))
        for broken in reach.slots:
            if wrong.isdisjoint((broken.actual, broken.expected)):
                text = f"slot {broken.slot} leads to {broken.actual}, not to {broken.expected}"
                at = self._geometry.slot_at(broken.slot)
                text += _lost(lost[broken.slot])
                faults.append(Fault(FaultKind.INDEX_SLOT, self._name, at, text))
        return faults

    def _of_all(self, reach: Reach) -> Fault:
        """One for a file with very many errors: each by itself tells nothing more."""
        text = f"{reach.broken} slots and entries lead to wrong places"
        text += _lost(len(reach.unreachable))
        if reach.slots:
            at = self._geometry.slot_at(reach.slots[0].slot)
            return Fault(FaultKind.INDEX_SLOT, self._name, at, text)
        at = self._geometry.entry_at(reach.links[0].number)
        return Fault(FaultKind.INDEX_ENTRY, self._name, at, text)

    def _without_key(self, reach: Reach) -> set[int]:
        """Entries around broken places that stand for a key that their record does not have."""
        suspects: dict[int, None] = {}
        for link in reach.links:
            suspects |= dict.fromkeys((link.number, link.actual, link.expected))
        for broken in reach.slots:
            suspects |= dict.fromkeys((broken.actual, broken.expected))
        numbers = [n for n in suspects if 0 < n < self._geometry.entries]
        return {number for number in numbers[:_SUSPECTS_MAX] if self._is_foreign(number)}

    def _is_foreign(self, number: int) -> bool:
        entry = self._entry(number)
        position = int(entry["physical_offset"])
        if position < self._facts.bounds.begin:
            return False
        record = self._lookup.record_at(position)
        if record is None:
            return False
        topic = record.topic
        keys = record_keys(record.properties_bytes)
        return int(entry["hash"]) not in {index_key_hash(f"{topic}#{key}") for key in keys}

    def _of_entry(self, number: int, lost: Counter[int]) -> Fault:
        position = int(self._entry(number)["physical_offset"])
        text = f"entry {number} is for a key that the record at {position} does not have"
        return self._at_entry(number, text, lost)

    def _at_entry(self, number: int, text: str, lost: Counter[int]) -> Fault:
        key_hash = int(self._entry(number)["hash"])
        count = lost[key_hash % self._geometry.slots if key_hash >= 0 else -1]
        at = self._geometry.entry_at(number)
        return Fault(FaultKind.INDEX_ENTRY, self._name, at, text + _lost(count))

    def _entry(self, number: int) -> np.void:
        at = self._geometry.entry_at(number)
        data = self._index.read(at, at + INDEX_ENTRY_SIZE).ljust(INDEX_ENTRY_SIZE, b"\0")
        entry: np.void = np.frombuffer(data, INDEX_ENTRY_DTYPE)[0]
        return entry


def _lost(count: int) -> str:
    return f": {count} keys cannot be found" if count else ""


def of_index_size(facts: StoreFacts, file: StoreFile) -> list[Fault]:
    """An index file whose length does not match its sizes."""
    geometry = facts.index_geometry
    if geometry is None or file.size == geometry.file_bytes:
        return []
    text = f"the file has {file.size} bytes, index files have {geometry.file_bytes}"
    name = name_in(facts.store, file.path)
    return [Fault(FaultKind.INDEX_FILE_SIZE, name, min(file.size, geometry.file_bytes), text)]


def of_missing_sizes(facts: StoreFacts, files: list[StoreFile]) -> list[Fault]:
    """Index files that cannot be read, because they do not show how many slots they have."""
    if facts.index_geometry is not None or not facts.indexed.end or not files:
        return []
    text = f"the number of slots of {os.path.basename(files[0].path)} is not known: set indexSlots"
    return [Fault(FaultKind.INDEX_SIZES, "index", None, text)]
