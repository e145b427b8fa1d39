"""What a store's last checkpoint says: up to where its files are complete, and, if our broker wrote
it, what each queue held, so that a queue whose files were cut or lost is not mistaken for a shorter
one.
"""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.offset_audit.sources.store.folders import StoreFolder
from aerobee.store.engine.queues.queue_ends import (
    QUEUE_ENDS_FILE,
    QueueEnd,
    decode_queue_ends,
)
from aerobee.store.format.checkpoint import Checkpoint, CheckpointIllegal


def read_checkpoint(store: StoreFolder) -> Checkpoint | None:
    """None where there is none that can be read."""
    try:
        return Checkpoint.decode(store.path("checkpoint").read_bytes())
    except (OSError, CheckpointIllegal):
        return None


def read_known_ends(store: StoreFolder) -> Mapping[tuple[str, int], QueueEnd]:
    """By topic and queue id; empty if the file is not valid together with the checkpoint."""
    checkpoint = read_checkpoint(store)
    if checkpoint is None:
        return {}
    try:
        return decode_queue_ends(store.path(QUEUE_ENDS_FILE).read_bytes(), checkpoint).queues
    except (OSError, ValueError):
        return {}
