"""The figures of a store as one JSON document."""

from __future__ import annotations

from typing import Any

import numpy as np

from aerobee.broker.store.config import StoreConfig
from aerobee.broker.store.disk import RealDisk
from aerobee.broker.store.index.index_files import index_path, is_index_name
from aerobee.cli.store_tools.stats_reader import (
    LargeMessage,
    LogFigures,
    QueueFigures,
    tree_bytes,
)
from aerobee.store_format.index_file import (
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    IndexGeometry,
    IndexHeader,
)
from aerobee.store_repair.folder import Folder
from aerobee.store_repair.tables_check import consumer_offsets

_ENTRIES_PER_READ = 1_000_000


def stats_document(
    folder: Folder,
    disk: RealDisk,
    queues: list[QueueFigures],
    largest: list[LargeMessage],
    log: LogFigures | None,
) -> dict[str, Any]:
    """All but the index."""
    return {
        "live": folder.is_live,
        "disk": {
            "freeBytes": disk.free_bytes(),
            "totalBytes": disk.total_bytes(),
            **{
                f"{name}Bytes": tree_bytes(disk, path)
                for name, path in (
                    ("log", "commitlog"),
                    ("queue", "consumequeue"),
                    ("index", "index"),
                    ("config", "config"),
                )
            },
        },
        "log": {
            "segments": len(folder.segments),
            "segmentBytes": folder.segment_bytes,
            "minOffset": folder.log_min_offset,
            "filesEnd": folder.log_files_end,
        },
        "messages": sum(queue.messages for queue in queues),
        "messageBytes": sum(queue.bytes for queue in queues),
        "topics": _topics(queues),
        "queues": [_queue(queue) for queue in queues],
        "largest": [
            {
                "size": message.size,
                "topic": message.topic,
                "queue": message.queue_id,
                "offset": message.offset,
                "physicalOffset": message.position,
            }
            for message in largest
        ],
        "groups": _groups(disk, queues),
        **({"walk": _walk(log)} if log is not None else {}),
    }


def _topics(queues: list[QueueFigures]) -> list[dict[str, Any]]:
    topics: dict[str, list[QueueFigures]] = {}
    for queue in queues:
        topics.setdefault(queue.topic, []).append(queue)
    return [_topic(topic, parts) for topic, parts in topics.items()]


def _topic(topic: str, parts: list[QueueFigures]) -> dict[str, Any]:
    messages = sum(queue.messages for queue in parts)
    size = sum(queue.bytes for queue in parts)
    first_ms = min((queue.first_ms for queue in parts if queue.first_ms), default=0)
    last_ms = max((queue.last_ms for queue in parts), default=0)
    return {
        "topic": topic,
        "queues": len(parts),
        "messages": messages,
        "bytes": size,
        "averageSize": round(size / messages) if messages else 0,
        "firstStored": first_ms,
        "lastStored": last_ms,
        "messagesPerSecond": _rate(messages, last_ms - first_ms),
        "bytesPerSecond": _rate(size, last_ms - first_ms),
    }


def _rate(count: int, duration_ms: int) -> float | None:
    """Per second between the first and the last; None if that is no time."""
    return round(count * 1_000 / duration_ms, 1) if duration_ms > 0 else None


def _queue(queue: QueueFigures) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queue": queue.queue_id,
        "minOffset": queue.min_offset,
        "maxOffset": queue.max_offset,
        "messages": queue.messages,
        "bytes": queue.bytes,
        "firstStored": queue.first_ms,
        "lastStored": queue.last_ms,
        **({"problem": queue.problem} if queue.problem else {}),
    }


def _groups(disk: RealDisk, queues: list[QueueFigures]) -> list[dict[str, Any]]:
    known = {(queue.topic, queue.queue_id): queue for queue in queues}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for group, topic, queue_id, offset in sorted(consumer_offsets(disk)):
        queue = known.get((topic, queue_id))
        end = queue.max_offset if queue is not None else 0
        begin = queue.min_offset if queue is not None else 0
        groups.setdefault((group, topic), []).append(
            {
                "queue": queue_id,
                "offset": offset,
                "maxOffset": end,
                "lag": max(0, end - max(offset, begin)),
            }
        )
    return [
        {
            "group": group,
            "topic": topic,
            "lag": sum(part["lag"] for part in parts),
            "queues": parts,
        }
        for (group, topic), parts in groups.items()
    ]


def _walk(log: LogFigures) -> dict[str, Any]:
    return {
        "maxOffset": log.end,
        "records": log.records,
        "recordBytes": log.record_bytes,
        "unqueued": log.unqueued,
        "compressed": log.compressed,
        "propertyBytes": log.property_bytes,
        "damagedRegions": log.damaged_regions,
        "firstStored": log.first_ms,
        "lastStored": log.last_ms,
        "recordsByHour": [
            {"hour": hour * 3_600_000, "records": count}
            for hour, count in sorted(log.by_hour.items())
        ],
    }


def index_documents(disk: RealDisk, config: StoreConfig, *, chains: bool) -> list[dict[str, Any]]:
    """How full each index file is; with `chains` all entries are read."""
    geometry = IndexGeometry(config.index_slots_max, config.index_entries_max)
    documents: list[dict[str, Any]] = []
    for entry in disk.list("index"):
        if entry.is_directory or not is_index_name(entry.name):
            continue
        if entry.size_bytes != geometry.file_bytes:
            documents.append({"file": entry.name, "problem": f"it has {entry.size_bytes} bytes"})
            continue
        file = disk.open_file(index_path(entry.name), read_only=True)
        header = IndexHeader.decode(file.read_at(0, HEADER_SIZE))
        document: dict[str, Any] = {
            "file": entry.name,
            "keys": header.count - 1,
            "room": geometry.entries - 1,
            "slots": geometry.slots,
            "usedSlots": header.used_slots,
            "beginOffset": header.begin_physical_offset,
            "endOffset": header.end_physical_offset,
        }
        if chains:
            lengths = np.zeros(geometry.slots, np.int32)
            for number in range(1, header.count, _ENTRIES_PER_READ):
                count = min(_ENTRIES_PER_READ, header.count - number)
                data = file.read_at(geometry.entry_at(number), count * INDEX_ENTRY_SIZE)
                hashes = np.frombuffer(data, INDEX_ENTRY_DTYPE)["hash"].astype(np.int64)
                lengths += np.bincount(
                    np.maximum(hashes, 0) % geometry.slots, minlength=geometry.slots
                ).astype(np.int32)
            used = int(np.count_nonzero(lengths))
            document["longestChain"] = int(lengths.max())
            document["averageChain"] = round(int(lengths.sum()) / used, 2) if used else 0.0
        file.close()
        documents.append(document)
    return documents
