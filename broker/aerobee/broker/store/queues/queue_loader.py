"""Consume queues as they lie in their files: for a start that finds no list of queue ends.

A queue is taken as it is only if its files are contiguous, of the right length, and hold nothing
but rising entries up to one point and zeros after it. Everything else makes it damaged: it will
be built again from the log, so nothing here ever stops a start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from aerobee.broker.store.disk import Disk, used_size
from aerobee.broker.store.queues.consume_queue import (
    CONSUME_QUEUE_DIRECTORY,
    ConsumeQueue,
)
from aerobee.broker.store.queues.queue_check import is_queue_file
from aerobee.store_format.consume_queue_entry import ENTRY_SIZE, PRE_BLANK_SIZE, unpack_entries
from aerobee.store_format.names import parse_file_name

_ENTRIES_PER_READ = 50_000
# As many files of a queue, the newest ones, are looked at entry by entry; Apache's recovery does
# the same. Of the others only the first and the last entry are compared with the log.
_FILES_CHECKED = 3


@dataclass(slots=True)
class LoadedQueues:
    """What the folder holds. Damaged queues are named with the reason, not loaded. Untidy ones have
    a last file without any entry, which must go."""

    queues: list[ConsumeQueue] = field(default_factory=list)
    untidy: list[ConsumeQueue] = field(default_factory=list)
    damaged: dict[tuple[str, int], str] = field(default_factory=dict)


class _Damaged(Exception):
    """Why a queue's files cannot be used."""


def load_queues(disk: Disk, entries_per_file: int) -> LoadedQueues:
    """Every queue below `consumequeue/`. Files and folders of other names are passed over."""
    loaded = LoadedQueues()
    for topic in disk.list(CONSUME_QUEUE_DIRECTORY):
        if not topic.is_directory:
            continue
        for entry in disk.list(f"{CONSUME_QUEUE_DIRECTORY}/{topic.name}"):
            if not (entry.is_directory and entry.name.isascii() and entry.name.isdigit()):
                continue
            name = topic.name, int(entry.name)
            loader = _Loader(disk, *name, entries_per_file)
            try:
                queue = loader.load()
            except (_Damaged, OSError) as error:
                loaded.damaged[name] = str(error)
                continue
            if loader.untidy:
                loaded.untidy.append(queue)
            if queue.end:
                loaded.queues.append(queue)
    return loaded


class _Loader:
    """One queue."""

    def __init__(self, disk: Disk, topic: str, queue_id: int, entries_per_file: int) -> None:
        self._disk = disk
        self._queue = ConsumeQueue(topic, queue_id, entries_per_file)
        self._entries_per_file = entries_per_file
        self._physical_end = 0
        self.untidy = False

    def load(self) -> ConsumeQueue:
        firsts = self._file_firsts()
        if not firsts:
            return self._queue
        start = max(0, len(firsts) - _FILES_CHECKED)
        while start and not self._has_entries(firsts[start]):
            start -= 1
        end = self._walk(firsts[start:])
        queue = self._queue
        self.untidy |= end <= firsts[-1]
        if self._physical_end == 0:
            if end > firsts[0]:
                raise _Damaged("it has blank entries only")
            return queue
        queue.first_offset = queue.min_offset = firsts[0]
        queue.end = queue.written_end = queue.next_offset = end
        queue.physical_end = self._physical_end
        return queue

    def _file_firsts(self) -> list[int]:
        """The first entry of each file."""
        file_bytes = self._entries_per_file * ENTRY_SIZE
        files = [entry for entry in self._disk.list(self._queue.directory) if is_queue_file(entry)]
        if files and files[-1].size_bytes == 0:
            files.pop()
            self.untidy = True
        firsts: list[int] = []
        for file in files:
            base = parse_file_name(file.name)
            if file.size_bytes != file_bytes:
                raise _Damaged(f"{file.name} has {file.size_bytes} bytes, not {file_bytes}")
            if base % file_bytes:
                raise _Damaged(f"{file.name} begins at no multiple of {file_bytes}")
            first = base // ENTRY_SIZE
            if firsts and first != firsts[-1] + self._entries_per_file:
                raise _Damaged(f"a file is missing before {file.name}")
            firsts.append(first)
        return firsts

    def _has_entries(self, first: int) -> bool:
        return used_size(self._read(first, 1)) > 0

    def _walk(self, firsts: Sequence[int]) -> int:
        """The end of the queue. Raises _Damaged for anything but entries, then zeros."""
        ended_at: int | None = None
        for first in firsts:
            entry = first
            while entry < first + self._entries_per_file:
                count = min(_ENTRIES_PER_READ, first + self._entries_per_file - entry)
                data = self._read(entry, count)
                if len(data) != count * ENTRY_SIZE:
                    raise _Damaged(f"the file with entry {entry} is short")
                usable = self._usable(data, entry) if ended_at is None else 0
                if usable < count:
                    ended_at = entry + usable if ended_at is None else ended_at
                    if used_size(data[usable * ENTRY_SIZE :]):
                        raise _Damaged(f"entries follow past the end at entry {ended_at}")
                entry += count
        return firsts[-1] + self._entries_per_file if ended_at is None else ended_at

    def _usable(self, data: bytes, entry: int) -> int:
        """How many valid entries `data` begins with."""
        positions, sizes, _ = unpack_entries(data)
        valid = (positions >= 0) & (sizes > 0)
        usable = len(valid) if valid.all() else int(valid.argmin())
        real = sizes[:usable] != PRE_BLANK_SIZE
        starts = positions[:usable][real]
        ends = starts + sizes[:usable][real]
        if len(starts):
            if starts[0] < self._physical_end or np.any(starts[1:] < ends[:-1]):
                raise _Damaged(f"entries at or after {entry} are out of order")
            self._physical_end = int(ends[-1])
        return usable

    def _read(self, entry: int, count: int) -> bytes:
        in_file = entry % self._entries_per_file
        file = self._disk.open_file(self._queue.file_path(entry), read_only=True)
        return file.read_at(in_file * ENTRY_SIZE, count * ENTRY_SIZE)
