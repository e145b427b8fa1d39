"""Recovery of consume queues: loaded, compared with the log, completed or rebuilt.

Nothing here prevents a start. What is known of the queues before the log is walked comes from

    the list of queue ends, if it counts   no file is read, however many queues there are
    else the queues' files                 each one is read: another broker used the folder, or the
                                           list was lost

and what is found decides what happens to a queue:

    files gone, of a wrong length, not sound, or not those of this queue   built again
    ahead of the log, which was cut                                        cut
    the log continues where the queue ends                                   completed
    the log continues with a later offset                                    built again
    none of these                                                          taken as it is

A listed queue's files are checked here only if the log's walk touched the queue, plus those of a
limited number of others; the rest are checked when they are first used. A queue is rebuilt from the
log's start. Until that is done, the folder says so: `abort` exists and the checkpoint directs the
next recovery to the log's first segment.
"""

from __future__ import annotations

from aerobee.store.engine.errors import QueueDamaged
from aerobee.store.engine.file_cache import FileCache
from aerobee.store.engine.folder_state import mark_running, write_checkpoint
from aerobee.store.engine.log.log_walk import WalkedChunk
from aerobee.store.engine.queues.consume_queue import CHECKED, ConsumeQueue
from aerobee.store.engine.queues.queue_ends import QueueEnds, read_queue_ends
from aerobee.store.engine.queues.queue_files import (
    counted_end,
    cut_queue,
    entries_match,
    load_queues,
    remove_queue_files,
    trim_queue_files,
)
from aerobee.store.engine.queues.queue_set import QueueName, QueueSet
from aerobee.store.engine.queues.sound_entries import look_at_files
from aerobee.store.engine.recovery.context import RecoveryContext
from aerobee.store.engine.recovery.replay import Replay
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entry


