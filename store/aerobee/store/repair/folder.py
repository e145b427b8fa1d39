"""What a store folder contains before anything is read: names, lengths, who uses it.

Owns: the view that all checks share. Segments are known by their place in the log, which is taken
from their content if names were mixed up; a place without a file has a segment without a path.
Queues are known by folder, first entry and number of files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import DirectoryEntry, Disk
from aerobee.store.engine.folder_state import LOCK_FILE
from aerobee.store.engine.log.segment import COMMIT_LOG_DIRECTORY, segment_path
from aerobee.store.engine.queues.consume_queue import CONSUME_QUEUE_DIRECTORY, queue_directory
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE
from aerobee.store.format.names import file_name, is_file_name
from aerobee.store.format.record_layout import MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT
from aerobee.store.repair.findings import Findings, Kind

# Queues whose files are examined to learn the length of queue files.
_QUEUES_MEASURED = 200
# A name this far from the others belongs to no log: more empty places are not assumed.
_MISSING_SEGMENTS_MAX = 10_000


class InspectedDisk(Disk, Protocol):
    """A disk that can also tell, without modifying it, whether a folder is in use."""

    def is_locked(self, path: str) -> bool: ...


@dataclass(slots=True)
class SegmentFile:
    """A place of the log and the file that holds it.

    `file_bytes` is the file's length, 0 without a file. `is_foreign`: it holds other bytes.
    """

    base: int
    path: str | None
    file_bytes: int
    is_foreign: bool = False

    @property
    def name(self) -> str:
        """The file, or the one that should exist."""
        return self.path or segment_path(self.base)


@dataclass(slots=True)
class QueueFolder:
    """A queue's files: contiguous from entry `first` on, or a `problem` that prevents this."""

    topic: str
    queue_id: int
    first: int
    files: int
    problem: str = ""

    @property
    def directory(self) -> str:
        return queue_directory(self.topic, self.queue_id)


@dataclass(slots=True)
class Folder:
    """A store as its directory listing shows it."""

    disk: InspectedDisk
    is_live: bool
    segment_bytes: int
    entries_per_file: int
    segments: list[SegmentFile] = field(default_factory=list)
    queues: list[QueueFolder] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    """Files that a repair may move away: nothing needs them."""

    @property
    def log_min_offset(self) -> int:
        return self.segments[0].base if self.segments else 0

    @property
    def log_files_end(self) -> int:
        return self.segments[-1].base + self.segment_bytes if self.segments else 0


