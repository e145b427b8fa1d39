"""`aerobee store stats`: how much of what a store folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from aerobee.cli.moments import timestamp_text
from aerobee.cli.options import json_option
from aerobee.cli.output import counted, print_documents, print_json, say
from aerobee.cli.store.folder import (
    INDEX_DIRECTORY,
    folder_options,
    open_folder,
    progress_bar,
    store_failures,
)
from aerobee.cli.store.stats_reader import (
    LargeMessage,
    LogFigures,
    QueueFigures,
    QueueReader,
    tree_bytes,
    walk_log,
)
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.index.index_files import index_path, is_index_name
from aerobee.store.format.index_file import (
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    IndexGeometry,
    IndexHeader,
)
from aerobee.store.repair.findings import Findings
from aerobee.store.repair.folder import Folder, inspect_folder
from aerobee.store.repair.tables_check import consumer_offsets

_MIB = 1 << 20
_ENTRIES_PER_READ = 1_000_000


@click.command("stats")
@folder_options
@click.option("--full", is_flag=True, help="Also read the log and the index.")
@click.option("--queues", "show_queues", is_flag=True, help="List each queue.")
@json_option
def store_stats(
    folder: Path, config: dict[str, str], full: bool, show_queues: bool, as_json: bool
) -> None:
    """Print how much FOLDER holds, by topic, queue and group.

    Reads only the queue files, unless --full is given. Writes nothing. A broker may be using the
    folder: the files then lack the messages of its last few seconds.
    """
    with store_failures(folder):
        disk, options = open_folder(folder, config)
        found = inspect_folder(disk, options.config, Findings(), is_locked_by_us=False)
        reader = QueueReader(found)
        queues = reader.read()
        log = None
        if full:
            with progress_bar(f"reading {folder}") as on_progress:
                log = walk_log(found, on_progress)
        document = _stats_document(found, disk, queues, reader.largest, log)
        document["index"] = _index_documents(disk, options.config, chains=full)
    if as_json:
        print_json(document)
    else:
        _print(document, show_queues=show_queues)


def _stats_document(
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
                    ("index", INDEX_DIRECTORY),
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


def _index_documents(disk: RealDisk, config: StoreConfig, *, chains: bool) -> list[dict[str, Any]]:
    """How full each index file is; with `chains` all entries are read."""
    geometry = IndexGeometry(config.index_slots_max, config.index_entries_max)
    documents: list[dict[str, Any]] = []
    for entry in disk.list(INDEX_DIRECTORY):
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


def _print(document: dict[str, Any], *, show_queues: bool) -> None:
    disk, log = document["disk"], document["log"]
    say(
        f"log: {counted(log['segments'], 'segment')} of {log['segmentBytes']} bytes, from "
        f"{log['minOffset']} to {log['filesEnd']}; queue files {_mib(disk['queueBytes'])}, index "
        f"{_mib(disk['indexBytes'])}, config {_mib(disk['configBytes'])}"
    )
    say(f"disk: {_mib(disk['freeBytes'])} of {_mib(disk['totalBytes'])} free")
    say(f"messages: {document['messages']:,} with {counted(document['messageBytes'], 'byte')}")
    say()
    print_documents(
        document["topics"],
        {
            **{name: name for name in ("topic", "queues", "messages", "bytes")},
            "average": "averageSize",
            "first stored": lambda topic: _moment(topic["firstStored"]),
            "last stored": lambda topic: _moment(topic["lastStored"]),
            "per s": "messagesPerSecond",
        },
    )
    if show_queues:
        say()
        print_documents(
            document["queues"],
            {
                "topic": "topic",
                "queue": "queue",
                "min": "minOffset",
                "max": "maxOffset",
                "messages": "messages",
                "bytes": "bytes",
                "last stored": lambda queue: queue.get("problem") or _moment(queue["lastStored"]),
            },
        )
    if document["groups"]:
        say()
        print_documents(
            document["groups"],
            {
                "group": "group",
                "topic": "topic",
                "queues": lambda group: len(group["queues"]),
                "lag": "lag",
            },
        )
    if document["largest"]:
        say()
        print_documents(
            document["largest"],
            {
                "largest": "size",
                **{name: name for name in ("topic", "queue", "offset")},
                "log position": "physicalOffset",
            },
        )
    if document["index"]:
        say()
        print_documents(
            document["index"],
            {
                "index file": "file",
                "keys": "keys",
                "room": "room",
                "used slots": "usedSlots",
                "slots": "slots",
                "longest chain": lambda file: file.get("problem") or file.get("longestChain"),
            },
        )
    if "walk" in document:
        _print_walk(document["walk"])


def _print_walk(walk: dict[str, Any]) -> None:
    say()
    say(
        f"walk: {counted(walk['records'], 'record')} up to {walk['maxOffset']}, "
        f"{walk['unqueued']} in no queue, {walk['compressed']} compressed, "
        f"{counted(walk['propertyBytes'], 'byte')} of properties, "
        f"{counted(walk['damagedRegions'], 'damaged place')}"
    )
    print_documents(
        walk["recordsByHour"],
        {"hour": lambda hour: _moment(hour["hour"]), "records": "records"},
    )


def _moment(timestamp_ms: int) -> str | None:
    return timestamp_text(timestamp_ms) if timestamp_ms else None


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
