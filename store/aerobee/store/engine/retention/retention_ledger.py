"""Removal of the log's oldest segments, one at a time: works taken and their results.

    survey   when were the segments written, how full is the disk    -> a candidate, or none
    search   who has not read the candidate's messages               -> what holds it, if any does
    removal  the log's minimum moves in memory, then the file goes   -> or it was protected
    follow   queue files and index files go, the queues' minimums move

Owns: the ages of the segments, the totals, and why the oldest segment stays. Each work is taken on
the loop, run on any thread, and finished on the loop before the next is taken. Readers are refused
a file's messages before it is removed; a reader with the file open continues reading.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from aerobee.runtime.clock import Clock
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.dispatcher import Dispatcher
from aerobee.store.engine.errors import FileTrouble
from aerobee.store.engine.flush_ledger import FlushLedger
from aerobee.store.engine.index.index_files import IndexFileInfo
from aerobee.store.engine.index.key_index import KeyIndex
from aerobee.store.engine.log.commit_log import CommitLog
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY
from aerobee.store.engine.queues.queue_set import QueueSet
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.retention.retention_policy import (
    Cause,
    CleanRequest,
    DiskSpace,
    Occasion,
    RetentionPolicy,
)
from aerobee.store.engine.retention.retention_statistics import (
    Because,
    RemovedSegment,
    RetentionCounters,
    RetentionStatistics,
    UnreadRemoval,
)
from aerobee.store.engine.retention.retention_works import (
    FollowWork,
    RemovalWork,
    SurveyWork,
    measure,
)
from aerobee.store.engine.retention.steady_time import SegmentAges, SteadyTime
from aerobee.store.engine.retention.unread_search import (
    QueueReaders,
    UnreadQueue,
    UnreadSearch,
    removed_unread,
)
from aerobee.store.format.names import file_name


@dataclass(frozen=True, slots=True)
class Candidate:
    """The oldest segment, which may go as far as age and disk are concerned."""

    base: int
    end: int
    """The log offset after its last byte."""
    cause: Cause
    modified_ms: int
    request: CleanRequest


def local_hour(now_ms: int) -> int:
    """The hour of the day in this machine's time zone."""
    return time.localtime(now_ms / 1_000).tm_hour


