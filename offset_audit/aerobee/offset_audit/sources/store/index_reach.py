"""Which keys of an index file a search would find, without walking its chains.

Inserting keys is deterministic, so the correct content of each entry and of each final slot follows
from the entries' hashes in order. Where the content is correct, every key is found. Only the chains
of slots with a difference are walked, as a search would.

Memory: a number per slot, a stretch of entries, and the differences; for a file with very many of
these, two numbers per entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aerobee.offset_audit.sources.store.index_geometry import IndexFile
from aerobee.offset_audit.sources.store.ranges_digest import Int64Array
from aerobee.store.format.index_file import (
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    SLOT_SIZE,
    IndexGeometry,
    IndexHeader,
)
from aerobee.store.format.record_arrays import BoolArray

ENTRIES_PER_STRETCH: Final = 512 * 1024
BROKEN_MAX: Final = 5_000
"""How many broken slots and links of a file are reported one by one."""

# Steps that a walk takes through entries of other slots before it counts as lost.
_STRAY_STEPS_MAX: Final = 10_000
_AHEAD_STEPS_MAX: Final = 1_000

# In place of the next older entry: a search ends here, before it takes the entry.
_NEGATIVE: Final = -1


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries end to end, and the slot for each one's hash; -1 for a negative hash."""

    first: int
    entries: npt.NDArray[Any]
    slots: Int64Array

    @property
    def numbers(self) -> Int64Array:
        return np.arange(self.first, self.first + len(self.entries))


@dataclass(frozen=True, slots=True)
class BrokenSlot:
    """A slot that does not point to its newest entry."""

    slot: int
    actual: int
    expected: int


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """An entry that does not point to the next older one of its slot."""

    number: int
    actual: int
    expected: int
    is_negative: bool
    """Its hash or seconds are negative, where every search ends."""


@dataclass(slots=True)
class Reach:
    """What is broken, and the numbers of the entries that no search finds, rising."""

    broken: int = 0
    """All broken slots and links; `slots` and `links` contain the first of them."""
    slots: list[BrokenSlot] = field(default_factory=list)
    links: list[BrokenLink] = field(default_factory=list)
    unreachable: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    unreachable_slots: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    """The slot of each of them."""

    def is_found(self, numbers: Int64Array) -> BoolArray:
        """Which of the entries a search finds."""
        if not len(self.unreachable):
            return np.ones(len(numbers), np.bool_)
        if not len(numbers):
            return np.ones(0, np.bool_)
        low, high = np.searchsorted(self.unreachable, (numbers.min(), numbers.max() + 1))
        return ~np.isin(numbers, self.unreachable[low:high])


