"""Apache's batch consume queues in a store folder, as they lie there.

Aerobee keeps these queues and does not serve them: a record of theirs holds several messages.
"""

from __future__ import annotations

import hashlib
from typing import Any

from aerobee.broker.store.disk import Disk
from aerobee.store_format.batch_consume_queue_entry import (
    BATCH_ENTRY_SIZE,
    scan_batch_entries,
)
from aerobee.store_format.names import is_file_name

BATCH_QUEUE_DIRECTORY = "batchconsumequeue"


def describe_batch_queues(disk: Disk) -> dict[str, Any]:
    """Topic -> queue id -> its bounds, how many records it has, and the digest of their entries."""
    topics: dict[str, Any] = {}
    for topic in disk.list(BATCH_QUEUE_DIRECTORY):
        for queue in disk.list(f"{BATCH_QUEUE_DIRECTORY}/{topic.name}"):
            folder = f"{BATCH_QUEUE_DIRECTORY}/{topic.name}/{queue.name}"
            topics.setdefault(topic.name, {})[queue.name] = _queue(disk, folder)
    return topics


def _queue(disk: Disk, folder: str) -> dict[str, Any]:
    digest = hashlib.sha256()
    bounds: dict[str, int] = {}
    count = 0
    for file in disk.list(folder):
        if file.is_directory or not is_file_name(file.name):
            continue
        data = disk.read_file(f"{folder}/{file.name}")
        entries = scan_batch_entries(data)
        digest.update(data[: len(entries) * BATCH_ENTRY_SIZE])
        count += len(entries)
        if entries:
            bounds.setdefault("minOffset", entries[0].base_offset)
            bounds["maxOffset"] = entries[-1].end_offset
            bounds["maxPhysicalOffset"] = entries[-1].physical_offset + entries[-1].size
    empty = {"minOffset": 0, "maxOffset": 0, "maxPhysicalOffset": 0}
    return {**empty, **bounds, "records": count, "entriesSha256": digest.hexdigest()}
