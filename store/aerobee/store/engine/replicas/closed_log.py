"""What a replica does to its log while it is closed: cut off its end, or restart it.

`cut_log` leaves the folder as a crash would: the log ends earlier, and what was derived from it
extends too far. The next start's recovery repairs that, whatever part of the cut has reached the
disk.

`begin_log_at` first records where the log is to begin, in the file `commitlog.begin`. From then on
the log and the files derived from it are void: the next opening of the folder completes the work,
however often it is interrupted. So the folder is either unchanged or gets emptied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.folder_state import (
    CHECKPOINT_FILE,
    load_checkpoint,
    lock_store,
    mark_running,
    was_left_running,
    write_checkpoint,
)
from aerobee.store.engine.index.index_files import INDEX_DIRECTORY, INDEX_MARK_FILE
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, Segment, segment_path
from aerobee.store.engine.log.segment_files import (
    clear_behind,
    first_store_timestamp_ms,
    load_segments,
    sync_segments,
)
from aerobee.store.engine.log.segment_supply import create_spare, remove_strays, spare_path
from aerobee.store.engine.producers.windows_file import WINDOWS_FILE
from aerobee.store.engine.queues.consume_queue import CONSUME_QUEUE_DIRECTORY
from aerobee.store.engine.queues.queue_ends import QUEUE_ENDS_FILE
from aerobee.store.engine.tables.epoch_table import remove_epochs
from aerobee.store.format.checkpoint import Checkpoint

BEGIN_FILE: Final = "commitlog.begin"
_NEW_BEGIN_FILE: Final = "commitlog.begin.tmp"

OnStep = Callable[[], None]
"""Called for each removed file: a large log takes a while."""

_DERIVED_FILES: Final = (
    CHECKPOINT_FILE,
    QUEUE_ENDS_FILE,
    INDEX_MARK_FILE,
    WINDOWS_FILE,
    # Apache's, if its broker used the folder before.
    "timerwheel",
    "config/timercheck",
)
_DERIVED_DIRECTORIES: Final = (
    CONSUME_QUEUE_DIRECTORY,
    "consumequeue_ext",
    "batchconsumequeue",
    INDEX_DIRECTORY,
    "timerlog",
)


@contextmanager
def _locked(disk: Disk, action: str) -> Iterator[None]:
    lock = lock_store(disk)
    try:
        yield
    except OSError as error:
        raise StoreUnusable(f"{disk}: {action} failed: {error}") from error
    finally:
        lock.release()


# ---------------------------------------------------------------------------------- cutting


def cut_log(disk: Disk, config: StoreConfig, end: int, on_step: OnStep = lambda: None) -> None:
    """Cut the log of a closed folder at `end`, the end of a record. Durable on return. Does nothing
    if the log is not that long. Blocks.

    A folder that was not closed properly may also be cut: a full disk, on which derived files fall
    behind, must not keep a replica from cutting what no other replica has. The next start treats
    the folder as crashed either way.

    Raises:
        ValueError: the log begins after `end`; nothing was changed.
        StoreLocked: another process uses the folder.
        StoreUnusable: the disk failed.
    """
    with _locked(disk, f"cutting the log at {end}"):
        complete_begin(disk, config)
        was_closed = not was_left_running(disk)
        segments = load_segments(disk, config.segment_bytes, read_only=False)
        if not segments or end >= segments[-1].end:
            return
        if end < segments[0].base:
            raise ValueError(f"the log begins at {segments[0].base}, it cannot be cut at {end}")
        if was_closed:
            # The next start must expect derived files that extend too far, and no damage.
            mark_running(disk)
        write_checkpoint(disk, _checkpoint_of_cut(disk, segments, end))
        disk.fsync_directory("")
        # Each removal by itself: a later segment without the one before would be a hole.
        while segments[-1].base > end:
            disk.remove(segments.pop().path)
            disk.fsync_directory(COMMIT_LOG_DIRECTORY)
            on_step()
        active = segments[-1]
        active.wrote = end - active.base
        clear_behind(disk, active, read_only=False)
        sync_segments(disk, [active] if was_closed else segments)


def _checkpoint_of_cut(disk: Disk, segments: Sequence[Segment], end: int) -> Checkpoint:
    """A checkpoint valid for the cut log. What is appended later may have earlier times than what
    was cut off, by another broker's clock; so it contains only times that the log keeps."""
    checkpoint = load_checkpoint(disk)
    kept = [segment for segment in segments if segment.base < end]
    kept_ms = first_store_timestamp_ms(disk, kept[-1]) if kept else 0
    return replace(
        checkpoint,
        physic_msg_timestamp=min(checkpoint.physic_msg_timestamp, kept_ms),
        logics_msg_timestamp=min(checkpoint.logics_msg_timestamp, kept_ms),
        index_msg_timestamp=min(checkpoint.index_msg_timestamp, kept_ms),
        confirm_physical_offset=min(checkpoint.confirm_physical_offset, end),
    )


