"""A store folder as one document: what the log, each queue and the config files hold.

The folder is opened by the broker's own recovery, but for reading only: nothing is written, nothing
is locked, and a broker may be using it. Digests always cover everything, whatever is listed:
`recordsSha256` of the log is over all records in log order without blanks; a queue's is over its
records from minimum to maximum offset, `entriesSha256` over their 20-byte entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from aerobee.broker.store.disk import Disk, RealDisk
from aerobee.broker.store.errors import StoreDamaged, StoreUnusable
from aerobee.broker.store.log.segment import COMMIT_LOG_DIRECTORY
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.tables.atomic_file import read_with_backup
from aerobee.broker.store.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    ConsumerOffsetTable,
    SubscriptionGroupTable,
    TopicTable,
)
from aerobee.cli.store_message import describe_message
from aerobee.cli.store_options import store_config
from aerobee.runtime.clock import SystemClock
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE, unpack_entries
from aerobee.store_format.json_config import parse_object
from aerobee.store_format.record import Record
from aerobee.store_format.scan import ScanEnd, scan_records
from aerobee.store_format.tags import TagsCodes

DELAY_OFFSETS_PATH = "config/delayOffset.json"

_WALK_BYTES = 4 * 1024 * 1024
_ENTRIES_PER_READ = 4_096
_READ_BYTES = 8 * 1024 * 1024

OnProgress = Callable[[int, int], None]
"""Told the bytes done and the bytes in all."""


def dump_store(
    path: Path | str,
    config_overrides: Mapping[str, str],
    *,
    messages_every: int = 1,
    topics: Collection[str] = (),
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """What the store in the folder `path` holds, ready for JSON.

    Args:
        config_overrides: options under Apache's names; sizes not given are those of the files.
        messages_every: list each n-th message of a queue and its last; 0 lists none.
        topics: only these topics; empty means all.

    Raises InvalidArgument for an option, StoreUnusable for a folder that is no store, or damaged.
    """
    root = Path(path)
    if not root.is_dir():
        raise StoreUnusable(f"{root} is not a folder; name the store's root folder")
    disk = RealDisk(root)
    if not any(disk.exists(name) for name in ("commitlog", "consumequeue", "config")):
        raise StoreUnusable(
            f"{root} is no store: it has neither commitlog, consumequeue nor config in it"
        )
    config = store_config(disk, config_overrides)
    store = MessageStore.open(disk, SystemClock(), config, read_only=True)
    try:
        progress = _Progress(store, on_progress)
        return {
            "listedEvery": messages_every,
            "config": {
                "mappedFileSizeCommitLog": str(config.segment_bytes),
                "mappedFileSizeConsumeQueue": str(config.consume_queue_file_bytes),
            },
            **_config_files(disk),
            "commitLog": _commit_log(store, config.check_crc_on_recovery, progress),
            "topics": _topics(store, messages_every, frozenset(topics), progress),
        }
    finally:
        store.close()


class _Progress:
    """The log is read twice: once in its own order, once queue by queue."""

    def __init__(self, store: MessageStore, on_progress: OnProgress | None) -> None:
        self._total = 2 * (store.appended_end - store.min_offset)
        self._done = 0
        self._on_progress = on_progress

    def advance(self, size: int) -> None:
        self._done += size
        if self._on_progress is not None:
            self._on_progress(min(self._done, self._total), self._total)


def _commit_log(store: MessageStore, check_crc: bool, progress: _Progress) -> dict[str, Any]:
    digest = hashlib.sha256()
    count = 0
    for records, in_part in _record_runs(store, check_crc):
        digest.update(records)
        count += in_part
        progress.advance(len(records))
    return {
        "minOffset": store.min_offset,
        "maxOffset": store.appended_end,
        "segments": [
            {"name": segment.name, "wrotePosition": segment.wrote_position}
            for segment in store.segments()
        ],
        "records": count,
        "recordsSha256": digest.hexdigest(),
    }


def _record_runs(store: MessageStore, check_crc: bool) -> Iterator[tuple[memoryview, int]]:
    """All records of the log as runs of whole records, each with how many they are."""
    tags = TagsCodes()
    for segment in store.segments():
        position = segment.base
        end = segment.base + segment.wrote_position
        piece_bytes = _WALK_BYTES
        while position < end:
            piece = store.read([(position, min(piece_bytes, end - position))])
            scan = scan_records(piece, check_crc=check_crc, tags=tags)
            if scan.count:
                yield memoryview(piece)[: scan.valid_end], scan.count
            position += scan.valid_end
            cut_by_us = position - scan.valid_end + len(piece) < end
            if scan.end is ScanEnd.BLANK:
                break
            if scan.end is ScanEnd.TRUNCATED and cut_by_us:
                # A record that no piece holds as a whole needs a longer one.
                piece_bytes = _WALK_BYTES if scan.count else 2 * piece_bytes
            elif scan.end is not ScanEnd.BUFFER_END:
                raise _damaged(f"{COMMIT_LOG_DIRECTORY}/{segment.name}", position, scan.end)


def _damaged(segment: str, position: int, reason: ScanEnd) -> StoreDamaged:
    return StoreDamaged(
        f"{segment} is damaged at log position {position} ({reason}), in the middle of what was "
        "safely written; restore the file from a copy",
        segment=segment,
        position=position,
    )


def _topics(
    store: MessageStore, every: int, wanted: frozenset[str], progress: _Progress
) -> dict[str, Any]:
    topics: dict[str, Any] = {}
    for topic, queue_id in store.queue_names():
        if not wanted or topic in wanted:
            queue = _queue(store, topic, queue_id, every, progress)
            topics.setdefault(topic, {})[str(queue_id)] = queue
    return topics


def _queue(
    store: MessageStore, topic: str, queue_id: int, every: int, progress: _Progress
) -> dict[str, Any]:
    bounds = store.queue_bounds(topic, queue_id)
    entries_digest = hashlib.sha256()
    records_digest = hashlib.sha256()
    messages: list[dict[str, Any]] = []
    offset = bounds.min_offset
    while offset < bounds.max_offset:
        wanted = min(_ENTRIES_PER_READ, bounds.max_offset - offset)
        entries = store.queue_entries(topic, queue_id, offset, wanted)
        if not entries:
            raise StoreUnusable(
                f"the queue {topic}/{queue_id} has no entry at offset {offset}; its files are "
                "damaged: start a broker on a copy of the folder, which rebuilds them"
            )
        entries_digest.update(entries)
        for record, tags_code in _records(store, entries):
            records_digest.update(record.raw)
            last = offset == bounds.max_offset - 1
            if every > 0 and (last or (offset - bounds.min_offset) % every == 0):
                messages.append(describe_message(record, tags_code))
            progress.advance(record.size)
            offset += 1
    return {
        "minOffset": bounds.min_offset,
        "maxOffset": bounds.max_offset,
        "maxPhysicalOffset": bounds.max_physical_offset,
        "entriesSha256": entries_digest.hexdigest(),
        "recordsSha256": records_digest.hexdigest(),
        "messages": messages,
    }


def _records(store: MessageStore, entries: bytes) -> Iterator[tuple[Record, int]]:
    """The records that the entries point to, each with its tags code; read many at a time."""
    positions, sizes, tags_codes = (column.tolist() for column in unpack_entries(entries))
    first = 0
    while first < len(entries) // ENTRY_SIZE:
        end = first + 1
        total = sizes[first]
        while end < len(sizes) and total + sizes[end] <= _READ_BYTES:
            total += sizes[end]
            end += 1
        runs = list(zip(positions[first:end], sizes[first:end], strict=True))
        data = store.read(runs)
        at = 0
        for index in range(first, end):
            record = Record(data, at, at + sizes[index])
            yield record, tags_codes[index]
            at += sizes[index]
        first = end


def _config_files(disk: Disk) -> dict[str, Any]:
    offsets = read_with_backup(disk, CONSUMER_OFFSETS_PATH, ConsumerOffsetTable.load).value
    topics = read_with_backup(disk, TOPICS_PATH, TopicTable.load).value
    groups = read_with_backup(disk, SUBSCRIPTION_GROUPS_PATH, SubscriptionGroupTable.load).value
    delays = read_with_backup(disk, DELAY_OFFSETS_PATH, parse_object).value
    by_queue = {} if offsets is None else offsets.as_json()
    return {
        "consumerOffsets": {key: by_queue[key] for key in sorted(by_queue)},
        "delayOffsets": {} if delays is None else delays.get("offsetTable", {}),
        "topicConfigs": {
            config.name: {
                "readQueueNums": config.read_queue_count,
                "writeQueueNums": config.write_queue_count,
                "perm": config.perm,
                "topicFilterType": config.filter_type,
                "topicSysFlag": config.sys_flag,
                "order": config.order,
                "attributes": dict(config.attributes),
            }
            for config in (() if topics is None else topics.configs())
        },
        "subscriptionGroups": {
            config.name: {
                "consumeEnable": config.consume_enabled,
                "consumeMessageOrderly": config.consume_orderly,
                "retryQueueNums": config.retry_queue_count,
                "retryMaxTimes": config.retry_times_max,
            }
            for config in (() if groups is None else groups.configs())
        },
    }
