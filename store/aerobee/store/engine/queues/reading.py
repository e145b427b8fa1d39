"""Which records of a queue answer a pull: pure decisions over consume queue entries.

Entries come in as bytes, runs of the log come out: (physical offset, size) of bytes that can be
read in one piece. Nothing here touches a file or the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from aerobee.store.format.consume_queue_entry import (
    ENTRY_SIZE,
    PRE_BLANK_SIZE,
    iterate_entries,
    unpack_entries,
)
from aerobee.store.format.consume_queue_ext import EXT_ADDRESS_MAX
from aerobee.store.format.record import RECORD_SIZE_MIN, Record

STEPS_MAX = 5_000
"""Limit of one piece of evaluating records: it ends with the record that reaches it."""
LOOP_ENTRIES_MAX = 8
"""Up to this many entries are checked one by one, as arrays would cost more than a loop."""

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def _nothing() -> Int64Array:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """Offsets of the first message and after the last; where the last record ends in the log."""

    min_offset: int
    max_offset: int
    max_physical_offset: int = 0


class GetStatus(StrEnum):
    """How a read of a queue ended, with RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"


class Filter(Protocol):
    """Which messages a reader wants: a cheap check of many entries, and one of a record."""

    @property
    def is_exact(self) -> bool:
        """Whether the records of a read all match. Otherwise they may match, according to their
        tags codes, and the reader decides."""
        ...

    @property
    def judged_max(self) -> int | None:
        """For an exact filter that cannot use tags codes: how many records one read evaluates,
        however many messages it wants. None: the codes already exclude most that do not match."""
        ...

    def may_match(self, tags_codes: Int64Array) -> BoolArray:
        """For each entry's tags code whether its message may match; has no false negatives."""
        ...

    def verdict(self, record: Record) -> tuple[bool, int]:
        """Whether it matches, and what finding out cost, in steps of about 0.3 us. Raises
        RecordCorrupt."""
        ...


@dataclass(frozen=True, slots=True)
class Located:
    """Where the messages of a read are. The fields after `max_offset` are empty unless FOUND,
    except the `runs` of records that an exact filter has all rejected.

    `runs` are the ranges of the log to read; `positions` and `sizes` give each wanted record in
    them, and `offsets`, with a filter, its place in the queue.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    runs: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0
    positions: Int64Array = field(default_factory=_nothing, repr=False, compare=False)
    sizes: Int64Array = field(default_factory=_nothing, repr=False, compare=False)
    offsets: Int64Array = field(default_factory=_nothing, repr=False, compare=False)
    is_unsure: bool = field(default=False, compare=False)
    """Some of the records passed only because their tags codes are elsewhere, in files of Apache's
    brokers (`store/format/consume_queue_ext.py`)."""

    def cut(self, count: int) -> Located:
        """The same, as if it had ended after `count` records, at least one. Needs offsets."""
        if count == len(self.positions):
            return self
        positions, sizes = self.positions[:count], self.sizes[:count]
        offsets = self.offsets[:count]
        return replace(
            self,
            next_offset=int(offsets[-1]) + 1,
            runs=_runs(positions, sizes),
            count=count,
            positions=positions,
            sizes=sizes,
            offsets=offsets,
        )


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much one read may return; the first message is returned whatever its size."""

    messages_max: int
    bytes_max: int


