"""Small files that are replaced as a whole, and read with their backup at hand.

Invariant: after a crash or power failure at any moment, a reader that also uses the backup finds
the previous content or the new one, never a mix and never nothing. The previous content stays
beside the file as `<name>.bak`, as with Apache's broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable, TableEmpty

BACKUP_SUFFIX = ".bak"
TEMPORARY_SUFFIX = ".tmp"

Value = TypeVar("Value")


class Source(StrEnum):
    """Which file was used."""

    FILE = "file"
    BACKUP = "backup"
    TEMPORARY = "temporary file"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Value]):
    """What `read_with_backup` found; `problem` says why the file itself was not used."""

    value: Value | None
    source: Source
    problem: str | None = None


def replace_atomically(disk: Disk, path: str, data: bytes) -> None:
    """Make `data` the content of `path`, durably. Blocks on the disk; touches no shared state.

    Raises OSError; the previous content is then still readable through `read_with_backup`.
    Two replacements of one path must not run at the same time.
    """
    folder = path.rpartition("/")[0]
    temporary = path + TEMPORARY_SUFFIX
    if not disk.exists(folder):
        disk.make_directory(folder)
        disk.fsync_directory(folder.rpartition("/")[0])
    file = disk.open_file(temporary, create=True)
    try:
        file.truncate(0)  # a leftover of a crash may be longer
        file.write_at(0, [data])
        file.datasync()
    finally:
        file.close()
    if _has_content(disk, path):
        # Between the two renames only the backup and the temporary file exist.
        disk.rename(path, path + BACKUP_SUFFIX)
    disk.rename(temporary, path)
    disk.fsync_directory(folder)


def read_with_backup(disk: Disk, path: str, parse: Callable[[bytes], Value]) -> Loaded[Value]:
    """The parsed content of `path`, or of its backup if that is missing, empty or illegal.

    `parse` raises ValueError for illegal content. Without either file the value is None. Raises
    StoreUnusable if files exist but none can be read, TableEmpty if they have no content at all:
    using defaults would lose what the operator could still repair.
    """
    problems: list[str] = []
    for candidate, source in (
        (path, Source.FILE),
        (path + BACKUP_SUFFIX, Source.BACKUP),
    ):
        try:
            data = disk.read_file(candidate)
        except FileNotFoundError:
            continue
        if not data.strip(b" \t\r\n\0"):
            # After a power failure a file system may leave zeros or nothing.
            problems.append(f"{candidate} is empty")
            continue
        try:
            value = parse(data)
        except ValueError as error:
            problems.append(f"{candidate}: {error}")
            continue
        problem = None if source is Source.FILE else "; ".join(problems) or f"{path} is missing"
        return Loaded(value, source, problem)
    if not problems:
        return Loaded(None, Source.NEITHER)
    unfinished = _parse_temporary(disk, path, parse)
    if unfinished is not None:
        return Loaded(unfinished, Source.TEMPORARY, "; ".join(problems))
    is_empty = all(problem.endswith(" is empty") for problem in problems)
    raise (TableEmpty if is_empty else StoreUnusable)(
        f"cannot read {'; '.join(problems)}; repair the file, or remove it and its backup "
        "to start with defaults"
    )


def _parse_temporary(disk: Disk, path: str, parse: Callable[[bytes], Value]) -> Value | None:
    """The temporary file of a replacement that was interrupted between its two renames, after a
    damaged file had become the backup. Its content was complete and synced by then."""
    try:
        return parse(disk.read_file(path + TEMPORARY_SUFFIX))
    except (FileNotFoundError, ValueError):
        return None


def _has_content(disk: Disk, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return any(entry.name == name and entry.size_bytes > 0 for entry in disk.list(folder))
