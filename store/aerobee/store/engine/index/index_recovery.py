"""Recovery of the key index: load, check, cut, complete, rebuild.

Nothing here prevents a start: the index is derived from the log. Files are inspected first, keys
are collected while the log is walked, and files are changed only once the log's end is known. A
file that cannot be read or repaired is given up, and if it is among the newest its keys are
collected again from the log; on a full disk the keys stay in memory, and the store takes no
messages until there is room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aerobee.runtime.clock import Clock
from aerobee.store.engine.errors import DISK_FULL, FileTrouble
from aerobee.store.engine.index.index_cut import (
    cut_index_file,
    first_entry_behind,
    read_index_entry,
    slots_lead_behind,
)
from aerobee.store.engine.index.index_files import (
    FoundFiles,
    IndexFileInfo,
    IndexMark,
    find_index_files,
    index_path,
    read_mark,
    remove_index_files,
)
from aerobee.store.engine.index.index_plan import (
    IndexPlan,
    check_lengths,
    from_last_record,
    plan_index_recovery,
)
from aerobee.store.engine.index.index_write import Slots
from aerobee.store.engine.index.key_index import KeyIndex, index_geometry
from aerobee.store.engine.index.pending_keys import PendingKeys
from aerobee.store.engine.log.log_walk import WalkedChunk
from aerobee.store.engine.queues.queue_ends import QUEUE_ENDS_FILE
from aerobee.store.engine.recovery.context import RecoveryContext
from aerobee.store.format.record import Record, RecordCorrupt


class IndexRecovery:
    """One recovery's work on the key index; see DerivedRecovery."""

    def __init__(self, context: RecoveryContext, clock: Clock) -> None:
        self._context = context
        self._clock = clock
        self._geometry = index_geometry(context.config)
        self._plan = IndexPlan([])
        self._pending = PendingKeys()
        # How far the log is indexed, and whether the current walk can advance it.
        self._position: int | None = None
        self._feeding = False
        self._disk_full = False
        # Repaired slots of files that must not be changed.
        self._repaired: dict[str, Slots] = {}
        self.index = KeyIndex(context.disk, clock, context.config)

    # ------------------------------------------------------------------------------ looking

    def load(self, *, clean: bool) -> None:
        context = self._context
        found = find_index_files(context.disk, self._geometry)
        if not context.read_only:
            check_lengths(found, self._geometry)
        mark = read_mark(context.disk)
        self._plan = plan_index_recovery(
            found,
            mark,
            self._file_of(mark, found) if mark else None,
            clean=clean,
            ours=mark is not None or context.disk.exists(QUEUE_ENDS_FILE),
            log_min_offset=context.log_min_offset,
            checkpoint_ms=context.checkpoint.index_msg_timestamp,
        )
        if found.wrong_lengths:
            context.warnings.append(
                f"index file {min(found.wrong_lengths)} does not have the length that the "
                "options ask for: its keys and those of newer files are read from the log again "
                f"({len(self._plan.removed)} files)"
            )
        elif not found.files and mark is not None and mark.name is not None:
            context.warnings.append(
                "the index files are missing: the index is rebuilt from the log"
            )
        context.warnings += [
            f"index/{name} is not an index file: left as it is" for name in found.strays
        ]
        self._give_up_unreadable(found)

    def _give_up_unreadable(self, found: FoundFiles) -> None:
        """The newest ones are rebuilt, as the plan did not know of them. Older ones stay, for a
        start at which the disk can read them again."""
        newest = self._plan.kept[-1].path if self._plan.kept else ""
        for trouble in found.unreadable:
            if trouble.path > newest and self._plan.walk_from is not None:
                self._plan.removed.append(trouble.path.rpartition("/")[2])
                self._context.warnings.append(f"{trouble}; its keys are read from the log")
            else:
                self._context.warnings.append(
                    f"{trouble}; its keys are not found. To rebuild the index, remove the folder "
                    "`index` while the broker is stopped"
                )

    def _file_of(self, mark: IndexMark, found: FoundFiles) -> int | None:
        """Index of the file that the mark names; -1 for none, None if the file does not match."""
        if mark.name is None:
            return -1
        for index, info in enumerate(found.files):
            if info.name == mark.name and info.header.count >= mark.count:
                try:
                    file = self._context.disk.open_file(info.path, read_only=True)
                    offset = read_index_entry(file, self._geometry, mark.count - 1)[1]
                    file.close()
                except OSError:  # this is handled when the files are cut
                    return None
                return index if offset == mark.last_physical_offset else None
        return None

    def drop_all(self) -> None:
        found = find_index_files(self._context.disk, self._geometry)
        names = [*found.wrong_lengths, *(info.name for info in found.files)]
        self._remove(names)

    # ------------------------------------------------------------------------------ the scan

    def begin_scan(self, start: int) -> None:
        position = self._plan.walk_from
        if position is None or not self._context.config.index_enabled:
            return
        lowest = start if self._plan.scan_only else self._context.log_min_offset
        self._position = max(position, lowest)
        self._feeding = start <= self._position

    def feed(self, chunk: WalkedChunk) -> None:
        """Collect the keys of a chunk of the walk, only in memory, as long as there is room."""
        context = self._context
        if self._feeding:
            has_room = self._pending.bytes < context.config.recovery_tail_bytes_max
            self._feeding = has_room or context.read_only
        if self._feeding:
            self._take_in(chunk)

    def _take_in(self, chunk: WalkedChunk) -> None:
        assert self._position is not None
        end = chunk.position + chunk.result.valid_end
        if end > self._position:
            places = chunk.result.positions + chunk.position
            chosen = np.flatnonzero(places >= self._position)
            self._pending.add(chunk.result.index_keys(chunk.data, chunk.position, chosen))
            self._position = end

    # ------------------------------------------------------------------------------ repair

    def complete(self, start: int, end: int) -> None:
        """Complete the index with the records of the log."""
        context = self._context
        self._remove(self._plan.removed)
        files = self._usable_files(end)
        self.index = KeyIndex(
            context.disk, self._clock, context.config, files, self._pending, indexed_end=end
        )
        self.index.use_slots(self._repaired)
        if self._position is not None and not self._feeding and self._position < end:
            for chunk in context.walk(self._position, end=end):
                self._take_in(chunk)
                self._spill()
            self.index.indexed_end = end

    def _usable_files(self, end: int) -> list[IndexFileInfo]:
        """The files in their final state, durable. Those that cannot be made so are given up,
        newest first, and their keys are collected again: `complete` walks the log for them."""
        while True:
            try:
                files = self._cut_files(end)
                self._sync(files[-2:])
                return files
            except OSError as error:
                if not self._plan.kept:
                    raise
                lost = self._plan.kept.pop()
                self._context.warnings.append(
                    f"{FileTrouble('read', lost.path, error)}; its keys are read from the log"
                )
                self._plan = from_last_record(self._plan.kept, self._context.log_min_offset)
                self._remove([lost.name, *self._plan.removed])
                self._pending = PendingKeys()
                self._feeding = False
                if self._context.config.index_enabled:
                    self._position = max(self._plan.walk_from or 0, self._context.log_min_offset)

    def _sync(self, files: Sequence[IndexFileInfo]) -> None:
        """The checkpoint will say that they are on disk; their writer may not have synced them."""
        if not self._context.read_only:
            for info in files:
                file = self._context.disk.open_file(info.path)
                file.datasync()
                file.close()

    def _cut_files(self, end: int) -> list[IndexFileInfo]:
        """Without entries past the log's end, and without those that the plan does not trust."""
        entries_end = end if self._plan.entries_end is None else min(end, self._plan.entries_end)
        files = list(self._plan.kept)
        # New files without any writes yet.
        empty: list[IndexFileInfo] = []
        while files:
            info = files.pop()
            if not info.header.has_entries:
                empty.insert(0, info)
                continue
            count = info.header.count
            if info.header.end_physical_offset >= entries_end:
                count = self._first_behind(info, entries_end)
            if count == info.header.count:
                return [*files, self._cut(info, count), *empty]
            # Remove empty files that began with a log end that no longer exists.
            self._remove([each.name for each in empty])
            empty = []
            if count > 1:
                return [*files, self._cut(info, count)]
            self._remove([info.name])
        return empty

    def _first_behind(self, info: IndexFileInfo, offset: int) -> int:
        file = self._context.disk.open_file(info.path, read_only=True)
        number = first_entry_behind(file, self._geometry, info.header, offset)
        file.close()
        return number

    def _cut(self, info: IndexFileInfo, count: int) -> IndexFileInfo:
        context = self._context
        if count == info.header.count and not (
            self._plan.entries_end is not None
            and slots_lead_behind(context.disk, self._geometry, info)
        ):
            return info
        cut, slots = cut_index_file(
            context.disk,
            self._geometry,
            info,
            count,
            end_timestamp_ms=self._store_timestamp_ms(info, count - 1),
            read_only=context.read_only,
        )
        if context.read_only:
            self._repaired[info.name] = slots
        return cut

    def _remove(self, names: Sequence[str]) -> None:
        """A file that cannot be removed is harmless: newer files have its keys, too."""
        if self._context.read_only:
            return
        for name in names:
            try:
                remove_index_files(self._context.disk, [name])
            except OSError as error:
                trouble = FileTrouble("removed", index_path(name), error)
                self._context.warnings.append(str(trouble))

    def _store_timestamp_ms(self, info: IndexFileInfo, number: int) -> int | None:
        """Store time of the record that an entry points to; None if it is gone from the log."""
        context = self._context
        index_file = context.disk.open_file(info.path, read_only=True)
        offset = read_index_entry(index_file, self._geometry, number)[1]
        index_file.close()
        if not context.log_min_offset <= offset < context.segments[-1].end:
            return None
        segment = context.segments[context.index_of(offset)]
        file = context.disk.open_file(segment.path, read_only=True)
        try:
            size = int.from_bytes(file.read_at(offset - segment.base, 4), "big", signed=True)
            return Record(file.read_at(offset - segment.base, max(size, 0))).store_timestamp_ms
        except RecordCorrupt:
            return None
        finally:
            file.close()

    def _spill(self) -> None:
        """Bound the memory: write out what was collected."""
        context, index = self._context, self.index
        if context.read_only or index.pending_bytes < context.config.index_pending_bytes_max:
            return
        if self._disk_full:
            return
        assert self._position is not None
        index.indexed_end = self._position
        write = index.take_write()
        if write is not None:
            try:
                write.run()
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                self._disk_full = True
                context.warnings.append(
                    f"the disk is too full to build the key index: {index.pending_keys} keys or "
                    "more stay in memory, and messages are refused until there is room"
                )
            index.finish_write(write)