def measured_sizes(disk: Disk) -> dict[str, int]:
    """`segment_bytes` and `consume_queue_entries_per_file` as in most files.

    A single file of a wrong length does no harm: names show the length too.
    """
    sizes: dict[str, int] = {}
    votes = _votes(disk.list(COMMIT_LOG_DIRECTORY))
    if votes:
        sizes["segment_bytes"] = votes.most_common(1)[0][0]
    votes = Counter()
    measured = 0
    for topic in _folders(disk, CONSUME_QUEUE_DIRECTORY):
        for queue in _folders(disk, f"{CONSUME_QUEUE_DIRECTORY}/{topic}"):
            votes += _votes(disk.list(f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue}"))
            measured += 1
        if measured >= _QUEUES_MEASURED:
            break
    votes = Counter({size: count for size, count in votes.items() if size % ENTRY_SIZE == 0})
    if votes:
        sizes["consume_queue_entries_per_file"] = votes.most_common(1)[0][0] // ENTRY_SIZE
    return sizes


def _votes(entries: Sequence[DirectoryEntry]) -> Counter[int]:
    files = [entry for entry in entries if not entry.is_directory and is_file_name(entry.name)]
    votes = Counter(entry.size_bytes for entry in files if entry.size_bytes)
    # If lengths disagree, the distance between neighbours decides.
    votes.update(int(after.name) - int(before.name) for before, after in pairwise(files))
    return votes


def _folders(disk: Disk, path: str) -> list[str]:
    return [entry.name for entry in disk.list(path) if entry.is_directory]


def inspect_folder(
    disk: InspectedDisk, config: StoreConfig, findings: Findings, *, is_locked_by_us: bool
) -> Folder:
    """The folder's files with the sizes of `config`; irregularities become findings."""
    folder = Folder(
        disk,
        not is_locked_by_us and disk.is_locked(LOCK_FILE),
        config.segment_bytes,
        config.consume_queue_entries_per_file,
    )
    _inspect_log(folder, findings)
    _inspect_queues(folder, findings)
    return folder


# ---------------------------------------------------------------------------------------- log


def _inspect_log(folder: Folder, findings: Findings) -> None:
    disk, size = folder.disk, folder.segment_bytes
    entries = disk.list(COMMIT_LOG_DIRECTORY)
    files = [entry for entry in entries if not entry.is_directory]
    for entry in entries:
        if entry.is_directory:
            findings.add(
                Kind.LOG_STRAY_FOLDER, f"{COMMIT_LOG_DIRECTORY}/{entry.name}", "this is a folder"
            )
    if files and files[-1].size_bytes == 0 and is_file_name(files[-1].name):
        path = f"{COMMIT_LOG_DIRECTORY}/{files.pop().name}"
        findings.add(Kind.LOG_FILE_EMPTY, path, "the file has no bytes")
        folder.strays.append(path)
    found: list[SegmentFile] = []
    for entry in files:
        path = f"{COMMIT_LOG_DIRECTORY}/{entry.name}"
        if not is_file_name(entry.name) or int(entry.name) % size:
            findings.add(
                Kind.LOG_STRAY_FILE,
                path,
                f"its name is not a multiple of the segment length {size}",
                bytes=entry.size_bytes,
            )
            folder.strays.append(path)
            continue
        if entry.size_bytes != size:
            findings.add(
                Kind.LOG_FILE_SIZE,
                path,
                f"it has {entry.size_bytes} bytes, segments have {size}",
                position=min(entry.size_bytes, size),
                bytes=entry.size_bytes,
            )
        found.append(SegmentFile(int(entry.name), path, entry.size_bytes))
    _put_in_place(folder, found, findings)
    folder.segments = _with_missing(folder, found, findings)


def _put_in_place(folder: Folder, found: list[SegmentFile], findings: Findings) -> None:
    """Take each segment's place from its first record, if that place is free."""
    said = {id(segment): _said_base(folder, segment) for segment in found}
    in_place = {segment.base for segment in found if said[id(segment)] in (None, segment.base)}
    moved = [segment for segment in found if segment.base not in in_place]
    claims = Counter(said[id(segment)] for segment in moved)
    for segment in moved:
        base = said[id(segment)]
        assert base is not None
        if base in in_place or claims[base] > 1:
            segment.is_foreign = True
            findings.add(
                Kind.LOG_SEGMENT_MISPLACED,
                segment.name,
                f"it holds a copy of the segment at {base}; its own messages are not there",
                position=0,
                belongs_at=base,
            )
            continue
        findings.add(
            Kind.LOG_SEGMENT_MISPLACED,
            segment.name,
            f"it holds the log from {base} on: its name must be {file_name(base)}",
            position=0,
            belongs_at=base,
        )
        segment.base = base
    found.sort(key=lambda segment: segment.base)


def _said_base(folder: Folder, segment: SegmentFile) -> int | None:
    """The position that the segment's first record claims; None if there is none, or it is
    impossible."""
    file = folder.disk.open_file(segment.name, read_only=True)
    head = file.read_at(0, PHYSICAL_OFFSET_AT + 8)
    file.close()
    if len(head) < PHYSICAL_OFFSET_AT + 8:
        return None
    if int.from_bytes(head[4:8], "big", signed=True) not in (MAGIC_V1, MAGIC_V2):
        return None
    base = int.from_bytes(head[PHYSICAL_OFFSET_AT:], "big", signed=True)
    return base if base >= 0 and base % folder.segment_bytes == 0 else None


def _with_missing(
    folder: Folder, found: list[SegmentFile], findings: Findings
) -> list[SegmentFile]:
    segments: list[SegmentFile] = []
    for segment in found:
        if segments:
            expected = segments[-1].base + folder.segment_bytes
            missing = (segment.base - expected) // folder.segment_bytes
            if missing > _MISSING_SEGMENTS_MAX:
                findings.add(
                    Kind.LOG_STRAY_FILE,
                    segment.name,
                    f"its name is {missing} segments after its neighbour's",
                )
                folder.strays.append(segment.name)
                continue
            for base in range(expected, segment.base, folder.segment_bytes):
                findings.add(
                    Kind.LOG_GAP,
                    segment_path(base),
                    f"the file is missing; {segment.name} follows",
                    position=0,
                )
                segments.append(SegmentFile(base, None, 0))
        segments.append(segment)
    return segments


# ------------------------------------------------------------------------------------- queues


def _inspect_queues(folder: Folder, findings: Findings) -> None:
    disk = folder.disk
    for topic in disk.list(CONSUME_QUEUE_DIRECTORY):
        path = f"{CONSUME_QUEUE_DIRECTORY}/{topic.name}"
        if not topic.is_directory:
            _add_stray(folder, findings, path)
            continue
        for queue in disk.list(path):
            if not queue.is_directory or not (queue.name.isascii() and queue.name.isdigit()):
                if not queue.is_directory:
                    _add_stray(folder, findings, f"{path}/{queue.name}")
                continue
            folder.queues.append(_inspect_queue(folder, topic.name, int(queue.name), findings))


def _add_stray(folder: Folder, findings: Findings, path: str) -> None:
    findings.add(Kind.QUEUE_STRAY_FILE, path, "its name is not that of a queue file")
    folder.strays.append(path)


def _inspect_queue(folder: Folder, topic: str, queue_id: int, findings: Findings) -> QueueFolder:
    file_bytes = folder.entries_per_file * ENTRY_SIZE
    queue = QueueFolder(topic, queue_id, 0, 0)
    for entry in folder.disk.list(queue.directory):
        path = f"{queue.directory}/{entry.name}"
        if entry.is_directory or not is_file_name(entry.name):
            _add_stray(folder, findings, path)
            continue
        base = int(entry.name)
        if entry.size_bytes == 0:
            findings.add(Kind.QUEUE_FILE_EMPTY, path, "the file has no bytes")
            folder.strays.append(path)
            continue
        if entry.size_bytes != file_bytes or base % file_bytes:
            queue.problem = f"{entry.name} has {entry.size_bytes} bytes, not {file_bytes}"
            if base % file_bytes:
                queue.problem = f"{entry.name} does not begin at a multiple of {file_bytes}"
            findings.add(Kind.QUEUE_FILE_SIZE, path, queue.problem, bytes=entry.size_bytes)
            continue
        first = base // ENTRY_SIZE
        if not queue.files:
            queue.first = first
        elif first != queue.first + queue.files * folder.entries_per_file:
            queue.problem = f"a file is missing before {entry.name}"
            findings.add(Kind.QUEUE_GAP, path, queue.problem)
        queue.files += 1
    return queue
