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

So nothing is lost where we were the last; where another broker crashed, its own recovery is done.
Files that agree with each other and not with the options are not touched: the options are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aerobee.broker.store.errors import StoreUnusable
from aerobee.broker.store.index.index_files import FoundFiles, IndexFileInfo
from aerobee.broker.store.index.index_mark import IndexMark
from aerobee.store_format.index_file import IndexGeometry


@dataclass(slots=True)
class IndexPlan:
    """See the module. Offsets are those of the log."""

    kept: list[IndexFileInfo]
    removed: list[str] = field(default_factory=list)
    # How many entries + 1 the newest kept file may have.
    count_max: int | None = None
    # Entries that lead here or further go.
    entries_end: int | None = None
    # Records from here on are to be indexed; None for none.
    walk_from: int | None = None
    # Only as far as the log is walked anyway.
    scan_only: bool = False
    # A crash may have left slots that lead past the newest file's last entry.
    check_slots: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class IndexSituation:
    """What is known when the files have been looked at.

    `mark_at` is the index of the file that the mark speaks of, if that has all that the mark says;
    -1 if the mark speaks of no file; None if it cannot be trusted.
    """

    found: FoundFiles
    mark: IndexMark | None
    mark_at: int | None
    clean: bool
    ours: bool
    log_min_offset: int
    checkpoint_ms: int


def plan_index_recovery(situation: IndexSituation) -> IndexPlan:
    """Decide. Strays are named in a warning and left alone."""
    found = situation.found
    files = found.files
    if found.wrong_length:
        plan = _without_odd(situation, files, min(found.wrong_length))
    elif not situation.ours:
        plan = _left_by_another(situation, files)
    elif situation.mark is not None and situation.mark_at is not None:
        plan = _left_by_us(situation, files, situation.mark, situation.mark_at)
    else:
        plan = _mark_lost(situation, files)
    plan.warnings += [f"index/{name} is no index file: left alone" for name in found.strays]
    return plan


def check_lengths(found: FoundFiles, geometry: IndexGeometry) -> None:
    """Raises StoreUnusable if the files were made with other options."""
    if len(found.wrong_length) > 1 and len(found.wrong_lengths) == 1 and not found.files:
        (length,) = found.wrong_lengths
        raise StoreUnusable(
            f"each of the {len(found.wrong_length)} index files has {length} bytes, but "
            f"index_slots_max {geometry.slots} and index_entries_max {geometry.entries} ask for "
            f"{geometry.file_bytes}: set them to what the files were made with, or remove "
            "the folder `index` to begin a new index"
        )


def _without_odd(situation: IndexSituation, files: Sequence[IndexFileInfo], odd: str) -> IndexPlan:
    kept = [info for info in files if info.name < odd and info.header.has_entries]
    kept_names = {info.name for info in kept}
    names = [*situation.found.wrong_length, *(info.name for info in files)]
    removed = sorted(name for name in names if name not in kept_names)
    # Not all keys of the record at the end need be in the files that are left.
    end = kept[-1].header.end_physical_offset if kept else None
    walk_from = situation.log_min_offset if end is None else end
    plan = IndexPlan(kept, removed, entries_end=end, walk_from=walk_from, check_slots=bool(kept))
    plan.warnings.append(
        f"index file {odd} has not the length that the options ask for: its keys and those of "
        f"newer files are gathered again from the log ({len(removed)} files)"
    )
    return plan


def _left_by_another(situation: IndexSituation, files: Sequence[IndexFileInfo]) -> IndexPlan:
    if situation.clean:
        return IndexPlan(list(files))
    known_ms = situation.checkpoint_ms
    kept = [info for info in files if info.header.end_timestamp_ms <= known_ms]
    removed = [info.name for info in files if info.header.end_timestamp_ms > known_ms]
    # The record at the end is indexed a second time: its last keys may be in a removed file.
    end = kept[-1].header.end_physical_offset if kept else 0
    return IndexPlan(kept, removed, walk_from=end, scan_only=True)


def _left_by_us(
    situation: IndexSituation, files: Sequence[IndexFileInfo], mark: IndexMark, at: int
) -> IndexPlan:
    is_newest = at == len(files) - 1
    if situation.clean and not (is_newest and (at < 0 or files[at].header.count == mark.count)):
        return IndexPlan(list(files))
    kept = list(files[: at + 1])
    plan = IndexPlan(kept, [info.name for info in files[at + 1 :]], walk_from=mark.indexed_end)
    if not situation.clean and kept:
        plan.count_max = mark.count
        plan.check_slots = True
    return plan


def _mark_lost(situation: IndexSituation, files: Sequence[IndexFileInfo]) -> IndexPlan:
    used = [info for info in files if info.header.has_entries]
    if not used:
        plan = IndexPlan([], [info.name for info in files], walk_from=situation.log_min_offset)
        if situation.mark is not None and situation.mark.name is not None:
            plan.warnings.append("the index files are missing: built again from the log")
        return plan
    mark = situation.mark
    end = used[-1].header.end_physical_offset
    if situation.clean and (mark is None or (mark.name or "") < used[-1].name):
        # Closed by a broker that writes no mark; it indexed all that it stored.
        return IndexPlan(list(files), walk_from=end + 1)
    return IndexPlan(
        used,
        [info.name for info in files if not info.header.has_entries],
        entries_end=end,
        walk_from=end,
        check_slots=True,
    )
