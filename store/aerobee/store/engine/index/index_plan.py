"""What recovery does with the index files it finds: decided here, done elsewhere.

    who left the folder            how       files                          then indexed
    ------------------------------------------------------------------------------------------
    a broker of another kind       closed    all kept                       nothing
                                   crashed   those the checkpoint does not  what the log's scan
                                             know are removed               walks over
    ours                           closed    all kept                       what the mark lacks
                                   crashed   cut back to the mark           all after the mark
    ours, then another             closed    all kept                       nothing
    ours, but mark or newest       any       the newest loses its last      all from that record
      file is lost                           record's keys
    ours, without any file         any       -                              the whole log
    anyone, a wrong length         any       it and newer ones removed      all after those kept

So nothing is lost if we used the folder last; if another broker crashed, its own recovery is
applied. Files that agree with each other but not with the options are left alone: the options are
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.index.index_files import FoundFiles, IndexFileInfo, IndexMark
from aerobee.store.format.index_file import IndexGeometry


@dataclass(slots=True)
class IndexPlan:
    """Offsets are those of the log."""

    kept: list[IndexFileInfo]
    removed: list[str] = field(default_factory=list)
    # Entries that point here or later are removed, and slots that point to removed entries.
    entries_end: int | None = None
    # Records from here on must be indexed; None for none.
    walk_from: int | None = None
    # Only as far as the log is walked anyway.
    scan_only: bool = False


def plan_index_recovery(
    found: FoundFiles,
    mark: IndexMark | None,
    mark_at: int | None,
    *,
    clean: bool,
    ours: bool,
    log_min_offset: int,
    checkpoint_ms: int,
) -> IndexPlan:
    """Decide. `mark_at` is the index of the file that the mark names, if that file has all that the
    mark says; -1 if the mark names no file; None if there is no mark or it cannot be trusted."""
    files = found.files
    if found.wrong_lengths:
        odd = min(found.wrong_lengths)
        plan = from_last_record([info for info in files if info.name < odd], log_min_offset)
        newer = [info.name for info in files if info.name > odd]
        plan.removed = sorted([*plan.removed, *newer, *found.wrong_lengths])
        return plan
    if not ours:
        return IndexPlan(files) if clean else _left_by_another(files, checkpoint_ms)
    if mark is not None and mark_at is not None:
        return _left_by_us(files, mark, mark_at, clean=clean)
    used = [info for info in files if info.header.has_entries]
    if used and clean and (mark is None or (mark.name or "") < used[-1].name):
        # Closed by a broker that writes no mark; it indexed everything that it stored.
        return IndexPlan(files, walk_from=used[-1].header.end_physical_offset + 1)
    return from_last_record(files, log_min_offset)


def from_last_record(files: Sequence[IndexFileInfo], log_min_offset: int) -> IndexPlan:
    """What to do with files about which nothing else is known: all keys of the last record are
    indexed again, as some of them may be missing."""
    used = [info for info in files if info.header.has_entries]
    empty = [info.name for info in files if not info.header.has_entries]
    if not used:
        return IndexPlan([], empty, walk_from=log_min_offset)
    end = used[-1].header.end_physical_offset
    return IndexPlan(used, empty, entries_end=end, walk_from=end)


def _left_by_another(files: Sequence[IndexFileInfo], known_ms: int) -> IndexPlan:
    kept = [info for info in files if info.header.end_timestamp_ms <= known_ms]
    removed = [info.name for info in files if info.header.end_timestamp_ms > known_ms]
    # The last record is indexed a second time: some of its keys may be in a removed file.
    end = kept[-1].header.end_physical_offset if kept else 0
    return IndexPlan(kept, removed, walk_from=end, scan_only=True)


def _left_by_us(files: list[IndexFileInfo], mark: IndexMark, at: int, *, clean: bool) -> IndexPlan:
    kept = files[: at + 1]
    if not clean:
        removed = [info.name for info in files[at + 1 :]]
        return IndexPlan(kept, removed, entries_end=mark.indexed_end, walk_from=mark.indexed_end)
    if len(kept) < len(files) or (kept and kept[-1].header.count != mark.count):
        return IndexPlan(files)  # another broker continued, and indexed all that it stored
    return IndexPlan(files, walk_from=mark.indexed_end)


def check_lengths(found: FoundFiles, geometry: IndexGeometry) -> None:
    """Raises StoreUnusable if the files were made with other options."""
    lengths = set(found.wrong_lengths.values())
    if len(found.wrong_lengths) > 1 and len(lengths) == 1 and not found.files:
        (length,) = lengths
        raise StoreUnusable(
            f"each of the {len(found.wrong_lengths)} index files has {length} bytes, but "
            f"index_slots_max {geometry.slots} and index_entries_max {geometry.entries} ask for "
            f"{geometry.file_bytes}: set them to the values the files were created with, or "
            "remove the folder `index` to start a new index"
        )
