"""Consume queues on their way back: loaded, judged, cut, completed, rebuilt.

Nothing here stops a start. A queue whose files cannot be trusted is emptied and built again from
the start of the log; until that is done, the folder says so: `abort` is there and the checkpoint
leads the next recovery to the log's first segment.
"""

from __future__ import annotations

from aerobee.broker.store.file_cache import FileCache
from aerobee.broker.store.flush_work import write_checkpoint
from aerobee.broker.store.log.log_walk import WalkedChunk
from aerobee.broker.store.opening import mark_running
from aerobee.broker.store.queues.consume_queue import ConsumeQueue
from aerobee.broker.store.queues.queue_ends import FileRange, QueueEnds, read_queue_ends
from aerobee.broker.store.queues.queue_files import write_entries
from aerobee.broker.store.queues.queue_loader import load_queues
from aerobee.broker.store.queues.queue_repair import (
    cut_queue,
    entries_match,
    remove_queue_files,
    trim_queue_files,
)
from aerobee.broker.store.queues.queue_set import QueueName, QueueSet
from aerobee.broker.store.recovery.context import RecoveryContext
from aerobee.broker.store.recovery.replay import Replay
from aerobee.store_format.checkpoint import Checkpoint


class QueueRecovery:
    """One recovery's work on the queues. The steps follow in the order of the methods."""

    def __init__(self, context: RecoveryContext, files: FileCache) -> None:
        self._context = context
        self._files = files
        self._entries_per_file = context.config.consume_queue_entries_per_file
        self.queues = QueueSet(files, self._entries_per_file)
        # Queues whose files must go, and why.
        self._damaged: dict[QueueName, str] = {}
        self._untidy: list[ConsumeQueue] = []
        self._ends = QueueEnds()
        self._replay = Replay(self.queues, from_log_start=False)
        self._replayed_to = 0
        self.dispatched = 0

    @property
    def rebuilt(self) -> list[QueueName]:
        return sorted(self._damaged)

    # ------------------------------------------------------------------------------ loading

    def load(self) -> None:
        """Take in the queues' files as far as they can be right by themselves."""
        context = self._context
        loaded = load_queues(context.disk, self._entries_per_file)
        self._untidy = loaded.untidy
        self._damaged.update(loaded.damaged)
        self._ends = read_queue_ends(context.disk, context.checkpoint)
        missing = dict(self._ends.queues)
        for queue in loaded.queues:
            name = queue.topic, queue.queue_id
            reason = self._why_entries_lack(queue, missing.pop(name, None))
            if reason:
                self._damaged[name] = reason
            else:
                self.queues.add(queue)
        for name in missing:
            self._damaged.setdefault(name, "its files are missing")

    def _why_entries_lack(self, queue: ConsumeQueue, known: FileRange | None) -> str:
        """Why the queue's files cannot hold all that they held; empty if they may."""
        log_min_offset = self._context.log_min_offset
        if log_min_offset == 0 and queue.first_offset:
            return f"it begins at {queue.first_offset}, but nothing was ever removed"
        if known is not None:
            if queue.end < known.end:
                return f"it ends at {queue.end}, but {known.end} were written"
            if queue.first_offset > known.first and log_min_offset == self._ends.log_min_offset:
                return f"it begins at {queue.first_offset}, but {known.first} was not removed"
        return ""

    def drop_all(self) -> None:
        """There is no log, so there is no queue."""
        loaded = load_queues(self._context.disk, self._entries_per_file)
        names = [*loaded.damaged, *((queue.topic, queue.queue_id) for queue in loaded.queues)]
        if names:
            self._context.warnings.append(
                f"there is no log: {len(names)} consume queues are dropped"
            )
        self._remove_files(names)

    # ------------------------------------------------------------------------------ the scan

    def begin_scan(self, start: int) -> None:
        """The log is about to be walked from the log offset `start` on."""
        self._replay = Replay(self.queues, from_log_start=start == self._context.log_min_offset)
        self._replayed_to = start

    def feed(self, chunk: WalkedChunk) -> None:
        """Dispatch a chunk of the walk, in memory only, as long as there is room."""
        context = self._context
        # The entries only grow, so once there is no room there is none for the rest either.
        has_room = self.queues.tail_bytes < context.config.recovery_tail_bytes_max
        if has_room or context.read_only:
            self._replay.feed(chunk)
            self._replayed_to = chunk.position + chunk.result.valid_end

    def known_behind(self, end: int) -> int:
        """Up to where queue files point to whole records of theirs, behind `end`; else 0."""
        return max(
            (
                queue.physical_end
                for queue in self.queues
                if queue.physical_end > end and self._entries_match(queue)
            ),
            default=0,
        )

    # ------------------------------------------------------------------------------ repair

    def complete(self, scan_start: int, end: int) -> None:
        """Let the queues hold exactly the records of the log, which now ends at `end`."""
        if self._cut_and_check(end):
            # A queue that was ahead of the log may have hidden records from the scan's dispatch.
            self._replayed_to = scan_start
        self._replay_to(end, self._replay, self._replayed_to)
        if self._replay.incomplete:
            self._rebuild(end)
        self._restore_ends()
        for (topic, queue_id), reason in self._damaged.items():
            self._context.warnings.append(f"queue {queue_id} of {topic} was rebuilt: {reason}")
        self.queues.correct_min_offsets(self._context.log_min_offset)

    def _cut_and_check(self, end: int) -> bool:
        """Bring the queues' files in line with the log; returns whether any was ahead of it.

        Queues that cannot be kept are emptied, and become incomplete unless the scan began at the
        log's first record and brings all of their entries.
        """
        ahead = [queue for queue in self.queues if queue.physical_end > end]
        for queue in ahead:
            cut_queue(self._files, queue, end)
        for queue in list(self.queues):
            if not self._entries_match(queue):
                name = queue.topic, queue.queue_id
                self.queues.replace_by_empty(queue)
                self._damaged[name] = "it contradicts the log"
                self._replay.incomplete[name] = None
        if not self._replay.from_log_start:
            self._replay.incomplete.update(dict.fromkeys(self._damaged))
        self._begin_repair(list(self._damaged))
        if not self._context.read_only:
            for queue in [*self._untidy, *ahead]:
                if (queue.topic, queue.queue_id) not in self._damaged:
                    trim_queue_files(self._context.disk, queue, self._entries_per_file)
        self._files.clear()
        return bool(ahead)

    def _entries_match(self, queue: ConsumeQueue) -> bool:
        return entries_match(self._context.disk, self._files, queue, self._context.segments)

    def _begin_repair(self, names: list[QueueName]) -> None:
        """Remove the files of queues to be rebuilt. A crash from here on leads to a recovery that
        looks at the whole log; what is known of the flushed end is kept."""
        context = self._context
        if not names or context.read_only:
            return
        mark_running(context.disk)
        flushed_end = context.checkpoint.confirm_physical_offset
        write_checkpoint(context.disk, Checkpoint(confirm_physical_offset=flushed_end))
        self._remove_files(names)

    def _remove_files(self, names: list[QueueName]) -> None:
        if not self._context.read_only:
            for topic, queue_id in names:
                remove_queue_files(self._context.disk, topic, queue_id)

    def _replay_to(self, end: int, replay: Replay, start: int) -> None:
        """Dispatch the log from `start` to `end`, writing entries out as they come."""
        self._spill()
        if start < end:
            for chunk in self._context.walk(start, end=end):
                replay.feed(chunk)
                self._spill()
        self.dispatched += replay.dispatched
        self._context.warnings += replay.warnings

    def _rebuild(self, end: int) -> None:
        """Some queues lack entries from before the scan's start: build them from the log's."""
        incomplete = self._replay.incomplete
        found_by_replay = [name for name in incomplete if name not in self._damaged]
        for name in incomplete:
            self.queues.replace_by_empty(self.queues.get_or_create(*name))
        self._damaged.update(dict.fromkeys(found_by_replay, "it lacks entries"))
        self._begin_repair(found_by_replay)
        self._files.clear()
        replay = Replay(self.queues, from_log_start=True)
        self._replay_to(end, replay, self._context.log_min_offset)

    def _restore_ends(self) -> None:
        """A queue that lost its files and whose messages were all removed goes on counting."""
        for topic, queue_id in self._damaged:
            known = self._ends.queues.get((topic, queue_id))
            queue = self.queues.get_or_create(topic, queue_id)
            if queue.end == 0 and known is not None:
                self.queues.begin_at(queue, known.end)

    def _spill(self) -> None:
        """Keep the memory bounded: entries of synced records go to their files early."""
        context = self._context
        if context.read_only or self.queues.tail_bytes < context.config.queue_tail_bytes_max:
            return
        writes = self.queues.take_writes()
        changed: dict[str, None] = {}
        for write in writes:
            directories = write_entries(context.disk, write, self._entries_per_file)
            changed.update(dict.fromkeys(directories))
        for directory in changed:
            context.disk.fsync_directory(directory)
        self.queues.finish_writes(writes)
