"""Makes queues begin where the log does, after the log's oldest segments were removed.

Planned on the loop, done on another thread, finished on the loop. Only queues whose first message
is below the log's new minimum are examined; the others cost one comparison.

Removed are the files whose last entry is below the minimum, but never a queue's last file. A queue
then begins at its first entry at or above the minimum; one that is entirely below it becomes empty
and continues counting where it was. A file that must not be removed stays together with all later
ones; a queue whose files cannot be read keeps its beginning until the next trim.

What is before the beginning of a queue is never served again, so no entry is trusted unless it was
checked: the files of a queue that has not been used yet are checked first, and missing or invalid
entries make the queue damaged and leave its minimum unchanged. Files may be missing below a file
that itself begins below the log's minimum, because all that they held is below it, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import LEFT_ALONE, FileTrouble
from aerobee.store.engine.queues.consume_queue import CHECKED, ConsumeQueue
from aerobee.store.engine.queues.sound_entries import (
    EntriesUnsound,
    FileClaim,
    JudgedEntries,
    is_queue_file,
    look_at_files,
)
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, PRE_BLANK_SIZE, unpack_entry
from aerobee.store.format.names import parse_file_name


@dataclass(slots=True)
class QueueBeginning:
    """One queue as it was when the trim was taken, and the result: the new values are meaningless
    if the queue is damaged now."""

    queue: ConsumeQueue
    first_offset: int
    min_offset: int
    min_position: int
    written_end: int
    end: int
    physical_end: int
    tail: bytes
    claim: FileClaim | None
    new_first_offset: int
    new_min_offset: int
    new_min_position: int
    # Everything before it is certainly below the log's minimum.
    below_end: int
    removed: list[str] = field(default_factory=list)


class QueueTrim:
    """Made by `QueueSet.take_trim`, run once, passed to `QueueSet.finish_trim`."""

    def __init__(
        self,
        disk: Disk,
        log_min_offset: int,
        queues: Sequence[ConsumeQueue],
        *,
        keep_files: bool = False,
    ) -> None:
        """With `keep_files` only the queues' beginnings are computed."""
        self._disk = disk
        self._keep_files = keep_files
        self.log_min_offset = log_min_offset
        self.beginnings = [self._snapshot(queue) for queue in queues]
        self.removed_files = 0
        self.troubles: list[FileTrouble] = []

    def _snapshot(self, queue: ConsumeQueue) -> QueueBeginning:
        wholly_below = queue.physical_end <= self.log_min_offset
        return QueueBeginning(
            queue,
            queue.first_offset,
            queue.min_offset,
            queue.min_position,
            queue.written_end,
            queue.end,
            queue.physical_end,
            b"" if wholly_below else bytes(queue.tail),
            None if wholly_below else queue.take_claim(),
            queue.first_offset,
            queue.min_offset,
            queue.min_position,
            queue.min_offset,
        )

    def run(self) -> None:
        """[any thread] Raises OSError, except for what is recorded as a `trouble`; then the trim
        may be run again, or dropped."""
        for beginning in self.beginnings:
            if beginning.queue.is_gone:
                continue
            if beginning.physical_end <= self.log_min_offset:
                self._empty(beginning)
            elif not beginning.queue.damage:
                try:
                    self._trim(beginning)
                except EntriesUnsound as error:
                    beginning.queue.damage = str(error)

    def _empty(self, beginning: QueueBeginning) -> None:
        """The queue is entirely below the minimum."""
        self._remove_before(beginning, self._behind_gaps(beginning), _last_file(beginning))
        beginning.new_min_offset = beginning.end
        beginning.new_min_position = beginning.physical_end

    def _trim(self, beginning: QueueBeginning) -> None:
        """Raises EntriesUnsound."""
        queue = beginning.queue
        entries = JudgedEntries(
            self._disk,
            queue.directory,
            queue.entries_per_file,
            begin=beginning.new_first_offset,
            written_end=beginning.written_end,
            tail=beginning.tail,
        )
        try:
            behind_gaps = self._behind_gaps(beginning)
            entries.begin = behind_gaps
            if behind_gaps > beginning.below_end:
                # At the very beginning of the log, nothing left of this queue is before it.
                if unpack_entry(entries.at(behind_gaps))[0] > self.log_min_offset:
                    path = queue.file_path(behind_gaps - queue.entries_per_file)
                    raise EntriesUnsound(f"its file {path} is missing")
                beginning.below_end = behind_gaps
            self._check_claim(beginning, behind_gaps)
            first = self._pass_files_below(beginning, entries, behind_gaps)
            self._find_minimum(beginning, entries, first)
        except FileNotFoundError as error:
            raise EntriesUnsound(f"its file {entries.path} is missing") from error
        except OSError as error:
            if self._keep_files:
                raise
            self.troubles.append(FileTrouble("read", entries.path or queue.directory, error))
            return
        self._remove_before(beginning, behind_gaps, first)

    def _behind_gaps(self, beginning: QueueBeginning) -> int:
        """The first entry after which no file is missing."""
        queue = beginning.queue
        first = beginning.new_first_offset
        last_file = _last_file(beginning)
        if first >= last_file:
            return first
        there = set(self._file_firsts(queue))
        for file_first in range(_file_of(queue, first), last_file, queue.entries_per_file):
            if file_first not in there:
                first = file_first + queue.entries_per_file
        return first

    def _check_claim(self, beginning: QueueBeginning, first: int) -> None:
        claim = beginning.claim
        if claim is None:
            return
        found = look_at_files(self._disk, claim.beginning_at(first))
        if found.reason:
            raise EntriesUnsound(found.reason)
        if not self._keep_files:  # otherwise someone may ask for what is past the queue's end
            beginning.queue.claimed_end = CHECKED
        beginning.claim = None

    def _pass_files_below(
        self, beginning: QueueBeginning, entries: JudgedEntries, first: int
    ) -> int:
        """The first entry of the first file whose last entry is kept, or of the last file, which
        always stays because it carries the queue's end."""
        queue = beginning.queue
        last_file = _last_file(beginning)
        while first < last_file:
            behind = _file_of(queue, first) + queue.entries_per_file
            if behind > beginning.below_end and self._is_kept(entries.at(behind - 1)):
                break
            first = behind
        beginning.below_end = max(beginning.below_end, first)
        return first

    def _find_minimum(self, beginning: QueueBeginning, entries: JudgedEntries, first: int) -> None:
        """The search checks the entry that it finds, and the one before it unless that is known to
        be below."""
        offsets = range(max(first, beginning.min_offset), beginning.end)
        index = bisect_left(offsets, True, key=lambda offset: self._is_kept(entries.at(offset)))
        if index == len(offsets):
            beginning.new_min_offset = beginning.end
            beginning.new_min_position = beginning.physical_end
            return
        offset = offsets[index]
        position = unpack_entry(entries.at(offset))[0]
        if offset == beginning.min_offset and beginning.min_position not in (-1, position):
            raise EntriesUnsound(f"its entry {offset} is not its first message's")
        beginning.new_min_offset = offset
        beginning.new_min_position = position

    def _is_kept(self, entry: bytes) -> bool:
        """Entries ascend, after blank ones, which have the physical offset 0 even if the log begins
        there."""
        position, size, _ = unpack_entry(entry)
        return position >= self.log_min_offset and size != PRE_BLANK_SIZE

    # ------------------------------------------------------------------------------ removing

    def _remove_before(self, beginning: QueueBeginning, behind_gaps: int, first: int) -> None:
        """Remove the files before the one that begins with entry `first`, including reappeared
        ones, as a power cut may undo any of several removals."""
        queue = beginning.queue
        if self._keep_files or beginning.new_first_offset >= first:
            beginning.new_first_offset = behind_gaps
            return
        for file_first in self._file_firsts(queue):
            if file_first >= _file_of(queue, first):
                break
            path = queue.file_path(file_first)
            try:
                self._disk.remove(path)
            except FileNotFoundError:
                continue  # already removed
            except OSError as error:
                if error.errno not in LEFT_ALONE:
                    raise
                self.troubles.append(FileTrouble("removed", path, error))
                beginning.new_first_offset = max(beginning.new_first_offset, file_first)
                return
            self.removed_files += 1
            beginning.removed.append(path)
        beginning.new_first_offset = first

    def _file_firsts(self, queue: ConsumeQueue) -> list[int]:
        """The first entry of each existing file, in order."""
        files = self._disk.list(queue.directory)
        return [parse_file_name(file.name) // ENTRY_SIZE for file in files if is_queue_file(file)]


def _file_of(queue: ConsumeQueue, entry: int) -> int:
    """The first entry of its file."""
    return entry - entry % queue.entries_per_file


def _last_file(beginning: QueueBeginning) -> int:
    """The first entry of the last file, which stays."""
    last = max(beginning.first_offset, beginning.written_end - 1)
    return _file_of(beginning.queue, last)
