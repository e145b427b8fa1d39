"""Whether Apache's broker would accept a store folder: files, queues, checkpoint, JSON.

Each check reads bytes with struct and compares them with what must be there according to a plain
walk over the log. Findings are lines; no findings means no problem.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.index_judge import index_problems, keys_lost_by_a_crash
from tests.support.plain_store import BLANK_MAGIC, PlainRecord, PlainStore

ENTRY = struct.Struct(">qiq")
BLANK_ENTRY = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
CHECKPOINT_BYTES = 4096
ROOT_NAMES = {
    *("abort", "abort.bak", "checkpoint", "lock", "timerwheel", "consumequeue.ends", "index.end"),
    *("producers.windows", "timerindex", "epochFileCheckpoint", "epochFileCheckpoint.bak"),
    *("commitlog", "consumequeue", "config", "index", "timerlog", "compaction"),
    *("consumequeue_ext", "batchconsumequeue"),
}

Queue = tuple[str, int]


@dataclass(frozen=True)
class Sizes:
    """The lengths that both brokers must agree on."""

    segment_bytes: int
    queue_file_bytes: int
    index_slots: int
    index_entries: int

    @classmethod
    def of(cls, config: dict[str, str]) -> Sizes:
        """From a manifest's `config`."""
        return cls(
            int(config["mappedFileSizeCommitLog"]),
            -(-int(config["mappedFileSizeConsumeQueue"]) // 20) * 20,
            int(config["maxHashSlotNum"]),
            int(config["maxIndexNum"]),
        )


def folder_problems(root: Path, sizes: Sizes, *, closed: bool) -> list[str]:
    """Everything that is wrong. `closed`: stopped cleanly; otherwise killed, so derived files may
    lag as far as the next start repairs it."""
    log = PlainStore(root, sizes.segment_bytes)
    return [
        *root_problems(root, closed=closed),
        *log_problems(root, sizes, log, closed=closed),
        *queue_problems(root, sizes, log, closed=closed),
        *checkpoint_problems(root, sizes, log, closed=closed),
        *index_problems(root, sizes.index_slots, sizes.index_entries, log.records, complete=closed),
        *_crash_problems(root, sizes, log, closed=closed),
        *config_problems(root),
    ]


def _crash_problems(root: Path, sizes: Sizes, log: PlainStore, *, closed: bool) -> Iterator[str]:
    if closed or not (root / "index").exists():
        return
    physic, logics = struct.unpack(">qq", (root / "checkpoint").read_bytes()[:16])
    start = abnormal_start(log, sizes.segment_bytes, min(physic, logics) - 3_000)
    yield from keys_lost_by_a_crash(
        root, sizes.index_slots, sizes.index_entries, log.records, read_from=start
    )


def root_problems(root: Path, *, closed: bool) -> Iterator[str]:
    names = {path.name for path in root.iterdir()}
    strays = {name for name in names - ROOT_NAMES if closed or not name.startswith("preallocated-")}
    if strays:
        yield f"the root holds {sorted(strays)}"
    if closed == ("abort" in names):
        yield f"abort is {'there' if closed else 'missing'}"
    if (root / "lock").read_bytes() != b"lock":
        yield "lock has another content"


# ------------------------------------------------------------------------------ the log


def log_problems(root: Path, sizes: Sizes, log: PlainStore, *, closed: bool) -> Iterator[str]:
    files = sorted((root / "commitlog").iterdir())
    yield from _sequence_problems(files, sizes.segment_bytes)
    by_segment: dict[int, list[PlainRecord]] = {}
    last_time = 0
    for record in log.records:
        by_segment.setdefault(record.physical_offset // sizes.segment_bytes, []).append(record)
        if record.store_timestamp < last_time:
            yield f"the store time steps back at {record.physical_offset}"
        last_time = record.store_timestamp
    for file in files:
        base = int(file.name)
        records = by_segment.get(base // sizes.segment_bytes, [])
        data = file.read_bytes()
        at = 0
        for record in records:
            if record.physical_offset != base + at:
                yield f"record at {base + at} says {record.physical_offset}"
            at += record.size
        if base + len(data) <= log.end:
            blank = struct.unpack(">iI", data[at : at + 8].ljust(8, b"\1"))
            if blank != (len(data) - at, BLANK_MAGIC):
                yield f"{file.name} ends at {at} with {blank}, not with a blank record"
            at += 8
        elif not records and closed:
            yield f"{file.name} holds no record"
        if any(data[at:]):
            yield f"{file.name} is not zero after {at}"


def _sequence_problems(files: list[Path], file_bytes: int) -> Iterator[str]:
    """Names and lengths: problems that prevent Apache's broker from starting."""
    base: int | None = None
    for file in files:
        place = f"{file.parent.name}/{file.name}"
        if not file.is_file() or len(file.name) != 20 or not file.name.isdigit():
            yield f"{place} does not belong there"
            continue
        if file.stat().st_size != file_bytes:
            yield f"{place} has {file.stat().st_size} bytes, not {file_bytes}"
        if int(file.name) % file_bytes or (base is not None and int(file.name) != base):
            yield f"{place} is not where a file must begin"
        base = int(file.name) + file_bytes


# ------------------------------------------------------------------------------ queues


def queued_records(log: PlainStore) -> dict[Queue, list[PlainRecord]]:
    """What each queue must contain, in order."""
    queues: dict[Queue, list[PlainRecord]] = {}
    for record in log.records:
        if record.in_queue and not record.sys_flag & 0x80:
            queues.setdefault((record.topic, record.queue_id), []).append(record)
    return queues


def queue_folders(root: Path) -> dict[Queue, Path]:
    return {
        (queue.parent.name, int(queue.name)): queue for queue in (root / "consumequeue").glob("*/*")
    }


def queue_problems(root: Path, sizes: Sizes, log: PlainStore, *, closed: bool) -> Iterator[str]:
    expected = queued_records(log)
    folders = queue_folders(root)
    for topic, queue_id in sorted(expected.keys() - folders.keys()) if closed else ():
        yield f"queue {topic}/{queue_id} has no files"
    for (topic, queue_id), folder in sorted(folders.items()):
        records = expected.get((topic, queue_id), [])
        files = sorted(folder.iterdir())
        found = [
            *_sequence_problems(files, sizes.queue_file_bytes),
            *_entry_problems(files, records, log.min_offset, closed=closed),
        ]
        for line in found:
            yield f"{topic}/{queue_id}: {line}"


def _entry_problems(
    files: list[Path], records: list[PlainRecord], log_min_offset: int, *, closed: bool
) -> Iterator[str]:
    wanted = {record.queue_offset: record for record in records}
    if len(wanted) != len(records) or (wanted and max(wanted) - min(wanted) + 1 != len(wanted)):
        yield "the queue offsets of its records are not consecutive"
    end = max(wanted, default=-1) + 1
    ended = False
    for file in files:
        first = int(file.name) // ENTRY.size
        data = file.read_bytes()
        if not any(data):
            yield f"{file.name} holds no entry"
        for number in range(len(data) // ENTRY.size):
            offset = first + number
            entry = data[number * ENTRY.size : (number + 1) * ENTRY.size]
            if offset in wanted and not ended:
                record = wanted[offset]
                right = ENTRY.pack(record.physical_offset, record.size, record.tags_code)
                if entry != right and not closed and not any(entry):
                    ended = True  # killed before this entry was written to its file
                elif entry != right:
                    yield f"entry {offset} is {entry.hex()}, not {right.hex()}"
            elif offset >= end or ended:
                ended = ended or bool(wanted)
                if any(entry) and wanted:
                    yield f"entry {offset} is {entry.hex()}, past the end"
            elif entry != BLANK_ENTRY and ENTRY.unpack(entry)[0] >= log_min_offset:
                yield f"entry {offset} is {entry.hex()}, but there is no such record"
    if closed and wanted and not (files and int(files[-1].name) // ENTRY.size < end):
        yield "its last file begins past its end"


# ------------------------------------------------------------------------------ the checkpoint


def checkpoint_problems(
    root: Path, sizes: Sizes, log: PlainStore, *, closed: bool
) -> Iterator[str]:
    data = (root / "checkpoint").read_bytes()
    if len(data) != CHECKPOINT_BYTES or any(data[40:]):
        yield f"the checkpoint has {len(data)} bytes, or something after its numbers"
    physic, logics, index, _, confirmed = struct.unpack(">5q", data[:40])
    last = log.records[-1].store_timestamp if log.records else 0
    if max(physic, logics, index) > last and log.records:
        yield f"the checkpoint ({physic}, {logics}, {index}) is ahead of the log ({last})"
    if confirmed > log.end:
        yield f"the checkpoint confirms {confirmed}, but the log ends at {log.end}"
    if closed and (physic, logics) != (last, last):
        yield f"the checkpoint says ({physic}, {logics}), the log ends with {last}"
    start = abnormal_start(log, sizes.segment_bytes, min(physic, logics) - 3_000)
    for queue, records in queued_records(log).items():
        folder = root / "consumequeue" / queue[0] / str(queue[1])
        for record in records:
            if record.physical_offset >= start:
                break
            if not _has_entry(folder, record, sizes.queue_file_bytes):
                yield f"{queue} lacks {record.queue_offset}, and recovery would begin at {start}"
                break


def abnormal_start(log: PlainStore, segment_bytes: int, min_timestamp: int) -> int:
    """Where Apache's broker begins to read after a crash: the newest file whose first record is not
    newer than the checkpoint, or else the first file."""
    firsts: dict[int, PlainRecord] = {}
    for record in log.records:
        firsts.setdefault(record.physical_offset // segment_bytes * segment_bytes, record)
    fitting = [
        base
        for base, record in firsts.items()
        if base == record.physical_offset and record.store_timestamp <= min_timestamp
    ]
    return max(fitting, default=log.min_offset)


def _has_entry(folder: Path, record: PlainRecord, file_bytes: int) -> bool:
    at = record.queue_offset * ENTRY.size
    file = folder / f"{at - at % file_bytes:020d}"
    if not file.exists():
        return False
    data = file.read_bytes()[at % file_bytes :][: ENTRY.size]
    return ENTRY.unpack(data)[:2] == (record.physical_offset, record.size)


# ------------------------------------------------------------------------------ config files


def config_problems(root: Path) -> Iterator[str]:
    """The tables that our broker writes, parsed as strictly as any JSON library would."""
    for name, check in (
        ("topics.json", _topic_table_problems),
        ("subscriptionGroup.json", _group_table_problems),
        ("consumerOffset.json", _offset_table_problems),
    ):
        path = root / "config" / name
        if path.exists():
            document = json.loads(path.read_bytes()) if _is_ours(path) else None
            if document is not None:
                for line in [*_version_problems(document), *check(document)]:
                    yield f"{name}: {line}"
    for path in (root / "config").glob("*.tmp"):
        yield f"{path.name} was left behind"


def _is_ours(path: Path) -> bool:
    """Unquoted integer keys are not JSON: such a file is as Apache wrote it."""
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def _version_problems(document: Any) -> Iterator[str]:
    version = document.get("dataVersion", {})
    for name in ("counter", "stateVersion", "timestamp"):
        if type(version.get(name)) is not int:
            yield f"dataVersion has no {name}"


def _bean_problems(beans: Any, name_member: str, types: dict[str, type]) -> Iterator[str]:
    for name, bean in beans.items():
        if bean.get(name_member) != name:
            yield f"{name} is called {bean.get(name_member)}"
        for member, kind in types.items():
            if type(bean.get(member)) is not kind:
                yield f"{name} has {member} = {bean.get(member)!r}"


def _topic_table_problems(document: Any) -> Iterator[str]:
    types: dict[str, type] = {
        **dict.fromkeys(("perm", "readQueueNums", "topicSysFlag", "writeQueueNums"), int),
        "order": bool,
        "topicFilterType": str,
        "attributes": dict,
    }
    yield from _bean_problems(document["topicConfigTable"], "topicName", types)


def _group_table_problems(document: Any) -> Iterator[str]:
    flags = ("consumeBroadcastEnable", "consumeEnable", "consumeFromMinEnable")
    numbers = ("brokerId", "retryMaxTimes", "retryQueueNums", "whichBrokerWhenConsumeSlowly")
    types = {**dict.fromkeys(flags, bool), **dict.fromkeys(numbers, int)}
    yield from _bean_problems(document["subscriptionGroupTable"], "groupName", types)


def _offset_table_problems(document: Any) -> Iterator[str]:
    for key, offsets in document["offsetTable"].items():
        if key.count("@") != 1:
            yield f"{key} is not topic@group"
        for queue_id, offset in offsets.items():
            if not queue_id.isdigit() or type(offset) is not int or offset < 0:
                yield f"{key} has {queue_id!r}: {offset!r}"
