"""What recovery knows before it reads the log: the checkpoint, and where to begin."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.store.disk import Disk
from aerobee.broker.store.flush_work import CHECKPOINT_FILE
from aerobee.broker.store.log.segment import Segment
from aerobee.store_format.checkpoint import Checkpoint, CheckpointIllegal
from aerobee.store_format.record import Record, RecordCorrupt

# The most that a record's head takes: everything in front of the body, both hosts IPv6.
_HEAD_BYTES = 112
# The year 2248: a checkpoint after it is garbage.
_TIMESTAMP_END_MS = 1 << 43


def load_checkpoint(disk: Disk) -> Checkpoint:
    """The checkpoint; all zero, which means "begin at the oldest file", for anything unusable."""
    try:
        checkpoint = Checkpoint.decode(disk.read_file(CHECKPOINT_FILE))
    except (OSError, CheckpointIllegal):
        return Checkpoint()
    times = (
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
    )
    if min(times) < 0 or max(times) >= _TIMESTAMP_END_MS or checkpoint.confirm_physical_offset < 0:
        return Checkpoint()
    return checkpoint


def first_segment_after_close(segments: Sequence[Segment], queues_physical_end: int) -> int:
    """Index of the last segment that begins at or below what the queues know of the log."""
    for index in range(len(segments) - 1, 0, -1):
        if segments[index].base <= queues_physical_end:
            return index
    return 0


def first_segment_after_crash(
    disk: Disk, segments: Sequence[Segment], checkpoint: Checkpoint
) -> int:
    """Index of the newest segment that begins with a record stored before the checkpoint."""
    flushed_ms = checkpoint.min_timestamp()
    for index in range(len(segments) - 1, 0, -1):
        store_timestamp_ms = first_store_timestamp_ms(disk, segments[index])
        if 0 < store_timestamp_ms <= flushed_ms:
            return index
    return 0


def first_store_timestamp_ms(disk: Disk, segment: Segment) -> int:
    """Of the segment's first record; 0 if it does not begin with one."""
    file = disk.open_file(segment.path, read_only=True)
    size = int.from_bytes(file.read_at(0, 4), "big", signed=True)
    if not _HEAD_BYTES <= size <= segment.size:
        size = _HEAD_BYTES
    try:
        return Record(file.read_at(0, size)).store_timestamp_ms
    except RecordCorrupt:
        return 0
