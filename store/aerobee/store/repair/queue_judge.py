"""What it means when a queue and the log do not simply agree.

Each knows the other's content: an entry knows topic, queue, offset, position and size of its
record; a record knows topic, queue, offset and position. If they differ, the one supported by a
second witness is right: the neighbours, since queue offsets have no gaps, or the record that really
is at the position an entry names.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, PRE_BLANK_SIZE, unpack_entries
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX, file_name
from aerobee.store.format.tags import SCHEDULE_TOPIC
from aerobee.store.repair.damage import Int64Array, iterate_ranges
from aerobee.store.repair.findings import Kind
from aerobee.store.repair.queue_cursor import (
    QueueCursor,
    used_file_end,
)
from aerobee.store.repair.queue_evidence import QueueEvidence, Run
from aerobee.store.repair.queue_suspects import QueueSuspects
from aerobee.store.repair.queue_unmatched import NO_RECORD, UnmatchedEntries
from aerobee.store.repair.tables_check import KnownEnds

BoolArray = npt.NDArray[np.bool_]

_EXT_ADDRESS_MAX = -(1 << 31) - 1
_EXT_DIRECTORY = "consumequeue_ext"
# How many records per run are read to learn which side is right; after that, the first ones stand
# for all.
_LOOKED_AT_MAX = 256
# A record that claims an offset this far ahead, without an entry to support it, is not believed.
_JUMP_MAX = 10_000_000


class QueueJudge:
    """Advances the cursors. `recovery_start` is where a start after a crash would begin to read."""

    def __init__(
        self,
        evidence: QueueEvidence,
        *,
        ends: KnownEnds,
        is_aborted: bool,
        recovery_start: int,
    ) -> None:
        self._evidence = evidence
        self._ends = ends
        self._is_aborted = is_aborted
        self._recovery_start = recovery_start
        self._has_ext = evidence.folder.disk.exists(_EXT_DIRECTORY)
        self._suspects = QueueSuspects(evidence)
        self.unmatched = UnmatchedEntries(evidence, self._suspects)

    # ------------------------------------------------------------------------------ runs

    def judge_run(self, cursor: QueueCursor, run: Run) -> None:
        """Compare a run that does not simply continue and match."""
        if cursor.next is None:
            self._begin(cursor, run)
        while len(run.positions):
            assert cursor.next is not None
            if run.first == cursor.next or self._is_listed(cursor, run):
                break
            skipped = self._skip_misnumbered(cursor, run)
            if not skipped:
                break
            run = run.behind(skipped)
        else:
            return
        assert cursor.next is not None
        if run.first < cursor.next:
            self._judge_repeated(cursor, run)
            return
        if run.first > cursor.next:
            self.unmatched.judge(cursor, cursor.next, run.first, int(run.positions[0]))
        self._compare(cursor, run)

    def _is_listed(self, cursor: QueueCursor, run: Run) -> bool:
        return self._evidence.read(cursor, run.first, len(run.positions)) == run.expected

    def _begin(self, cursor: QueueCursor, run: Run) -> None:
        """The queue's first record in the log: whatever precedes it is older."""
        log_min = self._evidence.folder.log_min_offset
        folder = cursor.folder
        cursor.first_seen = run.first
        if log_min == 0 and (folder is None or folder.first == 0):
            cursor.next = 0
            cursor.first_seen = 0 if self._has_entry(cursor, 0) else run.first
            return
        cursor.next = run.first
        if folder is not None and folder.first < run.first:
            self.unmatched.judge(cursor, folder.first, run.first, int(run.positions[0]))

    def _has_entry(self, cursor: QueueCursor, offset: int) -> bool:
        data = self._evidence.read(cursor, offset, 1)
        return (
            bool(data)
            and data.count(0) < len(data)
            and unpack_entries(data)[1][0] != PRE_BLANK_SIZE
        )

    def _judge_repeated(self, cursor: QueueCursor, run: Run) -> None:
        """Offsets already seen: the queue lists one of two records."""
        assert cursor.next is not None
        count = len(run.positions)
        if self._evidence.read(cursor, run.first, count) == run.expected:
            # The queue lists these: the earlier ones were from a former life of the queue.
            cursor.advance(run.end, run.last_position)
            cursor.missing_from = None
            return
        old = min(count, cursor.next - run.first)
        self._evidence.report_twice(cursor, run, 0, old)
        if old < count:
            self._compare(cursor, run.behind(old))

    def _skip_misnumbered(self, cursor: QueueCursor, run: Run) -> int:
        """How many records at the start of the run are the queue's next ones with wrong numbers;
        afterwards the cursor is past them."""
        assert cursor.next is not None
        position, size = int(run.positions[0]), int(run.sizes[0])
        if self._evidence.read(cursor, run.first, 1) == run.expected[:ENTRY_SIZE]:
            return 0
        if self._evidence.entry(cursor, cursor.next) == (position, size):
            return self._follow(cursor, run)
        if run.first - cursor.next > _JUMP_MAX:
            log = self._evidence.log
            self._evidence.findings.add(
                Kind.LOG_RECORD_HEADER,
                log.path_of(position),
                f"the record at log position {position} claims offset {run.first} of "
                f"{cursor.shown}, which is at {cursor.next}",
                position=log.in_file(position),
                log_position=position,
            )
            return 1
        return 0

    def _follow(self, cursor: QueueCursor, run: Run) -> int:
        """The run's records as far as the queue lists them under its own next offsets."""
        assert cursor.next is not None
        count = len(run.positions)
        data = self._evidence.read(cursor, cursor.next, count)
        positions, sizes, _ = unpack_entries(data)
        read = len(positions)
        same = (positions == run.positions[:read]) & (sizes == run.sizes[:read])
        count = read if same.all() else int(same.argmin())
        for index in range(min(count, 2)):
            self._suspects.add(
                cursor,
                cursor.next + index,
                int(run.positions[index]),
                int(run.sizes[index]),
                is_in_order=True,
            )
        cursor.advance(cursor.next + count, int(run.positions[count - 1]))
        return count

    def _compare(self, cursor: QueueCursor, run: Run) -> None:
        if cursor.topic.startswith(LIGHT_QUEUE_PREFIX):
            cursor.advance(run.end, run.last_position)
            return
        if cursor.folder is not None and cursor.folder.problem:
            cursor.advance(run.end, run.last_position)
            return
        data = self._evidence.read(cursor, run.first, len(run.positions))
        if data == run.expected:
            self._close_missing(cursor, run.first)
            cursor.advance(run.end, run.last_position)
            return
        data = data.ljust(len(run.expected), b"\0")
        positions, sizes, codes = unpack_entries(data)
        missing = (positions == 0) & (sizes == 0) & (codes == 0)
        same_place = (positions == run.positions) & (sizes == run.sizes)
        if not missing.all():
            self._close_missing(cursor, run.first)
        self._judge_tags(cursor, run, codes, same_place & (codes != run.tags_codes))
        self._judge_elsewhere(cursor, run, positions, sizes, ~same_place & ~missing)
        for first, end in iterate_ranges(np.flatnonzero(missing)):
            if end < len(missing):
                self._evidence.report_missing(cursor, run.first + first, run.first + end)
            elif cursor.missing_from is None:
                cursor.missing_from = run.first + first
                cursor.missing_position = int(run.positions[first])
        cursor.advance(run.end, run.last_position)

    def _judge_tags(
        self, cursor: QueueCursor, run: Run, codes: Int64Array, differ: BoolArray
    ) -> None:
        indexes = np.flatnonzero(differ)
        if self._has_ext:
            indexes = indexes[codes[indexes] > _EXT_ADDRESS_MAX]
        wrong = [
            index
            for index in indexes[:_LOOKED_AT_MAX].tolist()
            if not self._evidence.is_quarantined(int(run.positions[index]), int(run.sizes[index]))
        ]
        if not wrong:
            return
        first = run.first + wrong[0]
        if cursor.topic == SCHEDULE_TOPIC and len(wrong) == len(run.positions) > 3:
            self._evidence.findings.add(
                Kind.NOT_CHECKED,
                self._evidence.file_of(cursor, first),
                "delivery times differ from the delay levels: give messageDelayLevel",
            )
            return
        self._evidence.report_wrong(
            cursor, first, f"{len(wrong)} entries have another tag than their record"
        )

    def _judge_elsewhere(
        self,
        cursor: QueueCursor,
        run: Run,
        positions: Int64Array,
        sizes: Int64Array,
        differ: BoolArray,
    ) -> None:
        """Entries that point to another position than the record that claims their offset."""
        for first, end in iterate_ranges(np.flatnonzero(differ)):
            looked_at = range(first, min(end, first + _LOOKED_AT_MAX))
            others = [
                index
                for index in looked_at
                if self._evidence.is_record_of(
                    cursor, run.first + index, int(positions[index]), int(sizes[index])
                )
            ]
            if len(others) == len(looked_at):
                self._evidence.report_twice(cursor, run, first, end)
                continue
            offset = run.first + first
            self._evidence.report_wrong(
                cursor,
                offset,
                f"{end - first} entries from offset {offset} do not lead to their records",
            )

    # ------------------------------------------------------------------------------ the end

    def finish_queue(self, cursor: QueueCursor) -> None:
        """The log has ended: what the queue's files hold after it, and what they lack."""
        self.unmatched.log_has_ended = True
        folder = cursor.folder
        start = cursor.next if cursor.next is not None else (folder.first if folder else 0)
        file_end = used_file_end(self._evidence.folder, self._evidence.files, cursor, start)
        if file_end > start:
            self.unmatched.judge(cursor, start, file_end, NO_RECORD)
        cursor.end = max(start, file_end)
        if folder is not None and folder.problem:
            self._evidence.damage.bad_queues[cursor.topic, cursor.queue_id] = folder.problem
            return
        reach = file_end if cursor.missing_from is None else cursor.missing_from
        known = self._ends.get((cursor.topic, cursor.queue_id))
        if known is not None and reach < known.written_end:
            self._evidence.damage.bad_queues[cursor.topic, cursor.queue_id] = "it lost entries"
            self._evidence.findings.add(
                Kind.QUEUE_SHORT,
                self._evidence.file_of(cursor, reach),
                f"{cursor.shown} ends at {reach}, but {known.written_end} were written",
                topic=cursor.topic,
                queue=cursor.queue_id,
            )
        elif cursor.missing_from is not None and not self._evidence.folder.is_live:
            if self._is_aborted and cursor.missing_position >= self._recovery_start:
                self._evidence.findings.add(
                    Kind.QUEUE_BEHIND_LOG,
                    self._evidence.file_of(cursor, cursor.missing_from),
                    f"{cursor.shown} lacks its last {start - cursor.missing_from} entries",
                )
            else:
                self._evidence.report_missing(cursor, cursor.missing_from, start)
        if not self._evidence.folder.is_live and cursor.is_compared:
            self._look_for_empty_file(cursor, reach)

    def _look_for_empty_file(self, cursor: QueueCursor, file_end: int) -> None:
        folder = cursor.folder
        assert folder is not None
        per_file = self._evidence.folder.entries_per_file
        last_first = folder.first + (folder.files - 1) * per_file
        if file_end <= last_first:
            path = f"{folder.directory}/{file_name(last_first * ENTRY_SIZE)}"
            self._evidence.findings.add(
                Kind.QUEUE_FILE_EMPTY, path, "the file has only zeros", position=0
            )
            self._evidence.folder.strays.append(path)

    def finish(self) -> None:
        """All queues have been finished."""
        self._suspects.judge()
        self.unmatched.distrust_bad_queues()

    def _close_missing(self, cursor: QueueCursor, end: int) -> None:
        """Entries follow: what was missing is a gap."""
        if cursor.missing_from is not None:
            self._evidence.report_missing(cursor, cursor.missing_from, end)
            cursor.missing_from = None
