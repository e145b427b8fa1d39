"""Checks every queued record against its queue entry, and every entry against its record.

The log is read in its own order; the records of a stretch are collected, sorted by queue, and
compared with one read per queue. For each queue only a cursor is kept: the next expected offset.
Where both agree, which is nearly always, a run of entries is one comparison of bytes. Everything
else is examined entry by entry.
"""

from __future__ import annotations

import numpy as np

from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.recovery.batch_topics import BatchTopics
from aerobee.store.format.checked_batch import UNQUEUED_BIT
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, pack_entries
from aerobee.store.format.record_layout import SYSFLAG_INNER_BATCH
from aerobee.store.repair.damage import Damage, Int64Array, QueueName
from aerobee.store.repair.findings import Findings
from aerobee.store.repair.folder import Folder
from aerobee.store.repair.former_topics import FormerTopics
from aerobee.store.repair.log_check import CheckedChunk
from aerobee.store.repair.queue_cursor import QueueCursor, read_entries
from aerobee.store.repair.queue_evidence import QueueEvidence, Run
from aerobee.store.repair.queue_judge import QueueJudge
from aerobee.store.repair.tables_check import KnownEnds

# Records collected before they are compared: about 64 MiB of columns.
_RECORDS_PER_ROUND = 1_000_000
_FILES_MAX = 256


class QueueCheck:
    """Feed it the log, then call `finish`."""

    def __init__(
        self,
        folder: Folder,
        findings: Findings,
        damage: Damage,
        *,
        ends: KnownEnds,
        is_aborted: bool,
        recovery_start: int,
        former_topics: FormerTopics | None = None,
        records_per_round: int = _RECORDS_PER_ROUND,
    ) -> None:
        self._former = former_topics or FormerTopics()
        self._folder = folder
        self._files = FileCache(folder.disk, _FILES_MAX)
        self._records_per_round = records_per_round
        self.cursors: dict[QueueName, QueueCursor] = {
            (queue.topic, queue.queue_id): QueueCursor(queue.topic, queue.queue_id, queue)
            for queue in folder.queues
        }
        self._batch_topics = BatchTopics(folder.disk)
        self._codes: dict[QueueName, int] = {}
        self._by_code: list[QueueCursor] = []
        self._columns: list[tuple[Int64Array, ...]] = []
        self._collected = 0
        self._ends = ends
        evidence = QueueEvidence(folder, self._files, findings, damage, self.cursors)
        self.judge = QueueJudge(
            evidence, ends=ends, is_aborted=is_aborted, recovery_start=recovery_start
        )
        self.queued_records = 0

    def feed(self, chunk: CheckedChunk) -> None:
        """Take in the records of the next chunk of the log."""
        result = chunk.result
        queued = (result.sys_flags & UNQUEUED_BIT) == 0
        inner = (result.sys_flags & SYSFLAG_INNER_BATCH) != 0
        if inner.any():
            is_batch = np.array([topic in self._batch_topics for topic in result.topic_table])
            queued &= ~(inner & is_batch[result.topic_codes])
        for code, topic in enumerate(result.topic_table):
            end = self._former.ends.get(topic)
            if topic in self._former.unsettled:
                queued &= result.topic_codes != code
            elif end is not None:
                is_former = result.positions < end - chunk.position
                queued &= ~(is_former & (result.topic_codes == code))
        chosen = np.flatnonzero(queued)
        if not len(chosen):
            return
        keys = (result.topic_codes[chosen] << 32) | (result.queue_ids[chosen] & 0xFFFF_FFFF)
        uniques, inverse = np.unique(keys, return_inverse=True)
        codes = np.array(
            [
                self._code_of(result.topic_table[key >> 32], _signed(key & 0xFFFF_FFFF))
                for key in uniques.tolist()
            ],
            np.int64,
        )
        self._columns.append(
            (
                codes[inverse],
                result.queue_offsets[chosen],
                result.positions[chosen] + chunk.position,
                result.sizes[chosen],
                result.tags_codes[chosen],
            )
        )
        self._collected += len(chosen)
        if self._collected >= self._records_per_round:
            self._compare()

    def finish(self) -> None:
        """The log has ended: compare the rest, and examine what queues have after it."""
        self._compare()
        for name in self._ends:
            if name not in self.cursors:
                self.cursors[name] = QueueCursor(*name, None)
        for name in [name for name in self.cursors if name[0] in self._former.unsettled]:
            del self.cursors[name]
        for cursor in self.cursors.values():
            self.judge.finish_queue(cursor)
        self.judge.finish()
        self._files.clear()

    def _code_of(self, topic: str, queue_id: int) -> int:
        name = topic, queue_id
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = len(self._by_code)
            cursor = self.cursors.get(name)
            if cursor is None:
                cursor = self.cursors[name] = QueueCursor(topic, queue_id, None)
            self._by_code.append(cursor)
        return code

    # ------------------------------------------------------------------------------ comparing

    def _compare(self) -> None:
        if not self._collected:
            return
        self.queued_records += self._collected
        joined = [np.concatenate(column) for column in zip(*self._columns, strict=True)]
        self._columns.clear()
        self._collected = 0
        order = np.argsort(joined[0], kind="stable")
        codes, offsets, positions, sizes, tags = (column[order] for column in joined)
        entries = pack_entries(positions, sizes, tags)
        follows = np.concatenate(([False], (np.diff(offsets) == 1) & (np.diff(codes) == 0)))
        starts = np.flatnonzero(~follows)
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True):
            cursor = self._by_code[int(codes[start])]
            first = int(offsets[start])
            expected = entries[start * ENTRY_SIZE : end * ENTRY_SIZE]
            run = Run(first, positions[start:end], sizes[start:end], tags[start:end], expected)
            if self._continues(cursor, run):
                cursor.advance(run.end, run.last_position)
            else:
                self.judge.judge_run(cursor, run)

    def _continues(self, cursor: QueueCursor, run: Run) -> bool:
        """Whether the run follows what was compared, and all its entries are correct."""
        if cursor.next != run.first or cursor.missing_from is not None:
            return False
        count = len(run.positions)
        return read_entries(self._folder, self._files, cursor, run.first, count) == run.expected


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value
