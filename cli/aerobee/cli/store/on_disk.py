"""A store folder as it is before anything opens it: files, headers, and the log's bytes.

One walk over the log's files says what each holds, and on the way digests what a recovered store
has of it. Records are checked as recovery checks them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aerobee.cli.store.folder import INDEX_DIRECTORY
from aerobee.store.engine.disk import Disk, DiskFile
from aerobee.store.engine.errors import StoreDamaged
from aerobee.store.engine.folder_state import load_checkpoint, was_left_running
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, segment_path
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.batch_consume_queue_entry import BATCH_ENTRY_SIZE, scan_batch_entries
from aerobee.store.format.index_file import HEADER_SIZE, IndexHeader
from aerobee.store.format.names import is_file_name, parse_file_name
from aerobee.store.format.scan import ScanEnd, ScanResult, scan_records
from aerobee.store.format.tags import TagsCodes

_WALK_BYTES = 4 * 1024 * 1024
"""Read at a time; a record may be longer, and is then read whole."""
BATCH_QUEUE_DIRECTORY = "batchconsumequeue"


def list_files(root: Path) -> dict[str, int]:
    """The length of each file below the folder, by its path in it, sorted."""
    lengths: dict[str, int] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                lengths[path.relative_to(root).as_posix()] = path.stat().st_size
            except FileNotFoundError:
                continue  # a broker is using the folder
    return dict(sorted(lengths.items()))


def describe_state(root: Path, disk: Disk) -> dict[str, Any]:
    """Everything of the section `onDisk` that needs no look into the log."""
    checkpoint = load_checkpoint(disk)
    return {
        "abort": was_left_running(disk),
        "checkpoint": {
            "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
            "logicsMsgTimestamp": checkpoint.logics_msg_timestamp,
            "indexMsgTimestamp": checkpoint.index_msg_timestamp,
            "masterFlushedOffset": checkpoint.master_flushed_offset,
            "confirmPhyOffset": checkpoint.confirm_physical_offset,
        },
        "files": list_files(root),
        "indexHeaders": _index_headers(disk),
    }


def _index_headers(disk: Disk) -> list[dict[str, Any]]:
    headers = []
    for entry in disk.list(INDEX_DIRECTORY):
        if entry.is_directory or entry.size_bytes < HEADER_SIZE:
            continue
        file = disk.open_file(f"{INDEX_DIRECTORY}/{entry.name}", read_only=True)
        header = IndexHeader.decode(file.read_at(0, HEADER_SIZE))
        headers.append(
            {
                "name": entry.name,
                "beginTimestamp": header.begin_timestamp_ms,
                "endTimestamp": header.end_timestamp_ms,
                "beginPhysicalOffset": header.begin_physical_offset,
                "endPhysicalOffset": header.end_physical_offset,
                "usedSlots": header.used_slots,
                "count": header.count,
            }
        )
    return headers


def describe_batch_queues(disk: Disk) -> dict[str, Any]:
    """Apache's batch consume queues: topic -> queue id -> bounds, count and digest of its records.

    Aerobee keeps these queues and does not serve them: a record of theirs holds several messages.
    """
    topics: dict[str, Any] = {}
    for topic in disk.list(BATCH_QUEUE_DIRECTORY):
        for queue in disk.list(f"{BATCH_QUEUE_DIRECTORY}/{topic.name}"):
            folder = f"{BATCH_QUEUE_DIRECTORY}/{topic.name}/{queue.name}"
            topics.setdefault(topic.name, {})[queue.name] = _batch_queue(disk, folder)
    return topics


def _batch_queue(disk: Disk, folder: str) -> dict[str, Any]:
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


class LogOnDisk:
    """The walk; `segments` and the rest are complete once it was gone through.

    Raises StoreDamaged where the store's log is not whole.
    """

    def __init__(self, disk: Disk, store: MessageStore, *, check_crc: bool) -> None:
        self._disk = disk
        self._store = store
        self._check_crc = check_crc
        self._tags = TagsCodes()
        self.segments: list[dict[str, Any]] = []
        self.records = 0
        self.end = 0
        self._digest = hashlib.sha256()
        self._records_in_store = 0

    def walk(self) -> Iterator[int]:
        """Yields the bytes gone through, piece by piece."""
        for entry in self._disk.list(COMMIT_LOG_DIRECTORY):
            if not entry.is_directory and is_file_name(entry.name) and entry.size_bytes:
                yield from self._walk_segment(parse_file_name(entry.name), entry.size_bytes)

    def commit_log(self) -> dict[str, Any]:
        """The section `commitLog`: what of the walk belongs to the recovered store."""
        store = self._store
        return {
            "minOffset": store.min_offset,
            "maxOffset": store.appended_end,
            "segments": [
                {"name": segment.name, "wrotePosition": segment.wrote_position}
                for segment in store.log.segments()
            ],
            "records": self._records_in_store,
            "recordsSha256": self._digest.hexdigest(),
        }

    def _walk_segment(self, base: int, size: int) -> Iterator[int]:
        path = segment_path(base)
        summary: dict[str, Any] = {"name": path.rpartition("/")[2], "size": size}
        file = self._disk.open_file(path, read_only=True)
        position, count = base, 0
        reason = ScanEnd.BUFFER_END
        for data, scan in self._pieces(file, size):
            self._digest_piece(data, scan, position)
            position += scan.valid_end
            count += scan.count
            reason = scan.end
            if reason is ScanEnd.BLANK:
                summary |= {"blankAt": position, "blankSize": scan.end_size}
            yield scan.valid_end
        if reason is not ScanEnd.BLANK and position < min(base + size, self._store.appended_end):
            raise StoreDamaged(
                f"{path} is damaged at log position {position} ({reason}), in the middle of what "
                "was safely written; restore the file from a copy",
                segment=path,
                position=position,
            )
        if count or "blankAt" in summary:
            summary |= {"records": count, "endOfRecords": position}
            self.end = position
        self.records += count
        self.segments.append(summary)

    def _pieces(self, file: DiskFile, size: int) -> Iterator[tuple[bytes, ScanResult]]:
        """Whole records from the file's start on; the last piece ends where they do."""
        at, wanted = 0, _WALK_BYTES
        while at < size:
            data = file.read_at(at, min(wanted, size - at))
            scan = scan_records(data, check_crc=self._check_crc, tags=self._tags)
            yield data, scan
            at += scan.valid_end
            if scan.end is ScanEnd.TRUNCATED and at + scan.end_size <= size:
                wanted = max(_WALK_BYTES, scan.end_size)
            elif scan.end is not ScanEnd.BUFFER_END:
                return
            else:
                wanted = _WALK_BYTES

    def _digest_piece(self, data: bytes, scan: ScanResult, position: int) -> None:
        """A broker that uses the folder may have written more than the store has seen."""
        inside = self._store.appended_end - position
        if inside >= scan.valid_end:
            self._digest.update(memoryview(data)[: scan.valid_end])
            self._records_in_store += scan.count
        elif inside > 0:
            self._digest.update(memoryview(data)[:inside])
            self._records_in_store += int((scan.positions < inside).sum())
