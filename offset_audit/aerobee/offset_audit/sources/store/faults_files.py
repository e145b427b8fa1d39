"""Faults visible from names, lengths and small files: gaps between files, tables that do not
parse."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from threading import Event
from typing import Final

from aerobee.offset_audit.sources.store.config_files import parse_offsets, parse_topics
from aerobee.offset_audit.sources.store.faults import Fault, FaultKind, name_in
from aerobee.offset_audit.sources.store.faults_index import of_index_size, of_missing_sizes
from aerobee.offset_audit.sources.store.files import (
    QueueFiles,
    StoreFile,
    index_files,
    log_segments,
    queue_files,
)
from aerobee.offset_audit.sources.store.folders import COMMIT_LOG, CONFIG, StoreFolder
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.store.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, CheckpointIllegal
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.epoch_file import EPOCH_FILE, decode_epochs
from aerobee.store.format.json_config import parse_object
from aerobee.store.format.names import file_name
from aerobee.store.format.progress_file import CHECKS
from aerobee.store.format.timer_checkpoint import TimerCheckpoint
from aerobee.store.format.timer_wheel import WHEEL_SIZE

LOOK_AGAIN_S: Final = 0.2

_BACKUP: Final = ".bak"
_NO_TABLES: Final = (_BACKUP, ".tmp", "-temp")
_DECODERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "timercheck": TimerCheckpoint.decode,
    "consumerOffset.json": parse_offsets,
    "topics.json": parse_topics,
    **CHECKS,
}
_CHECKPOINT_FILE: Final = "checkpoint"
# The year 2200: no store time of a record is later.
_TIME_END_MS: Final = 7_258_118_400_000
# A log that lost its end ends slightly before its checkpoint; that is not a fault of the
# checkpoint.
_AHEAD_MS_MAX: Final = 24 * 3_600_000
# Names this far apart belong to no log: no more missing files than these are listed one by one.
_MISSING_MAX: Final = 10_000


def folder_faults(facts: StoreFacts) -> list[Fault]:
    """All of one store."""
    store = facts.store
    segments = log_segments(store)
    faults = list(_log_faults(facts, segments))
    faults += _queue_faults(facts, list(queue_files(store)))
    files = index_files(store)
    faults += of_missing_sizes(facts, files)
    for file in files:
        faults += of_index_size(facts, file)
    faults += _table_faults(store)
    faults += _checkpoint_faults(facts)
    return faults


# ---------------------------------------------------------------------------- sequences of files


def _log_faults(facts: StoreFacts, segments: Sequence[StoreFile]) -> Iterator[Fault]:
    size = facts.segment_bytes
    for segment in segments:
        name = name_in(facts.store, segment.path)
        if segment.base % size:
            text = f"its name is not a multiple of the segment length {size}"
            yield Fault(FaultKind.STRAY_FILE, name, segment.base, text)
        elif segment.size > size:
            # One that is too short shows up where the log's reader finds its end.
            text = f"the file has {segment.size} bytes, segments have {size}"
            yield Fault(FaultKind.BAD_FILE_SIZE, name, segment.base + size, text)
    for before, after in pairwise(segments):
        missing = range(before.base + size, after.base, size)
        for base in missing[:_MISSING_MAX]:
            yield Fault(
                FaultKind.MISSING_SEGMENT,
                f"{COMMIT_LOG}/{file_name(base)}",
                base,
                f"the file is missing; {os.path.basename(after.path)} follows",
                size=min(size, after.base - base),
            )


def _queue_faults(facts: StoreFacts, queues: Sequence[QueueFiles]) -> Iterator[Fault]:
    votes: Counter[int] = Counter()
    for queue in queues:
        votes.update(file.size for file in queue.files)
        votes.update(after.base - before.base for before, after in pairwise(queue.files))
    votes = Counter({size: count for size, count in votes.items() if size % ENTRY_SIZE == 0})
    if not votes:
        return
    usual = votes.most_common(1)[0][0]
    for queue in queues:
        for file in queue.files:
            if file.size != usual:
                yield Fault(
                    FaultKind.QUEUE_FILE_SIZE,
                    name_in(facts.store, file.path),
                    min(file.size, usual),
                    f"the file has {file.size} bytes, queue files have {usual}",
                    size=max(0, usual - file.size),
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    queue_offset=(file.base + min(file.size, usual)) // ENTRY_SIZE,
                )
        for before, after in pairwise(queue.files):
            for base in range(before.base + usual, after.base, usual)[:_MISSING_MAX]:
                folder = os.path.dirname(name_in(facts.store, after.path))
                yield Fault(
                    FaultKind.MISSING_FILE,
                    f"{folder}/{file_name(base)}",
                    0,
                    f"the file is missing; {os.path.basename(after.path)} follows",
                    size=usual,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    queue_offset=base // ENTRY_SIZE,
                )


# ----------------------------------------------------------------------------------- small files


def _table_faults(store: StoreFolder) -> Iterator[Fault]:
    """Tables that cannot be read, whether or not their backup can."""
    for name in _table_names(store):
        problem = _problem(store, f"{CONFIG}/{name}", _DECODERS.get(name, parse_object))
        if problem is not None:
            yield _bad_table(store, f"{CONFIG}/{name}", problem, _DECODERS.get(name, parse_object))
    if store.path(EPOCH_FILE).exists():
        problem = _problem(store, EPOCH_FILE, decode_epochs)
        if problem is not None:
            yield _bad_table(store, EPOCH_FILE, problem, decode_epochs)
    wheel = store.path("timerwheel")
    if wheel.exists() and wheel.stat().st_size != WHEEL_SIZE:
        text = f"a timer wheel has {WHEEL_SIZE} bytes, not {wheel.stat().st_size}"
        yield Fault(FaultKind.BAD_CONFIG, "timerwheel", 0, text)


def _table_names(store: StoreFolder) -> list[str]:
    """Tables that exist, or of which only a backup exists."""
    try:
        with os.scandir(store.path(CONFIG)) as entries:
            names = {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return []
    tables = {name for name in names if not name.endswith(_NO_TABLES)}
    backups = {name.removesuffix(_BACKUP) for name in names if name.endswith(_BACKUP)}
    return sorted(tables | backups)


def _bad_table(
    store: StoreFolder, path: str, problem: str, decode: Callable[[bytes], object]
) -> Fault:
    backup = _problem(store, path + _BACKUP, decode)
    text = (
        "its backup can be read"
        if backup is None
        else f"its backup cannot be read either: {backup}"
    )
    return Fault(FaultKind.BAD_CONFIG, path, None, f"{problem}; {text}")


def _problem(store: StoreFolder, path: str, decode: Callable[[bytes], object]) -> str | None:
    """Why a table cannot be read, now and a moment later; None if it can. Apache's broker
    overwrites its tables in place, so a single read may see half of one."""
    problem = _problem_now(store, path, decode)
    if problem is not None:
        Event().wait(LOOK_AGAIN_S)
        problem = _problem_now(store, path, decode)
    return problem


def _problem_now(store: StoreFolder, path: str, decode: Callable[[bytes], object]) -> str | None:
    try:
        data = store.path(path).read_bytes()
    except FileNotFoundError:
        return "the file is missing"
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    if not data.strip(b" \t\r\n\0"):
        return "the file is empty"
    try:
        decode(data)
    except ValueError as error:
        return str(error)
    return None


def _checkpoint_faults(facts: StoreFacts) -> Iterator[Fault]:
    try:
        data = facts.store.path(_CHECKPOINT_FILE).read_bytes()
    except OSError:
        return  # a start then reads the whole log

    def fault(text: str) -> Fault:
        return Fault(FaultKind.BAD_CHECKPOINT, _CHECKPOINT_FILE, 0, text)

    if len(data) != CHECKPOINT_SIZE:
        yield fault(f"the file has {len(data)} bytes, not {CHECKPOINT_SIZE}")
        return
    try:
        checkpoint = Checkpoint.decode(data)
    except CheckpointIllegal as error:
        yield fault(str(error))
        return
    times = (
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
    )
    if min(times) < 0 or max(times) >= _TIME_END_MS or checkpoint.confirm_physical_offset < 0:
        yield fault(f"its values are impossible: {times}, {checkpoint.confirm_physical_offset}")
    elif facts.last_stored_ms and max(times) > facts.last_stored_ms + _AHEAD_MS_MAX:
        yield fault(
            f"its newest time is {max(times)}, the last record's {facts.last_stored_ms}: "
            "recovery after a crash may read too little"
        )