# ---------------------------------------------------------------------------------- emptying


def begin_log_at(
    disk: Disk, config: StoreConfig, position: int, on_step: OnStep = lambda: None
) -> None:
    """Replace the log of a closed folder, and everything derived from it, by an empty log that
    begins at `position`, the beginning of a segment. The epochs are removed, too; tables stay.

    Durable on return; repeat it after any error. Blocks.

    Raises:
        ValueError: no segment begins at `position`; nothing was changed.
        StoreLocked, StoreUnusable: another process uses the folder, or the disk failed.
    """
    if position < 0 or position % config.segment_bytes:
        raise ValueError(
            f"no segment of {config.segment_bytes} bytes begins at {position}, so the log cannot "
            "begin there"
        )
    with _locked(disk, f"letting the log begin at {position}"):
        file = disk.open_file(_NEW_BEGIN_FILE, create=True)
        file.truncate(0)
        file.write_at(0, (b"%d\n" % position,))
        file.datasync()
        file.close()
        disk.rename(_NEW_BEGIN_FILE, BEGIN_FILE)
        disk.fsync_directory("")
        complete_begin(disk, config, on_step)


def complete_begin(disk: Disk, config: StoreConfig, on_step: OnStep = lambda: None) -> None:
    """Complete an interrupted `begin_log_at`; does nothing without one. For a locked folder. Raises
    StoreUnusable, OSError."""
    if not disk.exists(BEGIN_FILE):
        return
    position = _read_begin(disk)
    for name in _DERIVED_FILES:
        if disk.exists(name):
            disk.remove(name)
    for name in _DERIVED_DIRECTORIES:
        _remove_tree(disk, name, on_step)
    for entry in disk.list(COMMIT_LOG_DIRECTORY):
        if not entry.is_directory:
            disk.remove(f"{COMMIT_LOG_DIRECTORY}/{entry.name}")
            on_step()
    remove_strays(disk)
    remove_epochs(disk)
    if disk.exists("config"):
        disk.fsync_directory("config")
    if position:
        _create_first_segment(disk, config, position)
    if disk.exists(COMMIT_LOG_DIRECTORY):
        disk.fsync_directory(COMMIT_LOG_DIRECTORY)
    disk.fsync_directory("")
    # From here on the folder is consistent by itself.
    disk.remove(BEGIN_FILE)
    disk.fsync_directory("")


def _read_begin(disk: Disk) -> int:
    try:
        return int(disk.read_file(BEGIN_FILE))
    except ValueError:
        raise StoreUnusable(
            f"{BEGIN_FILE} does not say where the log is to begin; the folder was being emptied: "
            "remove all of it and start the replica with an empty one"
        ) from None


def _create_first_segment(disk: Disk, config: StoreConfig, position: int) -> None:
    disk.make_directory(COMMIT_LOG_DIRECTORY)
    spare = create_spare(
        disk,
        spare_path(disk, COMMIT_LOG_DIRECTORY, "first"),
        config.segment_bytes,
        keep_free_bytes=config.disk_free_bytes_min,
    )
    spare.file.datasync()
    spare.file.close()
    disk.rename(spare.path, segment_path(position))


def _remove_tree(disk: Disk, path: str, on_step: OnStep) -> None:
    """Remove a directory with its content. One on a file system of its own is kept, empty."""
    for entry in disk.list(path):
        child = f"{path}/{entry.name}"
        if entry.is_directory:
            _remove_tree(disk, child, on_step)
        else:
            disk.remove(child)
            on_step()
    if not disk.exists(path):
        return
    if disk.is_apart(path):
        disk.fsync_directory(path)
    else:
        disk.remove_directory(path)