class ChainWalk:
    """Reads an index file. `header` says how many entries count."""

    def __init__(self, index: IndexFile, geometry: IndexGeometry, header: IndexHeader) -> None:
        self._index = index
        self._geometry = geometry
        self._count = min(header.count, geometry.entries)

    def stretches(self) -> Iterator[Stretch]:
        """All entries that count, in order."""
        for first in range(1, self._count, ENTRIES_PER_STRETCH):
            end = min(first + ENTRIES_PER_STRETCH, self._count)
            entries = self._entries(first, end)
            hashes = entries["hash"].astype(np.int64)
            slots = np.where(hashes < 0, -1, hashes % self._geometry.slots)
            yield Stretch(first, entries, slots)

    def reach(self, *, may_be_ahead: bool) -> Reach:
        """Which entries are found. `may_be_ahead`: slots may already point to entries that do not
        count yet."""
        found = Reach()
        odd: list[Int64Array] = []
        heads = np.zeros(self._geometry.slots, np.int32)
        for stretch in self.stretches():
            links, slots = self._broken_links(stretch, heads)
            found.broken += len(slots)
            found.links += links[: BROKEN_MAX - len(found.links)]
            odd.append(slots)
        actual = self._slots()
        differing = np.flatnonzero(actual != heads)
        if may_be_ahead:
            ahead = differing[actual[differing] >= self._count]
            right = [
                at for at in ahead.tolist() if self._behind_count(int(actual[at])) == heads[at]
            ]
            differing = differing[~np.isin(differing, right)]
        found.broken += len(differing)
        for slot in differing[:BROKEN_MAX].tolist():
            found.slots.append(BrokenSlot(slot, int(actual[slot]), int(heads[slot])))
        if found.broken:
            wanted = np.unique(np.concatenate([differing, *odd]))
            wanted = wanted[wanted >= 0]
            walk = self._walk if found.broken <= BROKEN_MAX else self._walk_together
            walk(found, actual, wanted)
        return found

    def _broken_links(
        self, stretch: Stretch, heads: npt.NDArray[np.int32]
    ) -> tuple[list[BrokenLink], Int64Array]:
        """The first ones in the stretch, and the slots of all; `heads` becomes what the slots hold
        after it."""
        usable = np.flatnonzero(stretch.slots >= 0)
        slots = stretch.slots[usable]
        order = np.argsort(slots, kind="stable")
        in_order, numbers = slots[order], stretch.first + usable[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = in_order[1:] != in_order[:-1]
        expected = np.empty(len(order), np.int64)
        expected[1:] = numbers[:-1]
        expected[is_first] = heads[in_order[is_first]]
        is_last = np.append(is_first[1:], True)[: len(order)]
        heads[in_order[is_last]] = numbers[is_last]
        should = np.zeros(len(stretch.entries), np.int64)
        should[usable[order]] = expected
        previous = stretch.entries["previous"].astype(np.int64)
        negative = (stretch.slots < 0) | (stretch.entries["seconds"] < 0)
        broken = np.flatnonzero((previous != should) | negative)
        links = [
            BrokenLink(
                stretch.first + row, int(previous[row]), int(should[row]), bool(negative[row])
            )
            for row in broken[:BROKEN_MAX].tolist()
        ]
        return links, stretch.slots[broken]

    # ------------------------------------------------------------------------------ walking

    def _walk(self, found: Reach, heads: npt.NDArray[np.int32], wanted: Int64Array) -> None:
        """Find out what the searches of these slots miss."""
        none = np.zeros(
            0, np.int64
        )  # A header may say that no entry counts, where slots have some.
        members, slots, previous = [none], [none], [none]
        for stretch in self.stretches():
            rows = np.flatnonzero(np.isin(stretch.slots, wanted) | (stretch.slots < 0))
            members.append(stretch.first + rows)
            slots.append(stretch.slots[rows])
            steps = np.maximum(stretch.entries["previous"][rows].astype(np.int64), 0)
            steps[(stretch.entries["seconds"][rows] < 0) | (stretch.slots[rows] < 0)] = _NEGATIVE
            previous.append(steps)
        numbers = np.concatenate(members)
        slot_of = np.concatenate(slots)
        known = dict(zip(numbers.tolist(), np.concatenate(previous).tolist(), strict=True))
        belongs = dict(zip(numbers.tolist(), slot_of.tolist(), strict=True))
        reached: set[int] = set()
        for slot in wanted.tolist():
            reached |= self._reached(slot, int(heads[slot]), known, belongs)
        missed = np.array([number not in reached for number in numbers.tolist()], np.bool_)
        found.unreachable = numbers[missed]
        found.unreachable_slots = slot_of[missed]

    def _walk_together(
        self, found: Reach, heads: npt.NDArray[np.int32], wanted: Int64Array
    ) -> None:
        """The same for very many slots: all walks advance together, one step at a time."""
        previous = np.zeros(self._geometry.entries, np.int32)
        slots = np.full(self._count, -1, np.int32)
        for stretch in self.stretches():
            steps = np.maximum(stretch.entries["previous"].astype(np.int64), 0)
            steps[(stretch.entries["seconds"] < 0) | (stretch.slots < 0)] = _NEGATIVE
            previous[stretch.first : stretch.first + len(steps)] = steps
            slots[stretch.first : stretch.first + len(steps)] = stretch.slots
        for first in range(max(1, self._count), self._geometry.entries, ENTRIES_PER_STRETCH):
            end = min(first + ENTRIES_PER_STRETCH, self._geometry.entries)
            previous[first:end] = self._entries(first, end)["previous"]
        reached = np.zeros(self._count, np.bool_)
        of, at = wanted, heads[wanted].astype(np.int64)
        for _ in range(_AHEAD_STEPS_MAX):
            ahead = (at >= self._count) & (at < self._geometry.entries)
            if not ahead.any():
                break
            at[ahead] = previous[at[ahead]]
        strays = np.zeros(len(at), np.int64)
        # A walk that returns to where it was at the last power of two of steps is in a cycle.
        marks, steps_taken, next_mark = at.copy(), 0, 1
        while True:
            goes_on = (at > 0) & (at < self._count) & (strays < _STRAY_STEPS_MAX)
            of, at, strays, marks = of[goes_on], at[goes_on], strays[goes_on], marks[goes_on]
            if not len(at):
                break
            older = previous[at].astype(np.int64)
            is_own = slots[at] == of
            reached[at[is_own & (older != _NEGATIVE)]] = True
            strays += ~is_own
            at = np.where(older == marks, 0, older)
            steps_taken += 1
            if steps_taken == next_mark:
                marks, next_mark = at.copy(), next_mark * 2
        may_miss = np.zeros(self._geometry.slots, np.bool_)
        may_miss[wanted] = True
        missed = ~reached & ((slots < 0) | may_miss[slots])
        missed[:1] = False  # entries count from 1
        found.unreachable = np.flatnonzero(missed).astype(np.int64)
        found.unreachable_slots = slots[missed].astype(np.int64)

    def _reached(
        self, slot: int, head: int, known: dict[int, int], belongs: dict[int, int]
    ) -> set[int]:
        """The entries of a slot that a search passes."""
        passed: set[int] = set()
        own: set[int] = set()
        strays = 0
        number = head
        if number >= self._count:
            number = self._behind_count(number)
        while 0 < number < self._count and number not in passed and strays < _STRAY_STEPS_MAX:
            passed.add(number)
            if number in known:
                if known[number] == _NEGATIVE:
                    break
                if belongs[number] == slot:
                    own.add(number)
                number = known[number]
                continue
            strays += 1
            entry = self._entry(number)
            number = int(entry["previous"]) if entry["seconds"] >= 0 else 0
        return own

    def _behind_count(self, number: int) -> int:
        """The first entry of a chain that counts, if its newest ones do not count yet."""
        for _ in range(_AHEAD_STEPS_MAX):
            if number < self._count or number >= self._geometry.entries:
                break
            number = int(self._entry(number)["previous"])
        return number if number < self._count else 0

    def _entry(self, number: int) -> Any:
        return self._entries(number, number + 1)[0]

    def _entries(self, first: int, end: int) -> npt.NDArray[Any]:
        at = self._geometry.entry_at(first)
        size = (end - first) * INDEX_ENTRY_SIZE
        data = self._index.read(at, at + size)
        # A file that was cut reads as zeros.
        return np.frombuffer(data.ljust(size, b"\0"), INDEX_ENTRY_DTYPE)

    def _slots(self) -> npt.NDArray[np.int32]:
        size = SLOT_SIZE * self._geometry.slots
        at = self._geometry.slot_at(0)
        data = self._index.read(at, at + size).ljust(size, b"\0")
        return np.frombuffer(data, ">i4").astype(np.int32)
