"""What Apache's broker would do with a store folder at its start: a model, step by step.

Releases differ in where they begin to read the log and in what they dispatch along the way:

                                  4.9                  5.1                 5.3
    after a clean stop, reads     the last 3 files     the last 3 files    from what the queues know
    and dispatches                nothing              nothing             records after that
    after a crash, dispatches     all that it reads    all that it reads   all that it reads
    then goes on dispatching at   what the queues know the log's end       the log's end
    knows records of version      1                    1, 2                1, 2

So a store that was stopped cleanly while a queue lagged behind the log loses messages in 5.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.plain_folder import (
    ENTRY,
    Queue,
    Sizes,
    abnormal_start,
    queue_folders,
    queued_records,
)
from tests.support.plain_store import PlainRecord, PlainStore

RELEASES = ("4.9", "5.1", "5.3")
PAIR = struct.Struct(">qi")


class Refused(Exception):
    """The broker would not start."""


@dataclass
class ModelQueue:
    """Entries as (physical offset, size), starting with the first file's first entry."""

    first: int
    per_file: int
    entries: list[tuple[int, int]] = field(default_factory=list)
    known: int = -1

    @property
    def end(self) -> int:
        return self.first + len(self.entries)

    def dispatch(self, record: PlainRecord) -> None:
        """Dispatch one record as an entry, unless it counts as already there."""
        if record.physical_offset + record.size <= self.known:
            return
        self.known = record.physical_offset + record.size
        if not self.entries and record.queue_offset:
            self.first = record.queue_offset - record.queue_offset % self.per_file
            self.entries = [(0, 0x7FFFFFFF)] * (record.queue_offset - self.first)
        if record.queue_offset and self.end > record.queue_offset:
            return
        self.entries.append((record.physical_offset, record.size))

    def truncate(self, offset: int, raw: list[tuple[int, int]]) -> None:
        """Cut at a log offset; `raw` is the files' content, used or not, before anything was
        dispatched. The first entry of a file counts as an entry whatever it is."""
        raw = self.entries + raw[len(self.entries) :]
        files = -(-len(raw) // self.per_file)
        for number in reversed(range(files)):
            base = number * self.per_file
            if raw[base][0] >= offset:
                continue
            end = base + 1
            while end < min(base + self.per_file, len(raw)):
                position, size = raw[end]
                if position < 0 or size <= 0 or position >= offset:
                    break
                end += 1
            self.entries = raw[:end]
            self.known = sum(raw[end - 1])
            return
        self.entries = []
        self.known = -1


class ApacheStart:
    """One start; afterwards `queues` is what consumers would see."""

    def __init__(
        self, root: Path, sizes: Sizes, release: str, log: PlainStore | None = None
    ) -> None:
        self._root = root
        self._sizes = sizes
        self._release = release
        self._check_files()
        self.log = log or PlainStore(root, sizes.segment_bytes)
        self._raw: dict[Queue, list[tuple[int, int]]] = {}
        self.queues = {name: self._load(name, path) for name, path in queue_folders(root).items()}
        self._recover()

    def _check_files(self) -> None:
        index_bytes = 40 + 4 * self._sizes.index_slots + 20 * self._sizes.index_entries
        wanted = [(self._root / "commitlog", 20, self._sizes.segment_bytes)]
        wanted += [
            (folder, 20, self._sizes.queue_file_bytes)
            for folder in queue_folders(self._root).values()
        ]
        if (self._root / "index").exists():
            wanted.append((self._root / "index", 17, index_bytes))
        for folder, digits, file_bytes in wanted:
            for file in folder.iterdir():
                if file.stat().st_size != file_bytes or len(file.name) != digits:
                    raise Refused(f"{folder.name}/{file.name} has {file.stat().st_size} bytes")

    def _load(self, name: Queue, folder: Path) -> ModelQueue:
        """The third-last file and later ones, up to the first invalid entry."""
        files = sorted(folder.iterdir())
        per_file = self._sizes.queue_file_bytes // ENTRY.size
        queue = ModelQueue(int(files[0].name) // ENTRY.size if files else 0, per_file)
        data = b"".join(file.read_bytes() for file in files)
        raw = [PAIR.unpack_from(data, at) for at in range(0, len(data), ENTRY.size)]
        self._raw[name] = raw
        end = per_file * max(0, len(files) - 3)
        while end < len(raw) and raw[end][0] >= 0 and raw[end][1] > 0:
            queue.known = sum(raw[end])
            end += 1
        queue.entries = raw[:end]
        return queue

    def _recover(self) -> None:
        known = max((queue.known for queue in self.queues.values()), default=-1)
        crashed = (self._root / "abort").exists()
        start = self._after_crash() if crashed else self._after_stop(known)
        end = start
        for record in self.log.records:
            if record.physical_offset < start:
                continue
            if record.version == 2 and self._release == "4.9":
                break
            end = record.physical_offset + record.size
            late = self._release == "5.3" and record.physical_offset > known
            if crashed or late:
                self._dispatch(record)
        self.log_end = end
        if known >= end:
            for name, queue in self.queues.items():
                queue.truncate(end, self._raw[name])
        if self._release == "4.9":
            for record in self.log.records:
                if max(known, self.log.min_offset) <= record.physical_offset < end:
                    self._dispatch(record)

    def _after_crash(self) -> int:
        checkpoint = (self._root / "checkpoint").read_bytes()
        physic, logics = struct.unpack(">qq", checkpoint[:16])
        log = self.log
        return abnormal_start(log, self._sizes.segment_bytes, max(0, min(physic, logics) - 3_000))

    def _after_stop(self, known: int) -> int:
        bases = [int(path.name) for path in sorted((self._root / "commitlog").iterdir())]
        if self._release != "5.3":
            return bases[max(0, len(bases) - 3)]
        return max((base for base in bases if base <= known), default=bases[0])

    def _dispatch(self, record: PlainRecord) -> None:
        if record.in_queue:
            name = record.topic, record.queue_id
            per_file = self._sizes.queue_file_bytes // ENTRY.size
            self.queues.setdefault(name, ModelQueue(0, per_file)).dispatch(record)

    def problems(self) -> Iterator[str]:
        """What consumers would miss, see twice, or see at another offset."""
        if self.log_end != self.log.end:
            yield f"the log ends at {self.log_end}, not {self.log.end}"
        expected = queued_records(self.log)
        for name in sorted(expected.keys() | self.queues.keys()):
            records = expected.get(name, [])
            queue = self.queues.get(name, ModelQueue(0, 1))
            for record in records:
                at = record.queue_offset - queue.first
                wanted = record.physical_offset, record.size
                if not 0 <= at < len(queue.entries):
                    yield f"{name}: offset {record.queue_offset} is missing"
                    break
                if queue.entries[at] != wanted:
                    yield f"{name}: offset {record.queue_offset} is {queue.entries[at]}"
                    break
            if records and queue.end != records[-1].queue_offset + 1:
                yield f"{name}: ends at {queue.end}, not {records[-1].queue_offset + 1}"


def apache_problems(root: Path, sizes: Sizes) -> list[str]:
    """What would go wrong in any release, each line with the release's name."""
    found: list[str] = []
    log: PlainStore | None = None
    for release in RELEASES:
        try:
            start = ApacheStart(root, sizes, release, log)
        except Refused as refusal:
            found.append(f"{release} refuses: {refusal}")
            continue
        log = start.log
        if release != "4.9" or all(record.version == 1 for record in start.log.records):
            found += [f"{release}: {line}" for line in start.problems()]
    return found
