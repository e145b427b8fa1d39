"""The results of the checks that a repair needs: where records are damaged, and whose they were.

A region is a run of log bytes without a readable record, from the end of the last whole record to
the start of the next one. What it held is known from the queues whose entries point into it, and
from the queue offsets that are missing between the records around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aerobee.store.repair.findings import Kind

Int64Array = npt.NDArray[np.int64]
QueueName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LostRange:
    """Messages [first, end) of a queue."""

    topic: str
    queue_id: int
    first: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Placed:
    """Messages whose position and size a queue knows: columns of equal length."""

    topic: str
    queue_id: int
    offsets: Int64Array
    positions: Int64Array
    sizes: Int64Array


@dataclass(slots=True)
class DamagedRegion:
    """Log bytes [start, end), all in the segment that starts at `segment_base`.

    `store_timestamp_ms` is that of the last record before it, 0 if there is none.
    """

    start: int
    end: int
    segment_base: int
    kind: Kind
    reason: str
    store_timestamp_ms: int = 0
    placed: list[Placed] = field(default_factory=list)
    unplaced: list[LostRange] = field(default_factory=list)

    def lost(self) -> list[LostRange]:
        """All messages that were here, as ranges, sorted by queue."""
        by_queue: dict[QueueName, list[Int64Array]] = {}
        for placed in self.placed:
            by_queue.setdefault((placed.topic, placed.queue_id), []).append(placed.offsets)
        for gap in self.unplaced:
            offsets = np.arange(gap.first, gap.end, dtype=np.int64)
            by_queue.setdefault((gap.topic, gap.queue_id), []).append(offsets)
        return [found for name in sorted(by_queue) for found in ranges_of(name, by_queue[name])]


def ranges_of(name: QueueName, parts: list[Int64Array]) -> Iterator[LostRange]:
    """The offsets of a queue as runs without gaps."""
    for first, end in iterate_ranges(np.unique(np.concatenate(parts))):
        yield LostRange(*name, first, end)


def iterate_ranges(numbers: npt.NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Rising numbers as runs [first, end) of consecutive ones."""
    if len(numbers):
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            yield int(run[0]), int(run[-1]) + 1


@dataclass(frozen=True, slots=True)
class HeaderFix:
    """A whole record whose header contradicts its queue or its own position, and the correct
    values."""

    position: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    flags_cleared: int = 0
    """Bits of the system flag that it must not have."""


@dataclass(slots=True)
class Damage:
    """All damage. The log is intact from its first segment to `log_end`, except for `regions`."""

    log_end: int = 0
    tail_end: int = 0
    """The end of the last nonzero byte after the log's end; `log_end` if there is none."""
    tail_bytes: int = 0
    regions: list[DamagedRegion] = field(default_factory=list)
    header_fixes: list[HeaderFix] = field(default_factory=list)
    property_crc_wrong: list[tuple[int, int]] = field(default_factory=list)
    """(position, size) of records."""
    bad_queues: dict[QueueName, str] = field(default_factory=dict)
    """Queues whose files must be rebuilt, and why."""
    index_problem: str = ""
    checkpoint_problem: str = ""
    config_from_backup: list[str] = field(default_factory=list)
    config_unreadable: list[str] = field(default_factory=list)

    def region_starts(self) -> Int64Array:
        return np.array([region.start for region in self.regions], np.int64)

    def region_ends(self) -> Int64Array:
        return np.array([region.end for region in self.regions], np.int64)
