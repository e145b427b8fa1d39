"""The small files: checkpoint, abort marker, queue ends, and the JSON tables in `config/`.

A table is read as the broker reads it, including its backup. Consumer offsets are compared with the
queues once these are known.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from aerobee.store.engine.disk import Disk
from aerobee.store.engine.folder_state import ABORT_FILE, CHECKPOINT_FILE
from aerobee.store.engine.log.segment_supply import SPARE_PREFIX
from aerobee.store.engine.queues.queue_ends import (
    QUEUE_ENDS_FILE,
    QueueEnd,
    read_queue_ends,
)
from aerobee.store.engine.tables.atomic_file import BACKUP_SUFFIX, TEMPORARY_SUFFIX
from aerobee.store.engine.tables.config_tables import (
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    SubscriptionGroupTable,
    TopicTable,
)
from aerobee.store.engine.tables.consumer_offset_table import (
    CONSUMER_OFFSETS_PATH,
    ConsumerOffsetTable,
)
from aerobee.store.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, CheckpointIllegal
from aerobee.store.format.json_config import parse_object
from aerobee.store.format.progress_file import CHECKS
from aerobee.store.repair.damage import Damage, QueueName
from aerobee.store.repair.findings import Findings, Kind
from aerobee.store.repair.folder import Folder
from aerobee.store.repair.queue_cursor import QueueCursor

CONFIG_DIRECTORY = "config"
# Not JSON.
_BINARY_FILES = frozenset({"timercheck", *CHECKS})
_READERS: Mapping[str, Callable[[bytes], object]] = {
    TOPICS_PATH: TopicTable.load,
    SUBSCRIPTION_GROUPS_PATH: SubscriptionGroupTable.load,
    CONSUMER_OFFSETS_PATH: ConsumerOffsetTable.load,
}
# The year 2248: a checkpoint after it is garbage.
_TIMESTAMP_END_MS = 1 << 43
_TRIES = 5

KnownEnds = Mapping[QueueName, QueueEnd]
"""What each queue's files held as of the checkpoint."""


def read_marks(
    folder: Folder, findings: Findings, damage: Damage
) -> tuple[Checkpoint, KnownEnds | None, bool]:
    """Checkpoint, queue ends if they belong to it, and whether `abort` is there."""
    disk = folder.disk
    checkpoint, ends = _read_checkpoint_and_ends(folder)
    is_aborted = disk.exists(ABORT_FILE)
    if is_aborted and not folder.is_live:
        findings.add(Kind.ABORT_PRESENT, ABORT_FILE, "the file `abort` is there")
    if not folder.is_live:
        for entry in disk.list(""):
            if entry.name.startswith(SPARE_PREFIX) and not entry.is_directory:
                findings.add(Kind.SPARE_FILE, entry.name, f"it has {entry.size_bytes} bytes")
    if checkpoint is None:
        _report_checkpoint(folder, findings, damage)
        return Checkpoint(), None, is_aborted
    if disk.exists(QUEUE_ENDS_FILE) and ends is None and not folder.is_live and folder.segments:
        findings.add(Kind.QUEUE_ENDS_UNREADABLE, QUEUE_ENDS_FILE, "it does not count")
    _check_begin(folder, ends or {}, findings)
    for name in ("consumequeue_ext", "batchconsumequeue"):
        if disk.list(name):
            findings.add(Kind.NOT_CHECKED, name, "only the names are known here")
    return checkpoint, ends, is_aborted


def _check_begin(folder: Folder, ends: KnownEnds, findings: Findings) -> None:
    """Whether the log has lost its oldest segments since the last checkpoint."""
    first = min(
        (end.min_position for end in ends.values() if end.min_position >= 0 and end.end),
        default=folder.log_min_offset,
    )
    if first < folder.log_min_offset and not folder.is_live:
        findings.add(
            Kind.LOG_BEGIN_MISSING,
            folder.segments[0].name,
            f"the log begins at {folder.log_min_offset}, but at the last checkpoint queues led "
            f"to records from {first} on",
        )


def _read_checkpoint_and_ends(folder: Folder) -> tuple[Checkpoint | None, KnownEnds | None]:
    """On a live folder the two are replaced one after the other: read until they match."""
    for _ in range(_TRIES if folder.is_live else 1):
        checkpoint = _decode(folder.disk)
        if checkpoint is None:
            return None, None
        ends = read_queue_ends(folder.disk, checkpoint)
        if ends.counts:
            return checkpoint, ends.queues
    return checkpoint, None


def _decode(disk: Disk) -> Checkpoint | None:
    try:
        checkpoint = Checkpoint.decode(disk.read_file(CHECKPOINT_FILE))
    except (OSError, CheckpointIllegal):
        return None
    times = (
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
    )
    if min(times) < 0 or max(times) >= _TIMESTAMP_END_MS or checkpoint.confirm_physical_offset < 0:
        return None
    return checkpoint


