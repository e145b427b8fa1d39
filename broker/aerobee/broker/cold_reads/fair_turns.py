"""Whose turn it is when several readers want more of a slow resource than it can give at once.

Deficit round robin over bytes: each reader in turn may spend what it has saved, so that a reader
with large jobs gets no more bytes than one with small jobs, and a reader with many jobs no more
turns than one with a single job. A single reader never takes the last slot if there is more than
one.

Owns: the waiting jobs and the counts of running ones. Pure: it starts nothing and knows no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Job = TypeVar("Job")

QUANTUM_BYTES = 512 * 1024


@dataclass(slots=True, eq=False)
class _Reader(Generic[Job]):
    waiting: OrderedDict[Job, int] = field(default_factory=OrderedDict)
    """Each with its size, in the order in which they came."""
    waiting_bytes: int = 0
    saved_bytes: int = 0
    running: int = 0


class FairTurns(Generic[Job]):
    """Readers are known by name, and only while they have jobs."""

    def __init__(self, running_max: int, fewer_for: Mapping[str, int] | None = None) -> None:
        """`fewer_for` limits, for readers by name, how many of their jobs may run at once."""
        self._running_max = running_max
        self._running_per_reader_max = max(1, running_max - 1)
        self._fewer_for = dict(fewer_for or {})
        self._readers: dict[str, _Reader[Job]] = {}
        # Readers with waiting jobs, in order of turns. Neither search for the one that leaves: a
        # client may make thousands of reads wait, and leave with all of them.
        self._turns: OrderedDict[str, None] = OrderedDict()
        self.running = 0
        self.waiting = 0

    def __repr__(self) -> str:
        return f"FairTurns(running={self.running}, waiting={self.waiting})"

    @property
    def readers(self) -> int:
        """How many readers have waiting or running jobs."""
        return len(self._readers)

    def waiting_bytes(self, name: str) -> int:
        """The total size of a reader's waiting jobs, excluding running ones."""
        reader = self._readers.get(name)
        return 0 if reader is None else reader.waiting_bytes

    def add(self, name: str, job: Job, size: int) -> None:
        """`job` of about `size` bytes wants a turn."""
        reader = self._readers.setdefault(name, _Reader())
        if not reader.waiting:
            self._turns[name] = None
        reader.waiting[job] = size
        reader.waiting_bytes += size
        self.waiting += 1

    def next(self) -> tuple[str, Job] | None:
        """The job to start now, which then counts as running until `done`."""
        if self.running >= self._running_max:
            return None
        blocked = 0
        while blocked < len(self._turns):
            name = next(iter(self._turns))
            reader = self._readers[name]
            running_max = self._running_per_reader_max
            if reader.running >= min(running_max, self._fewer_for.get(name, running_max)):
                blocked += 1
                self._turns.move_to_end(name)
                continue
            blocked = 0
            job, size = next(iter(reader.waiting.items()))
            if reader.saved_bytes < size:
                reader.saved_bytes += QUANTUM_BYTES
                self._turns.move_to_end(name)
                continue
            self._start_first(reader, size)
            return name, job
        return None

    def remove(self, name: str, job: Job) -> None:
        """A waiting job is no longer wanted."""
        reader = self._readers.get(name)
        if reader is None:
            return
        size = reader.waiting.pop(job, None)
        if size is not None:
            reader.waiting_bytes -= size
            self.waiting -= 1
        if not reader.waiting:
            self._turns.pop(name, None)
        self._forget_if_idle(name, reader)

    def done(self, name: str) -> None:
        """A job of this reader has ended."""
        reader = self._readers[name]
        reader.running -= 1
        self.running -= 1
        self._forget_if_idle(name, reader)

    def _start_first(self, reader: _Reader[Job], size: int) -> None:
        reader.waiting.popitem(last=False)
        reader.waiting_bytes -= size
        reader.saved_bytes -= size
        reader.running += 1
        self.running += 1
        self.waiting -= 1
        if not reader.waiting:
            self._turns.popitem(last=False)
            reader.saved_bytes = 0

    def _forget_if_idle(self, name: str, reader: _Reader[Job]) -> None:
        if not reader.waiting and reader.running == 0:
            del self._readers[name]