def out_of_range(bounds: QueueBounds | None, offset: int) -> Located | None:
    """The answer for an offset where nothing can be read; None inside the queue."""
    if bounds is None:
        return Located(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    first, end = bounds.min_offset, bounds.max_offset
    if end == 0:
        return Located(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    if offset < first:
        return Located(GetStatus.OFFSET_TOO_SMALL, first, first, end)
    if offset == end:
        return Located(GetStatus.OFFSET_OVERFLOW_ONE, offset, first, end)
    if offset > end:
        return Located(GetStatus.OFFSET_OVERFLOW_BADLY, end, first, end)
    return None


def select(
    entries: bytes,
    *,
    offset: int,
    bounds: QueueBounds,
    limits: ReadLimits,
    log_min_offset: int,
    next_file_offset: int,
    filter: Filter | None,
    loop_entries_max: int = LOOP_ENTRIES_MAX,
) -> Located:
    """What to read of `entries`, the first of which is at `offset`.

    Entries of removed records are skipped; a blank or invalid one ends the read. Without any usable
    entry the reader is sent to `next_file_offset`, where the queue's next file begins. Up to
    `loop_entries_max` entries are processed without arrays; the result is the same.
    """
    if filter is None and len(entries) <= loop_entries_max * ENTRY_SIZE:
        return _select_by_loop(entries, offset, bounds, limits, log_min_offset, next_file_offset)
    positions, sizes, tags_codes = unpack_entries(entries)
    valid = (sizes > 0) & (positions >= 0) & (sizes != PRE_BLANK_SIZE)
    usable = len(valid) if valid.all() else int(valid.argmin())
    if usable == 0:
        return Located(
            GetStatus.OFFSET_FOUND_NULL, next_file_offset, bounds.min_offset, bounds.max_offset
        )
    wanted = np.ones(usable, bool) if filter is None else filter.may_match(tags_codes[:usable])
    removed = positions[:usable] < log_min_offset
    some_removed = bool(removed.any())
    if some_removed:
        wanted &= ~removed
    chosen = np.flatnonzero(wanted)
    if not len(chosen):
        status = GetStatus.MESSAGE_WAS_REMOVING if some_removed else GetStatus.NO_MATCHED_MESSAGE
        return Located(status, offset + usable, bounds.min_offset, bounds.max_offset)
    scanned_all = True
    count = _fitting(sizes[chosen], limits)
    if count < len(chosen):
        chosen = chosen[:count]
        scanned_all = False
    # Entries checked and not wanted need no second look, unless a limit cut the read before them.
    next_offset = offset + (usable if scanned_all else int(chosen[-1]) + 1)
    return Located(
        GetStatus.FOUND,
        next_offset,
        bounds.min_offset,
        bounds.max_offset,
        _runs(positions[chosen], sizes[chosen]),
        count,
        positions[chosen],
        sizes[chosen],
        chosen + offset,
        filter is not None and bool((tags_codes[chosen] <= EXT_ADDRESS_MAX).any()),
    )


def _select_by_loop(
    entries: bytes,
    offset: int,
    bounds: QueueBounds,
    limits: ReadLimits,
    log_min_offset: int,
    next_file_offset: int,
) -> Located:
    """`select` without a filter."""
    runs: list[tuple[int, int]] = []
    positions: list[int] = []
    sizes: list[int] = []
    run_start = run_end = -1
    next_offset = chosen_end = offset
    bytes_left = limits.bytes_max
    for position, size, _ in iterate_entries(entries):
        if size <= 0 or position < 0 or size == PRE_BLANK_SIZE:
            break
        if position >= log_min_offset:
            bytes_left -= size
            if positions and (bytes_left < 0 or len(positions) >= limits.messages_max):
                next_offset = chosen_end
                break
            positions.append(position)
            sizes.append(size)
            if position != run_end:
                if run_end >= 0:
                    runs.append((run_start, run_end - run_start))
                run_start = position
            run_end = position + size
            chosen_end = next_offset + 1
        next_offset += 1
    first, end = bounds.min_offset, bounds.max_offset
    if positions:
        runs.append((run_start, run_end - run_start))
        return Located(
            GetStatus.FOUND,
            next_offset,
            first,
            end,
            runs,
            len(positions),
            np.array(positions, np.int64),
            np.array(sizes, np.int64),
        )
    if next_offset > offset:
        return Located(GetStatus.MESSAGE_WAS_REMOVING, next_offset, first, end)
    return Located(GetStatus.OFFSET_FOUND_NULL, next_file_offset, first, end)


def _fitting(sizes: Int64Array, limits: ReadLimits) -> int:
    within = int(np.searchsorted(np.cumsum(sizes), limits.bytes_max, side="right"))
    return max(1, min(within, limits.messages_max))


def _runs(positions: Int64Array, sizes: Int64Array) -> list[tuple[int, int]]:
    ends = positions + sizes
    first_of_run = np.flatnonzero(positions[1:] != ends[:-1]) + 1
    starts = positions[np.concatenate(([0], first_of_run))]
    run_ends = ends[np.concatenate((first_of_run - 1, [len(ends) - 1]))]
    return list(zip(starts.tolist(), (run_ends - starts).tolist(), strict=True))


def entries_to_read(limits: ReadLimits, *, filtered: bool, scan_entries_max: int) -> int:
    """How many entries to look at for one read."""
    if filtered:
        return max(scan_entries_max, limits.messages_max)
    return max(1, min(limits.messages_max, limits.bytes_max // RECORD_SIZE_MIN + 1))
