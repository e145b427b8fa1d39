"""The work of the index that runs on threads: write, merge and read its files.

Each work is made on the loop with all that it needs, run once on any thread, and passed back to the
index, which takes over its result. A failed work has no effect: files are valid only once the
manifest names them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np

from aerobee.broker.timers.pending import (
    LAST,
    BoolArray,
    Key,
    Rows,
    in_order,
    key_of,
    no_rows,
    rank,
)
from aerobee.broker.timers.progress import DoneView
from aerobee.broker.timers.runs import Run, RunWriter, merged
from aerobee.store.engine.disk import Disk

INDEX_FOLDER: Final = "timerindex"
MANIFEST: Final = f"{INDEX_FOLDER}/manifest"
_NEW_MANIFEST: Final = f"{INDEX_FOLDER}/manifest.tmp"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of the index's files."""

    covered_end: int
    """The runs have every waiting message below this queue offset that was not done..."""
    journal_offset: int
    """...according to the journal's records below this one."""
    next_run: int
    runs: tuple[tuple[str, int], ...]
    """File name and number of rows of each."""

    def encode(self) -> bytes:
        text = json.dumps([self.covered_end, self.journal_offset, self.next_run, self.runs])
        return f"AQTM1 {crc32(text.encode()):08x} {text}\n".encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Raises ValueError."""
        magic, crc, text = data.decode().split(" ", 2)
        text = text.rstrip("\n")
        if magic != "AQTM1" or int(crc, 16) != crc32(text.encode()):
            raise ValueError("the manifest is damaged")
        covered_end, journal_offset, next_run, runs = json.loads(text)
        return cls(covered_end, journal_offset, next_run, tuple((str(n), int(c)) for n, c in runs))


def write_manifest(disk: Disk, manifest: Manifest) -> None:
    """Durable, including the names of the files that it lists. Raises OSError."""
    file = disk.open_file(_NEW_MANIFEST, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [manifest.encode()])
        file.datasync()
    finally:
        file.close()
    disk.fsync_directory(INDEX_FOLDER)  # the runs' names, before the manifest lists them
    disk.rename(_NEW_MANIFEST, MANIFEST)
    disk.fsync_directory(INDEX_FOLDER)


@dataclass(slots=True)
class RewriteWork:
    """Writes what was fed, or some runs, as one new run."""

    disk: Disk
    view: DoneView
    journal_offset: int
    covered_end: int
    number: int
    runs: Sequence[Run]
    """All existing runs."""
    replaced: Sequence[Run]
    """The runs that go into the new one."""
    fed: Sequence[Rows]
    """Also goes into the new one."""
    result: tuple[Run, ...] = ()

    def run(self) -> None:
        """[any thread] Raises IndexDamaged, OSError."""
        writer = RunWriter(self.disk, f"{INDEX_FOLDER}/{self.number:010d}")
        if self.fed:
            rows = in_order(self.fed)
            writer.add(rows[self.view.pending(rows)])
        for rows in merged(self.disk, self.replaced, Key(-1, -1), self.view):
            writer.add(rows)
        new = writer.finish()
        kept = [
            run
            for run in self.runs
            if run not in self.replaced and not run.is_passed(self.view.frontier)
        ]
        self.result = (*kept, new) if new is not None else tuple(kept)
        names = tuple((run.name, run.rows) for run in self.result)
        write_manifest(
            self.disk, Manifest(self.covered_end, self.journal_offset, self.number + 1, names)
        )
        remove_strays(self.disk, {name for name, _ in names})


@dataclass(slots=True)
class LoadWork:
    """Reads the rows that are due next."""

    disk: Disk
    view: DoneView
    runs: Sequence[Run]
    after: Key
    count: int
    result: Rows | None = None
    until: Key = LAST
    """The result has all rows of the runs with keys in (after, until]."""

    def run(self) -> None:
        """[any thread] Raises IndexDamaged, OSError."""
        parts, count = [no_rows()], 0
        pieces = merged(self.disk, self.runs, self.after, self.view)
        for rows in pieces:
            parts.append(rows)
            count += len(rows)
            if count >= self.count:
                self.until = key_of(rows[-1])
                break
        pieces.close()
        self.result = np.concatenate(parts)


@dataclass(slots=True)
class SearchWork:
    """Reads the waiting messages with keys in (low, high] that `accepts` accepts, ordered by time:
    for lists, and to find one by its handle."""

    disk: Disk
    view: DoneView
    runs: Sequence[Run]
    fed: Sequence[Rows]
    low: Key
    high: Key
    limit: int
    accepts: Callable[[Rows], BoolArray]
    result: Rows | None = None
    until: Key = LAST
    """How far it got: continue after it unless this is `high`."""

    def run(self) -> None:
        """[any thread] Raises IndexDamaged, OSError."""
        found, count = [no_rows()], 0
        self.until = self.high
        fed = in_order([no_rows(), *self.fed])
        fed = fed[rank(fed, self.low) : rank(fed, self.high)]
        pieces = merged(self.disk, self.runs, self.low, self.view)
        for piece in pieces:
            until = min(key_of(piece[-1]), self.high)
            at = rank(fed, until)
            rows, fed = in_order([piece[: rank(piece, until)], fed[:at]]), fed[at:]
            count += self._keep_wanted(rows, found, count)
            if count >= self.limit or until == self.high:
                break
        pieces.close()
        if count < self.limit:
            self._keep_wanted(fed, found, count)
        self.result = np.concatenate(found)

    def _keep_wanted(self, rows: Rows, found: list[Rows], count: int) -> int:
        wanted = rows[self.view.pending(rows) & self.accepts(rows)][: self.limit - count]
        found.append(wanted)
        if len(wanted) and count + len(wanted) == self.limit:
            self.until = key_of(wanted[-1])
        return len(wanted)


@dataclass(slots=True)
class OldestWork:
    """Finds the oldest waiting messages: what holds the log, and what must be rolled when the log
    has to be removed."""

    disk: Disk
    view: DoneView
    runs: Sequence[Run]
    fed: Sequence[Rows]
    limit: int
    result: Rows | None = None
    """In queue order."""

    def run(self) -> None:
        """[any thread] Raises IndexDamaged, OSError."""
        oldest = self._first([no_rows(), *self.fed])
        blocks = sorted(
            (int(offset), number, block)
            for number, run in enumerate(self.runs)
            for block, offset in enumerate(run.directory["offset_min"])
        )
        for offset_min, number, block in blocks:
            if len(oldest) >= self.limit and offset_min > int(oldest["offset"][-1]):
                break
            run = self.runs[number]
            file = self.disk.open_file(run.name, read_only=True)
            try:
                oldest = self._first([oldest, run.read_block(file, block)])
            finally:
                file.close()
        self.result = oldest

    def _first(self, parts: list[Rows]) -> Rows:
        rows = np.concatenate(parts)
        rows = rows[self.view.pending(rows)]
        return rows[np.argsort(rows["offset"], kind="stable")[: self.limit]]


IndexWork = RewriteWork | LoadWork


def remove_strays(disk: Disk, names: set[str]) -> None:
    """Remove files of the index that no manifest lists. Raises OSError."""
    for entry in disk.list(INDEX_FOLDER):
        path = f"{INDEX_FOLDER}/{entry.name}"
        if path not in names and path != MANIFEST and not entry.is_directory:
            disk.remove(path)
