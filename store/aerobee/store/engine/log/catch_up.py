"""Readers far behind the log's end: each one's position, and what they leave in memory.

For a reader that walks forward through what is not in memory, the kernel is told what it will want
next. Pages brought in for it are read once and would then only push others' bytes out of memory, so
they are dropped as soon as no other reader is behind it. Pages near the log's end are never
dropped, nor those that a reader found in memory when it began.

Owns: which readers are behind; a position and a handle for each of the most recent ones; and the
ranges that came from disk for them. Loop thread only; synchronous and without I/O, except that
dropping a handle may close it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from aerobee.store.engine.log.segment import SegmentHandle

MIB = 1024 * 1024
IDLE_S = 60.0
"""A reader that has not read for this long is ignored."""
BEHIND_MAX = 100_000
"""How many readers are known to be behind; above this, those that read longest ago count as caught
up."""
READERS_MAX = 256
"""How many have a position and a handle. With more behind, nothing is dropped."""
RANGES_MAX = 4_096
EVICTION_BYTES_MIN = 4 * MIB
"""Smaller ranges wait until they have grown."""
GAP_BYTES_MAX = 8 * MIB
"""Gaps of other records between two reads of a reader count as read up to this size."""
AHEAD_BYTES = 8 * MIB
"""How far the disk may read ahead of a reader."""
DENSITY_MIN = 0.125
"""For a reader that wants a smaller share of what it passes, nothing is read ahead."""

Range = tuple[int, int]


class CatchUp:
    """One reader that is far behind."""

    __slots__ = ("ahead_end", "handle", "is_cold", "is_dense", "position")

    def __init__(self) -> None:
        self.position = -1  # the log offset that it has read up to
        self.is_cold = False  # what it reads is brought in from disk for it
        self.is_dense = False
        self.ahead_end = 0  # the kernel was told to read ahead up to here
        self.handle = SegmentHandle()

    def goes_on_at(self, start: int) -> bool:
        """Whether a read starting at `start` continues its last one."""
        return self.position >= 0 and 0 <= start - self.position <= GAP_BYTES_MAX

    def take_ahead(self) -> Range | None:
        """What to bring in for it next, only once; None while enough is on its way."""
        if not self.is_cold or not self.is_dense:
            return None
        if self.ahead_end - self.position > AHEAD_BYTES // 2:
            return None
        start = max(self.position, self.ahead_end)
        self.ahead_end = self.position + AHEAD_BYTES
        return start, self.ahead_end


class CatchUps:
    """Readers by their names, and the ranges that were brought in for them."""

    def __init__(self) -> None:
        # Readers that are behind, by time of last read; and the most recent of them.
        self._behind: OrderedDict[Hashable, float] = OrderedDict()
        self._readers: OrderedDict[Hashable, CatchUp] = OrderedDict()
        # Sorted by their starts.
        self._ranges: list[Range] = []

    def __len__(self) -> int:
        return len(self._behind)

    def __contains__(self, reader: Hashable) -> bool:
        """Whether it is behind."""
        return reader in self._behind

    def get(self, reader: Hashable) -> CatchUp | None:
        """None also for one that is behind, if too many others have read since."""
        return self._readers.get(reader)

    def get_or_create(self, reader: Hashable, now_s: float) -> CatchUp:
        """It is behind and reads now."""
        self._behind[reader] = now_s
        self._behind.move_to_end(reader)
        if len(self._behind) > BEHIND_MAX:
            forgotten, _ = self._behind.popitem(last=False)
            self._readers.pop(forgotten, None)
        catch_up = self._readers.get(reader)
        if catch_up is None:
            catch_up = self._readers[reader] = CatchUp()
            if len(self._readers) > READERS_MAX:
                self._readers.popitem(last=False)
        else:
            self._readers.move_to_end(reader)
        return catch_up

    def has_read(
        self, catch_up: CatchUp, start: int, end: int, size: int, *, was_cold: bool
    ) -> None:
        """It has read `size` bytes of records between `start` and `end`."""
        follows = catch_up.goes_on_at(start)
        if not follows:
            catch_up.ahead_end = 0
        catch_up.is_dense = size >= DENSITY_MIN * (end - start)
        catch_up.is_cold = was_cold or (catch_up.is_cold and follows)
        if catch_up.is_cold:
            self._add(catch_up.position if follows else start, end)
        catch_up.position = end

    def forget(self, reader: Hashable) -> None:
        """It has come near the end, or stopped reading."""
        self._behind.pop(reader, None)
        self._readers.pop(reader, None)

    def tidy(self, now_s: float, log_min_offset: int) -> None:
        """Drop readers that stopped, and what the log has lost."""
        while self._behind:
            reader, seen_s = next(iter(self._behind.items()))
            if now_s - seen_s < IDLE_S:
                break
            self.forget(reader)
        for catch_up in self._readers.values():
            catch_up.handle.drop_below(log_min_offset)
        if self._ranges and self._ranges[0][0] < log_min_offset:
            self._ranges = [one for one in self._ranges if one[0] >= log_min_offset]

    def take_passed(self, limit: int) -> list[Range]:
        """What every reader has passed, below `limit`: to be dropped from memory; given once."""
        if len(self._behind) > len(self._readers):
            return []
        for catch_up in self._readers.values():
            limit = min(limit, catch_up.position)
        taken: list[Range] = []
        kept: list[Range] = []
        for start, end in self._ranges:
            passed_end = min(end, limit)
            if passed_end - start < EVICTION_BYTES_MIN:
                kept.append((start, end))
                continue
            taken.append((start, passed_end))
            if passed_end < end:
                kept.append((passed_end, end))
        self._ranges = kept
        return taken

    def _add(self, start: int, end: int) -> None:
        """Most ranges begin where one has just ended."""
        ranges = self._ranges
        for index in range(len(ranges) - 1, -1, -1):
            known_start, known_end = ranges[index]
            if known_start <= start <= known_end:
                ranges[index] = (known_start, max(known_end, end))
                return
            if known_end < start:
                ranges.insert(index + 1, (start, end))
                break
        else:
            ranges.insert(0, (start, end))
        if len(ranges) > RANGES_MAX:
            del ranges[0]
