"""`aerobee store stats`: how much of what a store folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aerobee.cli.moments import timestamp_text
from aerobee.cli.output import counted, json_option, print_json, print_table, say
from aerobee.cli.store_tools.folder_argument import (
    folder_options,
    open_folder,
    progress_bar,
    store_failures,
)
from aerobee.cli.store_tools.stats_document import index_documents, stats_document
from aerobee.cli.store_tools.stats_reader import QueueReader, walk_log
from aerobee.store_repair.findings import Findings
from aerobee.store_repair.folder import inspect_folder

_MIB = 1 << 20


@click.command("stats")
@folder_options
@click.option("--full", is_flag=True, help="Walk the log and the index too.")
@click.option("--queues", "show_queues", is_flag=True, help="List each queue.")
@json_option
def store_stats(
    folder: Path, config: tuple[str, ...], full: bool, show_queues: bool, as_json: bool
) -> None:
    """Print how much FOLDER holds: by topic, queue and group, ours or Apache's.

    Only the queue files are read, unless --full is given. Nothing is written, and a broker may be
    using the folder; then the messages of its last seconds are not in the files yet.
    """
    with store_failures(folder):
        disk, store_configuration = open_folder(folder, config)
        found = inspect_folder(disk, store_configuration, Findings(), is_locked_by_us=False)
        reader = QueueReader(found)
        queues = reader.read()
        log = None
        if full:
            with progress_bar(f"reading {folder}") as on_progress:
                log = walk_log(found, on_progress)
        document = stats_document(found, disk, queues, reader.largest, log)
        document["index"] = index_documents(disk, store_configuration, chains=full)
    if as_json:
        print_json(document)
    else:
        _print(document, show_queues=show_queues)


def _print(document: dict[str, Any], *, show_queues: bool) -> None:
    disk, log = document["disk"], document["log"]
    say(
        f"log: {counted(log['segments'], 'segment')} of {log['segmentBytes']} bytes, from "
        f"{log['minOffset']} to {log['filesEnd']}; queue files {_mib(disk['queueBytes'])}, index "
        f"{_mib(disk['indexBytes'])}, config {_mib(disk['configBytes'])}"
    )
    say(f"disk: {_mib(disk['freeBytes'])} of {_mib(disk['totalBytes'])} free")
    say(f"messages: {document['messages']:,} with {counted(document['messageBytes'], 'byte')}")
    _print_topics(document["topics"])
    if show_queues:
        _print_queues(document["queues"])
    _print_groups(document["groups"])
    _print_largest(document["largest"])
    _print_index(document["index"])
    if "walk" in document:
        _print_walk(document["walk"])


def _print_topics(topics: list[dict[str, Any]]) -> None:
    say()
    print_table(
        ("topic", "queues", "messages", "bytes", "average", "first stored", "last stored", "per s"),
        [
            (
                topic["topic"],
                topic["queues"],
                topic["messages"],
                topic["bytes"],
                topic["averageSize"],
                _moment(topic["firstStored"]),
                _moment(topic["lastStored"]),
                topic["messagesPerSecond"],
            )
            for topic in topics
        ],
    )


def _print_queues(queues: list[dict[str, Any]]) -> None:
    say()
    print_table(
        ("topic", "queue", "min", "max", "messages", "bytes", "last stored"),
        [
            (
                queue["topic"],
                queue["queue"],
                queue["minOffset"],
                queue["maxOffset"],
                queue["messages"],
                queue["bytes"],
                queue.get("problem") or _moment(queue["lastStored"]),
            )
            for queue in queues
        ],
    )


def _print_groups(groups: list[dict[str, Any]]) -> None:
    if groups:
        say()
        print_table(
            ("group", "topic", "queues", "lag"),
            [
                (group["group"], group["topic"], len(group["queues"]), group["lag"])
                for group in groups
            ],
        )


def _print_largest(largest: list[dict[str, Any]]) -> None:
    if largest:
        say()
        print_table(
            ("largest", "topic", "queue", "offset", "log position"),
            [
                (
                    message["size"],
                    message["topic"],
                    message["queue"],
                    message["offset"],
                    message["physicalOffset"],
                )
                for message in largest
            ],
        )


def _print_index(index: list[dict[str, Any]]) -> None:
    if index:
        say()
        print_table(
            ("index file", "keys", "room", "used slots", "slots", "longest chain"),
            [
                (
                    file["file"],
                    file.get("keys"),
                    file.get("room"),
                    file.get("usedSlots"),
                    file.get("slots"),
                    file.get("problem") or file.get("longestChain"),
                )
                for file in index
            ],
        )


def _print_walk(walk: dict[str, Any]) -> None:
    say()
    say(
        f"walk: {counted(walk['records'], 'record')} up to {walk['maxOffset']}, "
        f"{walk['unqueued']} in no queue, {walk['compressed']} compressed, "
        f"{counted(walk['propertyBytes'], 'byte')} of properties, "
        f"{counted(walk['damagedRegions'], 'damaged place')}"
    )
    print_table(
        ("hour", "records"),
        [(_moment(hour["hour"]), hour["records"]) for hour in walk["recordsByHour"]],
    )


def _moment(timestamp_ms: int) -> str | None:
    return timestamp_text(timestamp_ms) if timestamp_ms else None


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
