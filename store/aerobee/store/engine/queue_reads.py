"""Reads of queues: on the loop if everything is in the page cache, else as a work for a thread.

A read uses first the consume queue, then the log; either may have to come from disk.

Owns: what is known of readers that are far behind (see `log/catch_up.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.engine.admission import Admission
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.log.catch_up import CatchUp, CatchUps
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.engine.log.segment import RecordRemoved, SegmentHandle
from aerobee.store.engine.queues.consume_queue import ConsumeQueue, EntriesRead
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.engine.queues.reading import (
    Filter,
    GetStatus,
    Located,
    QueueBounds,
    ReadLimits,
    entries_to_read,
    out_of_range,
    select,
)
from aerobee.store.engine.queues.record_match import RecordCheck
from aerobee.store.engine.queues.time_search import TimeSearch
from aerobee.store.engine.read_work import (
    AdviceWork,
    ReadOutcome,
    ReadWork,
    Select,
    checked_outcome,
)
from aerobee.store.engine.retention.kept_search import KeptRule, KeptSearch, SummedBytes
from aerobee.store.format.record_layout import RECORD_SIZE_MIN

_ENTRIES_MIN = 16
_ENTRIES_AT_ONCE = 64
"""So many are read without a look at the first, which costs about as much."""


@dataclass(frozen=True, slots=True)
class QueueRead:
    """One read of one queue. `filter` None: all messages. `reader` names a reader that continues
    from read to read, such as a consumer group; empty for a single read. `is_scan`: the read before
    it covered messages and found none that matches."""

    topic: str
    queue_id: int
    offset: int
    max_bytes: int
    max_messages: int
    filter: Filter | None = None
    reader: str = ""
    is_scan: bool = False
    even_unkept: bool = False
    """Also what the topic no longer keeps but the log still has: for what the broker itself has to
    know."""

    def bounds(self, queue: ConsumeQueue) -> QueueBounds:
        return queue.bounds_in_log if self.even_unkept else queue.bounds

    @property
    def is_long(self) -> bool:
        """Whether it costs more than to find and copy what it returns."""
        return self.is_scan or (self.filter is not None and self.filter.judged_max is not None)


class QueueReads:
    """Loop thread only."""

    def __init__(
        self,
        clock: Clock,
        config: StoreConfig,
        files: FileCache,
        *,
        log: CommitLog,
        queues: QueueSet,
        admission: Admission,
    ) -> None:
        self._clock = clock
        self._config = config
        self._files = files
        self._log = log
        self._queues = queues
        self._admission = admission
        self._catch_ups = CatchUps()

    def read(self, wanted: QueueRead) -> ReadOutcome | ReadWork:
        """What is at an offset, or the work that reads it. Never waits for the disk.

        Raises StoreFailed, and AerobeeError for damaged files.
        """
        self._admission.check_not_failed()
        queue = self._queues.get(wanted.topic, wanted.queue_id)
        outside = out_of_range(None if queue is None else wanted.bounds(queue), wanted.offset)
        if queue is None or outside is not None:
            assert outside is not None
            return ReadOutcome(outside)
        count = self._entry_count(wanted, b"")
        if count > _ENTRIES_AT_ONCE:
            first = queue.read_entries_nowait(self._files, wanted.offset, 1)
            if first is None:
                return self._work(wanted, queue, None)
            count = self._entry_count(wanted, first)
        entries = queue.read_entries_nowait(self._files, wanted.offset, count)
        if entries is None:
            return self._work(wanted, queue, None)
        located = _selection(queue, wanted)(entries, self._log.min_offset, None)
        if located.status is not GetStatus.FOUND:
            return ReadOutcome(located)
        try:
            records = self._log.read_nowait(located.runs)
        except RecordRemoved:
            records = None
        except MessageNotFound as error:
            raise RecordCheck(queue.topic, queue.queue_id).mismatch(str(error)) from error
        if records is None:
            return self._work(wanted, queue, entries)
        check = RecordCheck(queue.topic, queue.queue_id)
        outcome = checked_outcome(located, records, check, wanted.filter, wanted.max_messages)
        self._note(wanted, located, was_cold=False)
        return outcome

    def plan(self, wanted: QueueRead) -> ReadOutcome | ReadWork:
        """As `read`, but what costs more than a look is left to the work. Raises StoreFailed."""
        self._admission.check_not_failed()
        queue = self._queues.get(wanted.topic, wanted.queue_id)
        outside = out_of_range(None if queue is None else wanted.bounds(queue), wanted.offset)
        if queue is None or outside is not None:
            assert outside is not None
            return ReadOutcome(outside)
        return self._work(wanted, queue, None)

    def finish(self, wanted: QueueRead, work: ReadWork) -> ReadOutcome:
        """`work.run` returned. Raises StoreFailed."""
        self._admission.check_not_failed()
        outcome = work.outcome
        assert outcome is not None
        self._note(wanted, outcome.located, was_cold=True)
        catch_up = self._catch_ups.get(_reader_of(wanted))
        if catch_up is not None:
            catch_up.handle = work.handle  # for its next read
        return outcome

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> bytes | EntriesRead:
        """Concatenated entries of a queue, starting at an offset and cut at its end, or the read
        that fetches them. Never waits for the disk.

        Raises StoreFailed, and AerobeeError for damaged files.
        """
        self._admission.check_not_failed()
        queue = self._queues.get(topic, queue_id)
        if queue is None or offset >= queue.end:
            return b""
        found = queue.read_entries_nowait(self._files, offset, count)
        return queue.plan_read(self._files.disk, offset, count) if found is None else found

    def pieces(self, runs: Sequence[tuple[int, int]]) -> bytes | Callable[[], bytes]:
        """Concatenated pieces of the log, given as positions and sizes, or a callable that reads
        them on a thread. Never waits for the disk.

        Raises StoreFailed, MessageNotFound; the callable raises MessageNotFound, OSError.
        """
        self._admission.check_not_failed()
        found = self._log.read_nowait(runs)
        return partial(self._log.read, runs, SegmentHandle()) if found is None else found

    def plan_time_search(self, topic: str, queue_id: int) -> TimeSearch | None:
        """A search by store time that may `run` on any thread; None for an unknown queue."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return None
        return TimeSearch(self._files.disk, queue, self._log.record_at)

    def kept_search(self, queue: ConsumeQueue, rule: KeptRule, summed: SummedBytes) -> KeptSearch:
        """What a queue keeps by its topic's rule; may `run` on any thread."""
        return KeptSearch(self._files.disk, queue, self._log.record_at, rule, summed)

    def first_position(self, topic: str) -> int | None:
        """No message that a reader of the topic may see is before this log position; None: there is
        none at all."""
        position = self._queues.first_position(topic)
        return None if position is None else max(position, self._log.min_offset)

    # ------------------------------------------------------------------------------ far behind

    def is_behind(self, wanted: QueueRead) -> bool:
        """Whether this reader, at its last read, was far from the log's end or had to wait for the
        disk, and has not caught up since."""
        return _reader_of(wanted) in self._catch_ups

    def take_advice(self, wanted: QueueRead) -> AdviceWork | None:
        """Advice for the kernel after a read of a reader that catches up; only now and then."""
        catch_up = self._catch_ups.get(_reader_of(wanted))
        if catch_up is None:
            return None
        ahead = catch_up.take_ahead()
        if ahead is None:
            return None
        passed = []
        if self._config.evict_catch_up_reads:
            passed = self._catch_ups.take_passed(self._hot_start)
        return AdviceWork(self._log, catch_up.handle, ahead=ahead, passed=passed)

    def tidy(self) -> None:
        """Drop readers and segments that are gone; call it now and then."""
        self._catch_ups.tidy(self._clock.monotonic_s(), self._log.min_offset)

    @property
    def _hot_start(self) -> int:
        """From here on the log is meant to stay in memory."""
        return self._log.end - self._config.hot_tail_bytes

    def _note(self, wanted: QueueRead, located: Located, *, was_cold: bool) -> None:
        runs = located.runs
        if not runs or not wanted.reader:
            return
        start = runs[0][0]
        reader = _reader_of(wanted)
        known = self._catch_ups.get(reader)
        is_brought = was_cold or (known is not None and known.is_cold and known.goes_on_at(start))
        has_caught_up = located.next_offset >= located.max_offset
        if has_caught_up or (start >= self._hot_start and not is_brought):
            self._catch_ups.forget(reader)
            return
        catch_up = self._catch_ups.get_or_create(reader, self._clock.monotonic_s())
        size = sum(run_bytes for _, run_bytes in runs)
        self._catch_ups.has_read(catch_up, start, sum(runs[-1]), size, was_cold=was_cold)

    # ------------------------------------------------------------------------------ inside

    def _entry_count(self, wanted: QueueRead, first: bytes) -> int:
        """How many entries to look at. `first` is the entry at the wanted offset, if known: records
        of a queue are mostly of similar length, and a read may end early."""
        is_scanned = wanted.filter is not None and wanted.filter.judged_max is None
        count = entries_to_read(
            ReadLimits(_candidates_max(wanted), wanted.max_bytes),
            filtered=is_scanned,
            scan_entries_max=self._config.filter_scan_entries_max,
        )
        if is_scanned or not first:
            return count
        record_bytes = max(RECORD_SIZE_MIN, int.from_bytes(first[8:12], "big"))
        return min(count, _ENTRIES_MIN + 2 * wanted.max_bytes // record_bytes)

    def _work(self, wanted: QueueRead, queue: ConsumeQueue, entries: bytes | None) -> ReadWork:
        catch_up: CatchUp | None = self._catch_ups.get(_reader_of(wanted))
        count = self._entry_count(wanted, b"")
        return ReadWork(
            self._log,
            _selection(queue, wanted),
            RecordCheck(queue.topic, queue.queue_id),
            SegmentHandle() if catch_up is None else catch_up.handle,
            filter=wanted.filter,
            messages_max=wanted.max_messages,
            entries=entries,
            load_entries=queue.plan_read(self._files.disk, wanted.offset, count).run,
        )


def _reader_of(wanted: QueueRead) -> tuple[str, str, int]:
    return wanted.reader, wanted.topic, wanted.queue_id


def _candidates_max(wanted: QueueRead) -> int:
    """Records to read: as many as are wanted, unless each must be checked for a match."""
    judged_max = None if wanted.filter is None else wanted.filter.judged_max
    return wanted.max_messages if judged_max is None else judged_max


def _selection(queue: ConsumeQueue, wanted: QueueRead) -> Select:
    """How to choose among the entries from the wanted offset on, whatever happens to the queue."""
    bounds = wanted.bounds(queue)
    file_start = wanted.offset - wanted.offset % queue.entries_per_file
    next_file_offset = min(file_start + queue.entries_per_file, queue.end)
    candidates_max = _candidates_max(wanted)

    def choose(entries: bytes, log_min_offset: int, bytes_max: int | None) -> Located:
        return select(
            entries,
            offset=wanted.offset,
            bounds=bounds,
            limits=ReadLimits(candidates_max, bytes_max or wanted.max_bytes),
            log_min_offset=log_min_offset,
            next_file_offset=next_file_offset,
            filter=wanted.filter,
        )

    return choose
