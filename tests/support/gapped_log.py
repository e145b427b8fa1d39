"""A folder whose log lacks messages in the middle of a queue, though all its records are intact."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.format.record_layout import QUEUE_OFFSET_AT
from tests.support.stores import batch_of, flush, open_store


def write_gapped_log(
    root: Path, config: StoreConfig, *, topic: str, messages: int, gap_at: int, missing: int
) -> None:
    """Queue 0 of `topic` has `messages` records; from `gap_at` on their queue offsets are too high
    by `missing`. The queue files are gone, so a broker rebuilds them from the log when it
    starts."""
    root.mkdir(parents=True, exist_ok=True)
    store = open_store(root, config, SystemClock())
    positions = []
    for number in range(messages):
        positions.append(store.appended_end)
        store.append(batch_of(topic, b"%d" % number), queue_id=0)
    store.confirm(store.appended_end)
    flush(store)
    store.close()
    (segment,) = (root / "commitlog").iterdir()
    with segment.open("r+b") as file:
        for number in range(gap_at, messages):
            file.seek(positions[number] + QUEUE_OFFSET_AT)
            file.write(struct.pack(">q", number + missing))
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