class QueueRecovery:
    """One recovery's work on queues; see DerivedRecovery."""

    def __init__(self, context: RecoveryContext, files: FileCache) -> None:
        self._context = context
        self._files = files
        self._entries_per_file = context.config.consume_queue_entries_per_file
        self.queues = QueueSet(files, self._entries_per_file)
        # Queues whose files must be removed, and why.
        self._damaged: dict[QueueName, str] = {}
        # Those among them, and others, whose entries the walk could not provide.
        self._incomplete: dict[QueueName, None] = {}
        # How far queues had counted before their files were removed, according to the files.
        self._counted: dict[QueueName, int] = {}
        # Queues whose files have data past their end.
        self._untidy: list[ConsumeQueue] = []
        self._ends = QueueEnds()
        self._listed_end = 0
        self._replay = Replay(self.queues, context.batch_topics, from_log_start=False)
        self._replayed_to = 0
        self.dispatched = 0

    @property
    def rebuilt(self) -> list[QueueName]:
        return sorted(self._damaged)

    # ------------------------------------------------------------------------------ taking in

    def load(self, *, clean: bool) -> None:
        """Load the queues from the list, or else from their files."""
        self._ends = read_queue_ends(self._context.disk, self._context.checkpoint)
        if self._ends.counts:
            self._load_list()
        else:
            self._load_files()

    def _load_list(self) -> None:
        for name, end in self._ends.queues.items():
            if end.end == 0:
                continue  # it was removed with its topic
            if end.is_damaged:
                self._damaged[name] = "it was found damaged while in use"
            else:
                self.queues.add(ConsumeQueue.listed(end, self._entries_per_file))
        self._listed_end = self.queues.physical_end

    def _load_files(self) -> None:
        loaded = load_queues(self._context.disk, self._entries_per_file)
        self._untidy = loaded.untidy
        self._damaged.update(loaded.damaged)
        for queue in loaded.queues:
            if self._context.log_min_offset == 0 and queue.first_offset:
                reason = f"it begins at {queue.first_offset}, but nothing was ever removed"
                self._damaged[queue.topic, queue.queue_id] = reason
            else:
                self.queues.add(queue)

    def drop_all(self) -> None:
        """There is no log, so there are no queues."""
        loaded = load_queues(self._context.disk, self._entries_per_file)
        names = [*loaded.damaged, *((queue.topic, queue.queue_id) for queue in loaded.queues)]
        if names:
            self._context.warnings.append(
                f"there is no log: {len(names)} consume queues are removed"
            )
        self._remove_files(names)

    # ------------------------------------------------------------------------------ the scan

    def begin_scan(self, start: int) -> None:
        context = self._context
        self._replay = Replay(
            self.queues,
            context.batch_topics,
            from_log_start=start == context.log_min_offset,
            # Dispatch follows the log, so up to the last listed record all are listed.
            known_end=self._listed_end if self._ends.counts else 0,
        )
        self._replayed_to = start

    def feed(self, chunk: WalkedChunk) -> None:
        """Dispatch a chunk of the walk, only in memory, as long as there is room."""
        context = self._context
        # Entries only grow, so once there is no room there is none for the rest either.
        has_room = self.queues.tail_bytes < context.config.recovery_tail_bytes_max
        if has_room or context.read_only:
            self._replay.feed(chunk)
            self._replayed_to = chunk.position + chunk.result.valid_end

    def last_listed_record(self) -> tuple[int, int] | None:
        """Where the last dispatched record begins and ends, according to both the list and the
        entry in the queue's file; None if there is no valid list, or the two differ."""
        if not self._listed_end or not self._ends.counts:
            return None
        queue = max(self.queues, key=lambda queue: queue.physical_end)
        last = queue.written_end - 1
        if queue.written_end != queue.end or last < queue.first_offset:
            return None
        try:
            file = self._context.disk.open_file(queue.file_path(last), read_only=True)
        except FileNotFoundError:
            return None
        data = file.read_at(last % self._entries_per_file * ENTRY_SIZE, ENTRY_SIZE)
        file.close()
        if len(data) < ENTRY_SIZE:
            return None
        position, size, _ = unpack_entry(data)
        return (position, position + size) if position + size == self._listed_end else None

    def known_behind(self, end: int) -> int:
        """How far past `end` queues certainly point to complete records of theirs; else 0."""
        if self._ends.counts:
            return self._listed_end if self._listed_end > end else 0
        return max(
            (
                queue.physical_end
                for queue in self.queues
                if queue.physical_end > end and self._entries_match(queue)
            ),
            default=0,
        )

    # ------------------------------------------------------------------------------ the repair

    def complete(self, start: int, end: int) -> None:
        """Make the queues hold exactly the records of the log."""
        if self._ends.counts and self._listed_end > end:
            self._distrust_list(start)
        if self._ends.counts:
            self._correct_min_offsets()
            self._check_listed()
        elif self._cut(end):
            # A queue that was ahead of the log may have hidden records from the scan's dispatch.
            self._replayed_to = start
        if not self._ends.counts:
            self._correct_min_offsets()
        if self._ends.counts or not self._replay.from_log_start:
            self._incomplete.update(dict.fromkeys(self._damaged))
        self._begin_rebuild(list(self._damaged))
        self._tidy()
        self._replay_to(end, self._replay, self._replayed_to)
        self._incomplete.update(self._replay.incomplete)
        self._check_touched()
        if self._incomplete:
            self._rebuild(end)
        self._restore_ends()
        for (topic, queue_id), reason in self._damaged.items():
            self._context.warnings.append(f"queue {queue_id} of {topic} was rebuilt: {reason}")
        self.queues.correct_min_offsets(self._context.log_min_offset)

    def _correct_min_offsets(self) -> None:
        """Make the queues begin where the log does, unless their files are unusable for that."""
        self.queues.correct_min_offsets(self._context.log_min_offset)
        for queue in list(self.queues):
            if queue.damage:
                self._damage(queue, queue.damage)

    def _distrust_list(self, scan_start: int) -> None:
        """The log was cut below what the list covers: start over with the queues' files."""
        self._ends = QueueEnds(False, self._ends.queues)
        self.queues.clear()
        self._load_files()
        self.begin_scan(scan_start)

    def _check_listed(self) -> None:
        """Check the files of queues that the walk touched, and of some others."""
        self._check_touched()
        others = [queue for queue in self.queues if queue.claimed_end != CHECKED]
        for queue in others[: self._context.config.queue_checks_at_start_max]:
            claim = queue.take_claim()
            assert claim is not None
            found = look_at_files(self._context.disk, claim)
            queue.claimed_end = CHECKED
            if found.reason:
                self._damage(queue, found.reason)
            elif found.untidy:
                self._untidy.append(queue)

    def _check_touched(self) -> None:
        """Whatever is past the end of their files is overwritten by their entries in memory."""
        for queue in self.queues.unwritten():
            try:
                queue.check_files(self._context.disk, queue.take_claim())
            except QueueDamaged:
                self._damage(queue, queue.damage)

    def _cut(self, end: int) -> bool:
        """Cut the queues to match the log; returns whether any was ahead of it."""
        ahead = [queue for queue in self.queues if queue.physical_end > end]
        for queue in ahead:
            try:
                cut_queue(self._files, queue, end)
            except QueueDamaged:
                self._damage(queue, queue.damage)
        for queue in list(self.queues):
            if not self._entries_match(queue):
                self._damage(queue, "it contradicts the log")
        self._untidy += ahead
        return bool(ahead)

    def _damage(self, queue: ConsumeQueue, reason: str) -> None:
        """Called after the walk: nothing that it added to this queue can be kept."""
        name = queue.topic, queue.queue_id
        self.queues.replace_by_empty(queue)
        self._damaged[name] = reason
        self._incomplete[name] = None

    def _entries_match(self, queue: ConsumeQueue) -> bool:
        try:
            return entries_match(self._context.disk, self._files, queue, self._context.segments)
        except QueueDamaged:
            return False

    def _tidy(self) -> None:
        if not self._context.read_only:
            for queue in self._untidy:
                is_damaged = (queue.topic, queue.queue_id) in self._damaged
                if not (is_damaged or queue.is_gone):
                    trim_queue_files(self._context.disk, queue, self._entries_per_file)
        self._files.clear()

    # ------------------------------------------------------------------------------ building

    def _begin_rebuild(self, names: list[QueueName]) -> None:
        """Remove the files of queues to be rebuilt. A crash from here on leads to a recovery that
        walks the whole log; the known flushed end is kept."""
        context = self._context
        for topic, queue_id in names:
            counted = counted_end(
                context.disk,
                topic,
                queue_id,
                self._entries_per_file,
                log_end=context.log_files_end,
            )
            self._counted[topic, queue_id] = max(counted, self._counted.get((topic, queue_id), 0))
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
        self._context.misplaced_records += replay.misplaced

    def _rebuild(self, end: int) -> None:
        """Some queues lack entries from before the scan's start: rebuild them from the whole
        log."""
        context = self._context
        for name in self._incomplete:
            self.queues.replace_by_empty(self.queues.get_or_create(*name))
            self._damaged.setdefault(name, "it lacks entries")
        self._begin_rebuild(list(self._incomplete))
        self._files.clear()
        replay = Replay(self.queues, context.batch_topics, from_log_start=True)
        self._replay_to(end, replay, context.log_min_offset)

    def _restore_ends(self) -> None:
        """A queue that lost its files and whose messages were all removed continues counting,
        according to the list or to what was left of its files. For a topic that ended in this log
        both describe its former life."""
        ended_topics = self.queues.ended_topics
        for topic, queue_id in self._damaged:
            if topic in ended_topics:
                continue
            known = self._ends.queues.get((topic, queue_id))
            end = max(known.end if known else 0, self._counted.get((topic, queue_id), 0))
            queue = self.queues.get_or_create(topic, queue_id)
            if queue.end == 0 and end:
                self.queues.begin_at(queue, end)
        # The same holds for one that never had a file here, whatever happened to the list.
        log_min_offset = self._context.log_min_offset
        for name, known in self._ends.queues.items():
            if name[0] in ended_topics:
                continue
            if known.min_offset == known.end and known.physical_end <= log_min_offset:
                queue = self.queues.get_or_create(*name)
                if queue.end == 0 and known.end:
                    self.queues.begin_at(queue, known.end)

    def _spill(self) -> None:
        """Bound the memory: entries of synced records are written to their files early."""
        context = self._context
        if context.read_only or self.queues.tail_bytes < context.config.queue_tail_bytes_max:
            return
        self._check_touched()
        self.queues.spill()
