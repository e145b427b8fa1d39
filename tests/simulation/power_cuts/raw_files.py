"""The content of the files, read without the store: only byte layouts are taken from it."""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.store.format.checkpoint import Checkpoint, CheckpointIllegal
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE, unpack_entry
from tests.simulation.judge import expect
from tests.simulation.power_cuts.model import Model, Sent

Files = Mapping[str, bytes]


def check_checkpoint_is_not_ahead(files: Files, model: Model) -> None:
    """Everything that the checkpoint counts as done is in the files."""
    try:
        checkpoint = Checkpoint.decode(files.get("checkpoint", b""))
    except CheckpointIllegal:
        return
    flushed_end = checkpoint.confirm_physical_offset
    log = _by_base(files, "commitlog/")
    for sent in model.sent:
        if sent.start < max(model.min_offsets):
            continue
        # Some of the records that share the last timestamp may come after the checkpoint.
        flushed = sent.end <= flushed_end
        flushed |= sent.store_timestamp_ms < checkpoint.physic_msg_timestamp
        if flushed:
            expect(
                _log_bytes(log, sent) == sent.data,
                f"the checkpoint (flushed end {flushed_end}) is ahead of the log: {sent} is not "
                "in its file",
            )
        if sent.store_timestamp_ms < checkpoint.logics_msg_timestamp:
            expect(
                sent.queue_offset is None
                or sent.start < model.end_position(sent.topic)
                or _entry_points_to(files, sent),
                f"the checkpoint (queues up to {checkpoint.logics_msg_timestamp}) is ahead of the "
                f"consume queue: the entry of {sent} is not in its file",
            )


def check_queue_files_are_whole(
    files: Files, entries_per_file: int, min_offsets: Mapping[str, int]
) -> None:
    """Each queue's files are of one length, and each holds an entry; from the one with the queue's
    first message on, they have no gap. (Removals of earlier ones may have been lost one by one.)"""
    queues: dict[str, dict[int, bytes]] = {}
    for path, data in files.items():
        if path.startswith("consumequeue/"):
            folder, _, name = path.rpartition("/")
            queues.setdefault(folder, {})[int(name)] = data
    size = entries_per_file * ENTRY_SIZE
    for folder, by_base in queues.items():
        first = min_offsets.get(folder, 0) * ENTRY_SIZE
        bases = sorted(base for base in by_base if base + size > first)
        expect(
            not bases or bases == list(range(bases[0], bases[0] + len(bases) * size, size)),
            f"the files of {folder} have a gap: {bases}",
        )
        for base, data in by_base.items():
            expect(len(data) == size, f"{folder} {base} has {len(data)} bytes, not {size}")
            expect(any(data), f"{folder} {base} has no entry")


def _by_base(files: Files, prefix: str) -> dict[int, bytes]:
    return {
        int(path.rpartition("/")[2]): data
        for path, data in files.items()
        if path.startswith(prefix)
    }


def _log_bytes(log: Mapping[int, bytes], sent: Sent) -> bytes:
    for base, data in log.items():
        if base <= sent.start < base + len(data):
            return data[sent.start - base : sent.end - base]
    return b""


def _entry_points_to(files: Files, sent: Sent) -> bool:
    assert sent.queue_offset is not None
    position = sent.queue_offset * ENTRY_SIZE
    prefix = f"consumequeue/{sent.topic}/{sent.queue_id}/"
    for base, data in _by_base(files, prefix).items():
        if base <= position < base + len(data):
            entry = unpack_entry(data[position - base : position - base + ENTRY_SIZE])
            return entry[:2] == (sent.start, sent.end - sent.start)
    return False