class RetentionLedger:
    """Loop thread only."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: RetentionConfig,
        *,
        log: CommitLog,
        queues: QueueSet,
        index: KeyIndex,
        dispatcher: Dispatcher,
        ledger: FlushLedger,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._ledger = ledger
        self._admission = ledger.admission
        self._policy = RetentionPolicy(config)
        self.keep_bytes_max = config.keep_unread_max_bytes or None
        """The limit for unread messages of topics without one of their own; None: there is none."""
        self._time = SteadyTime(clock.now_ms(), clock.monotonic_s(), self._last_seen_ms())
        self._ages = SegmentAges()
        self._know_segments()
        self._counters = RetentionCounters()
        self._removal: RemovalWork | None = None
        self._left_over: list[IndexFileInfo] = []
        self._troubles: list[FileTrouble] = []
        self.kept_because = ""
        """Why the oldest segment stays although it is expired; empty if it is not, or is gone."""

    def _last_seen_ms(self) -> int:
        """The latest time found in the folder, excluding that of the active segment's file, which
        every recovery may write to."""
        sealed = {file_name(segment.base) for segment in self._log.segments()[:-1]}
        times_ms = [
            entry.modified_ms
            for entry in self._disk.list(COMMIT_LOG_DIRECTORY)
            if entry.name in sealed
        ]
        return max([self._log.store_timestamp_ms, *times_ms])

    def take_troubles(self) -> list[FileTrouble]:
        """The files that could not be removed or read since the last call."""
        troubles, self._troubles = self._troubles, []
        return troubles

    # ------------------------------------------------------------------------------ the disk

    def observe(self, space: DiskSpace) -> None:
        """How full the disk is, measured about every second; appends depend on it."""
        self._admission.measured(space)

    def measure_here(self) -> None:
        """The same synchronously. Blocks; raises OSError."""
        self.observe(measure(self._disk))

    @property
    def why_full(self) -> str:
        """Why a disk without room refuses messages; empty while it does not."""
        return self._admission.why_full

    # ------------------------------------------------------------------------------ survey

    def take_survey(self, request: CleanRequest) -> SurveyWork | None:
        """None if there is nothing to remove, or the store takes no changes any more."""
        self._know_segments()
        if not self._admission.is_in_use or self._log.oldest_sealed is None:
            self.keep("")
            return None
        return SurveyWork(self._disk, request)

    def finish_survey(self, work: SurveyWork) -> Candidate | None:
        """The oldest segment if it may go now."""
        self._admission.measured(work.space)
        segment = self._log.oldest_sealed
        if segment is None:
            return None
        now_s = self._clock.monotonic_s()
        now_ms = self._time.now_ms(self._clock.now_ms(), now_s)
        modified_ms = work.modified_ms.get(file_name(segment.base), now_ms)
        age_ms = self._ages.age_ms(segment.base, modified_ms, now_ms, now_s)
        verdict = self._policy.judge(Occasion(local_hour(now_ms), work.space, work.request), age_ms)
        if verdict.cause is None:
            self.keep(verdict.kept_because)
            return None
        if segment.end >= self._ledger.flushed_end:
            # A power failure could leave no log at all, where there certainly was one.
            self.keep("what follows it in the log is not on the disk yet")
            return None
        if segment.end > self.in_files_end:
            self.keep("its messages' places in their queues are not on the disk yet")
            return None
        return Candidate(segment.base, segment.end, verdict.cause, modified_ms, work.request)

    def _know_segments(self) -> None:
        bases = [segment.base for segment in self._log.segments()[:-1]]
        self._ages.know(bases, self._clock.monotonic_s())

    @property
    def in_files_end(self) -> int:
        """How far the log's records are in the files of their queues: what is removed must not be
        needed to find out how far its queue had come."""
        unwritten = self._queues.unwritten_from
        return self._dispatcher.end if unwritten is None else unwritten

    # ------------------------------------------------------------------------------ search

    def take_search(
        self, candidate: Candidate, readers: Iterable[QueueReaders] = ()
    ) -> UnreadSearch:
        """Which of `readers`, and of those added to the search before it is run, have not read the
        candidate's messages."""
        search = UnreadSearch(
            self._disk, self._queues, candidate.base, candidate.end, self._log.end
        )
        search.add(readers)
        return search

    def finish_search(self, search: UnreadSearch) -> UnreadQueue | None:
        """`search.run` returned: the queue that holds the candidate, if one does."""
        self._troubles += [each.trouble for each in search.found if each.trouble is not None]
        return search.holding

    def keep(self, reason: str) -> None:
        """The oldest segment stays for a reason; empty: for none worth reporting."""
        self.kept_because = reason
        self._admission.held_by = reason

    # ------------------------------------------------------------------------------ removal

    def take_removal(self, candidate: Candidate, losing: Iterable[QueueReaders]) -> RemovalWork:
        """The log begins after the candidate from now on. `losing`: who has unread messages in it
        at this moment; the losses are counted from these."""
        assert self._removal is None, "one removal at a time"
        assert self._log.min_offset == candidate.base
        self.keep("")
        segment = self._log.drop_oldest()
        work = RemovalWork(self._disk, segment, candidate.cause, candidate.modified_ms)
        for readers in losing:
            queue = self._queues.get(readers.topic, readers.queue_id)
            if queue is not None:
                work.losing.append((readers, queue, queue.served_from))
        work.is_commanded = candidate.request.unread
        self._removal = work
        return work

    def finish_removal(self, work: RemovalWork) -> FollowWork | None:
        """`work.run` returned: queues and index must follow the log.

        None if the file must not be removed: then the log begins with it again.
        """
        assert work is self._removal
        self._removal = None
        if work.error is not None:
            self._log.restore_oldest(work.segment)
            trouble = FileTrouble("removed", work.segment.path, work.error)
            self._troubles.append(trouble)
            self.keep(str(trouble))
            return None
        trim = self._queues.take_trim(self._log.min_offset)
        expired = self._index.take_expired(self._log.min_offset)
        return FollowWork(self._disk, work, trim, [*self._left_over, *expired])

    def finish_follow(self, work: FollowWork) -> RemovedSegment:
        """`work.run` returned: queues and index begin where the log does. Files that had to stay
        are retried with the next removal."""
        self._queues.finish_trim(work.trim)
        self._left_over = work.left_over
        self._troubles += work.troubles
        self._admission.measured(work.space)
        removal = work.removal
        because = Because.COMMAND if removal.is_commanded else None
        losses = [
            loss
            for readers, queue, before in removal.losing
            for loss in removed_unread(readers, before, queue.served_from, because=because)
        ]
        segment = removal.segment
        removed = RemovedSegment(
            name=file_name(segment.base),
            base=segment.base,
            size_bytes=segment.size,
            modified_ms=removal.modified_ms,
            cause=removal.cause,
            unread=tuple(losses),
        )
        self._counters.add(removed)
        return removed

    # ------------------------------------------------------------------------------ topics

    def steady_now_ms(self) -> int:
        """The time by which messages are old: a clock that was set forward does not count yet."""
        return self._time.now_ms(self._clock.now_ms(), self._clock.monotonic_s())

    def lose(self, losses: Collection[UnreadRemoval]) -> None:
        """Count what groups had not read of what a topic no longer keeps."""
        self._counters.lose(losses)

    def statistics(self) -> RetentionStatistics:
        return RetentionStatistics(
            space=self._admission.space,
            removed_segments=self._counters.removed_segments,
            removed_bytes=self._counters.removed_bytes,
            removed_unread=self._counters.largest,
            removed_unread_messages=self._counters.unread_messages,
            removed_by_group=self._counters.by_group,
            kept_because=self.kept_because,
        )