def _report_checkpoint(folder: Folder, findings: Findings, damage: Damage) -> None:
    if not folder.disk.exists(CHECKPOINT_FILE):
        if folder.segments:
            findings.add(Kind.CHECKPOINT_MISSING, CHECKPOINT_FILE, "the file is missing")
        return
    damage.checkpoint_problem = "it cannot be read"
    size = len(folder.disk.read_file(CHECKPOINT_FILE))
    text = f"it has {size} bytes" if size != CHECKPOINT_SIZE else "its values are impossible"
    findings.add(Kind.CHECKPOINT_UNREADABLE, CHECKPOINT_FILE, text)


def check_checkpoint(
    folder: Folder,
    checkpoint: Checkpoint,
    last_timestamp_ms: int,
    findings: Findings,
    damage: Damage,
) -> None:
    """Checks it against the log, which has been read."""
    if folder.is_live or not folder.segments:
        return
    newest = max(
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
    )
    if newest > last_timestamp_ms and not damage.regions and last_timestamp_ms:
        text = f"its newest time is {newest}, the last record's {last_timestamp_ms}"
        damage.checkpoint_problem = damage.checkpoint_problem or text
        findings.add(Kind.CHECKPOINT_AHEAD, CHECKPOINT_FILE, text)


def check_tables(folder: Folder, findings: Findings, damage: Damage) -> None:
    """Every JSON table parses, or its backup does."""
    names = {
        entry.name.removesuffix(BACKUP_SUFFIX)
        for entry in folder.disk.list(CONFIG_DIRECTORY)
        if not entry.is_directory and not entry.name.endswith(TEMPORARY_SUFFIX)
    }
    for name in sorted(names - _BINARY_FILES):
        path = f"{CONFIG_DIRECTORY}/{name}"
        problem = problem_of(folder.disk, path)
        if problem is None:
            continue
        backup_problem = problem_of(folder.disk, path + BACKUP_SUFFIX, of=path)
        if backup_problem is None:
            damage.config_from_backup.append(path)
            findings.add(Kind.CONFIG_FROM_BACKUP, path, problem)
        elif path not in _READERS and not _has_content(problem, backup_problem):
            continue  # it is never read, and there is nothing to read
        else:
            damage.config_unreadable.append(path)
            findings.add(Kind.CONFIG_UNREADABLE, path, f"{problem}; {backup_problem}")


def _has_content(*problems: str) -> bool:
    return not all(problem.endswith((" is empty", " is missing")) for problem in problems)


def problem_of(disk: Disk, path: str, *, of: str | None = None) -> str | None:
    """Why the table at `path` cannot be read (as the table `of`); None if it can."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if not data.strip(b" \t\r\n\0"):
        return f"{path} is empty"
    try:
        _READERS.get(of or path, parse_object)(data)
    except ValueError as error:
        return f"{path}: {error}"
    return None


def check_consumer_offsets(
    folder: Folder,
    cursors: Mapping[QueueName, QueueCursor],
    findings: Findings,
    *,
    unsettled: Container[str] = (),
) -> None:
    """Groups must be neither ahead of their queues nor before removed messages; topics that are
    `unsettled` are skipped."""
    if folder.is_live:
        return  # the in-memory part of the queues is not known here
    for group, topic, queue_id, offset in consumer_offsets(folder.disk):
        if topic in unsettled:
            continue
        cursor = cursors.get((topic, queue_id))
        end = cursor.end if cursor is not None else 0
        first = cursor.min_offset if cursor is not None else 0
        at = f"group {group} will consume offset {offset} of queue {queue_id} of {topic}"
        if offset > end:
            findings.add(
                Kind.CONSUMER_OFFSET_AHEAD,
                CONSUMER_OFFSETS_PATH,
                f"{at}, which ends at {end}",
                group=group,
                topic=topic,
                queue=queue_id,
                offset=offset,
            )
        elif offset < first:
            findings.add(
                Kind.CONSUMER_OFFSET_REMOVED,
                CONSUMER_OFFSETS_PATH,
                f"{at}, which begins at {first}",
                group=group,
                topic=topic,
                queue=queue_id,
                offset=offset,
            )


def consumer_offsets(disk: Disk) -> list[tuple[str, str, int, int]]:
    """(group, topic, queue id, next offset) of each group as the broker would read them."""
    for path in (CONSUMER_OFFSETS_PATH, CONSUMER_OFFSETS_PATH + BACKUP_SUFFIX):
        try:
            table = ConsumerOffsetTable.load(disk.read_file(path))
        except (OSError, ValueError):
            continue
        return [
            (group, topic, queue_id, offset)
            for group in table.groups()
            for topic, queues in table.of_group(group).items()
            for queue_id, offset in queues.items()
        ]
    return []
