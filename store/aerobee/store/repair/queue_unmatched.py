"""Queue entries whose record was not found: old ones, lost ones, torn ones, wrong ones."""

from __future__ import annotations

import numpy as np

from aerobee.store.format.checked_batch import UNQUEUED_BIT
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, PRE_BLANK_SIZE, unpack_entries
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX
from aerobee.store.format.record_view import Record
from aerobee.store.repair.damage import (
    DamagedRegion,
    Int64Array,
    LostRange,
    Placed,
    iterate_ranges,
)
from aerobee.store.repair.findings import Kind
from aerobee.store.repair.queue_cursor import QueueCursor
from aerobee.store.repair.queue_evidence import QueueEvidence
from aerobee.store.repair.queue_suspects import QueueSuspects

NO_RECORD = 1 << 62
"""The position of the next record if there is none."""

_ENTRIES_PER_READ = 50_000
# Headers change one by one; if more entries in a row point to others' records, the entries are
# wrong.
_HEADERS_MAX = 3


class UnmatchedEntries:
    """Owns: which offsets are missing in the log and where, and `ahead`, what is after its end.

    `log_has_ended` is set once the log's end is known.
    """

    def __init__(self, evidence: QueueEvidence, suspects: QueueSuspects) -> None:
        self._evidence = evidence
        self._suspects = suspects
        self._gaps: list[tuple[LostRange, DamagedRegion]] = []
        self.log_has_ended = False
        self.ahead: list[Placed] = []

    def judge(self, cursor: QueueCursor, start: int, end: int, before: int) -> None:
        """Offsets [start, end) for which no record was found; `before` is the next one's
        position."""
        if cursor.topic.startswith(LIGHT_QUEUE_PREFIX):
            return
        between = self._regions_between(cursor, before)
        if between and start < end and before != NO_RECORD:
            gap = LostRange(cursor.topic, cursor.queue_id, start, end)
            self._gaps.append((gap, _largest(between)))
        unknown: list[tuple[int, int]] = []
        offset = start
        while offset < end:
            count = min(_ENTRIES_PER_READ, end - offset)
            data = self._evidence.read(cursor, offset, count)
            if not data:
                unknown.append((offset, end))
                break
            unknown += self._judge_entries(cursor, offset, data)
            offset += len(data) // ENTRY_SIZE
        for first, behind in _joined(unknown):
            self._judge_unknown(cursor, first, behind, before)

    def _judge_entries(
        self, cursor: QueueCursor, offset: int, data: bytes
    ) -> list[tuple[int, int]]:
        """Entries without a record; returns the offsets about which nothing is known."""
        damage = self._evidence.damage
        positions, sizes, codes = unpack_entries(data)
        offsets = np.arange(offset, offset + len(positions))
        empty = (positions == 0) & ((sizes == 0) & (codes == 0) | (sizes == PRE_BLANK_SIZE))
        is_old = (positions < self._evidence.folder.log_min_offset) & (sizes > 0)
        region = np.searchsorted(damage.region_starts(), positions, side="right") - 1
        in_region = np.zeros(len(positions), bool)
        if damage.regions:
            in_region = (
                (region >= 0)
                & (positions + sizes <= damage.region_ends()[region])
                & (sizes > 0)
                & ~empty
            )
        for index in np.unique(region[in_region]).tolist():
            mine = in_region & (region == index)
            damage.regions[index].placed.append(
                Placed(cursor.topic, cursor.queue_id, offsets[mine], positions[mine], sizes[mine])
            )
        # At most one of the log's files may be missing at the end.
        ahead_end = self._evidence.folder.log_files_end + self._evidence.folder.segment_bytes
        is_ahead = (positions >= damage.log_end) & (sizes > 0) & ~empty
        is_ahead &= self.log_has_ended & (positions + sizes <= ahead_end)
        if is_ahead.any():
            self.ahead.append(
                Placed(
                    cursor.topic,
                    cursor.queue_id,
                    offsets[is_ahead],
                    positions[is_ahead],
                    sizes[is_ahead],
                )
            )
        rest = ~(empty | is_old | in_region | is_ahead)
        for first, end in iterate_ranges(np.flatnonzero(rest)):
            self._judge_rest(cursor, offset, positions, sizes, first, end)
        return [
            (offset + first, offset + end) for first, end in iterate_ranges(np.flatnonzero(empty))
        ]

    def _judge_rest(
        self,
        cursor: QueueCursor,
        offset: int,
        positions: Int64Array,
        sizes: Int64Array,
        first: int,
        end: int,
    ) -> None:
        """Entries that point to no damaged place: to a record of another name, or to nowhere."""
        wrong = end - first
        if wrong <= _HEADERS_MAX:
            for index in range(first, end):
                position, size = int(positions[index]), int(sizes[index])
                record = self._evidence.log.record_at(position, size)
                if record is not None and self._is_misnamed(
                    record, cursor, offset + index, position, size
                ):
                    self._suspects.add(cursor, offset + index, position, size, is_in_order=False)
                    wrong -= 1
        if wrong:
            self._evidence.report_wrong(
                cursor,
                offset + first,
                f"{wrong} entries from offset {offset + first} do not lead to a record of it",
            )

    def _is_misnamed(
        self, record: Record, cursor: QueueCursor, offset: int, position: int, size: int
    ) -> bool:
        """Whether the record is wrong: it says that it is in no queue, or the queue that it names
        does not have it at its offset."""
        name = record.topic, record.queue_id
        if (*name, record.queue_offset) == (cursor.topic, cursor.queue_id, offset):
            return bool(record.sys_flag & UNQUEUED_BIT)
        other = self._evidence.cursors.get(name)
        if other is None:
            return True
        return self._evidence.entry(other, record.queue_offset) != (position, size)

    def _judge_unknown(self, cursor: QueueCursor, first: int, end: int, before: int) -> None:
        """Neither log nor queue knows these offsets: lost in the damaged place between the
        neighbours, if there is one."""
        between = self._regions_between(cursor, before)
        if between:
            _largest(between).unplaced.append(LostRange(cursor.topic, cursor.queue_id, first, end))
        elif cursor.last_position >= 0:
            self._evidence.findings.add(
                Kind.LOG_OFFSETS_MISSING,
                self._evidence.file_of(cursor, first),
                f"{cursor.shown} has no messages {first} to {end - 1}",
                topic=cursor.topic,
                queue=cursor.queue_id,
                first=first,
                end=end,
            )

    def _regions_between(self, cursor: QueueCursor, before: int) -> list[DamagedRegion]:
        return [
            region
            for region in self._evidence.damage.regions
            if cursor.last_position < region.start < before
        ]

    def distrust_bad_queues(self) -> None:
        """Discard what queues with wrong entries said about damaged places; what the numbers of the
        records around them say still counts."""
        bad = self._evidence.damage.bad_queues
        for region in self._evidence.damage.regions:
            region.placed = [
                each for each in region.placed if (each.topic, each.queue_id) not in bad
            ]
            region.unplaced = [
                each for each in region.unplaced if (each.topic, each.queue_id) not in bad
            ]
        for gap, region in self._gaps:
            if (gap.topic, gap.queue_id) in bad:
                region.unplaced.append(gap)

    def report_beyond(self, placed: Placed) -> None:
        """Entries that point after all files, without other evidence."""
        cursor = self._evidence.cursors[placed.topic, placed.queue_id]
        first = int(placed.offsets[0])
        self._evidence.report_wrong(
            cursor, first, f"{len(placed.offsets)} entries lead past all segments"
        )


def _largest(regions: list[DamagedRegion]) -> DamagedRegion:
    """Where messages without a position most likely were."""
    return max(regions, key=lambda region: region.end - region.start)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring ranges merged."""
    joined: list[tuple[int, int]] = []
    for first, end in ranges:
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return joined
