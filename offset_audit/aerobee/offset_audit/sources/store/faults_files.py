"""Faults visible from names, lengths and small files: gaps between files, a checkpoint that cannot
be."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from aerobee.offset_audit.sources.store.faults import Fault, FaultKind, name_in
from aerobee.offset_audit.sources.store.faults_index import of_index_size, of_missing_sizes
from aerobee.offset_audit.sources.store.faults_tables import table_faults
from aerobee.offset_audit.sources.store.faults_timers import timer_faults
from aerobee.offset_audit.sources.store.files import (
    QueueFiles,
    StoreFile,
    index_files,
    log_segments,
    queue_files,
)
from aerobee.offset_audit.sources.store.folders import COMMIT_LOG
from aerobee.offset_audit.sources.store.known_ends import read_known_ends
from aerobee.offset_audit.sources.store.ranges_facts import StoreFacts
from aerobee.store.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, CheckpointIllegal
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.names import file_name

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
    faults += table_faults(store, is_clean=facts.is_clean)
    faults += timer_faults(facts)
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
    yield from _lost_begin(facts, segments)
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


def _lost_begin(facts: StoreFacts, segments: Sequence[StoreFile]) -> Iterator[Fault]:
    """Retention removes segments, and then what queues have of them: a broker that stopped cleanly
    leaves both as they are, unless it was between the two."""
    if not facts.is_clean or not segments:
        return
    begin = segments[0].base
    lost = [
        known.min_position
        for known in read_known_ends(facts.store).values()
        if 0 <= known.min_position < begin and known.min_offset < known.end
    ]
    if lost:
        first = min(lost)
        base = first - first % facts.segment_bytes
        text = (
            f"the log begins at byte {begin}, but {len(lost)} of its queues at earlier ones: "
            "segments are lost, unless retention was at work when the broker stopped"
        )
        yield Fault(FaultKind.LOST_BEGIN, f"{COMMIT_LOG}/{file_name(base)}", first, text)


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


# ------------------------------------------------------------------------------- the checkpoint


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
