"""The broker's tables and their files: when they are written, and that writes never overlap.

Owns: which version of each table its file holds. Tables change on the loop; a snapshot is taken on
the loop, where it is consistent, and written on the pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import NotWritable, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.waiting import Turns
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import DISK_FULL, TableEmpty
from aerobee.store.engine.tables.atomic_file import (
    Loaded,
    Source,
    read_with_backup,
    replace_atomically,
)
from aerobee.store.flush.disk_watch import DiskWatch

log = logging.getLogger(__name__)


class SavedTable(Protocol):
    """A table that can be written in full."""

    @property
    def changes(self) -> int: ...

    def prepare(self) -> Iterator[None]:
        """Prepares part of the next snapshot at each step; the loop may run between steps."""
        ...

    def snapshot(self, now_ms: int) -> Callable[[], bytes]:
        """The table as it is now. The returned callable is called once, on the pool, before that of
        any later snapshot."""
        ...


class LoadableTable(Protocol):
    """A table that can be read back."""

    @classmethod
    def load(cls, data: bytes) -> LoadableTable: ...


Table = TypeVar("Table", bound=LoadableTable)


def load_table(
    disk: Disk, path: str, kind: type[Table], *, is_known_elsewhere: bool = False
) -> Table:
    """The table in `path` or its backup, or an empty one.

    Raises:
        StoreUnusable: the files exist but nothing in them can be read, or they are empty and their
            content is not known from elsewhere either.
    """
    try:
        loaded = read_with_backup(disk, path, kind.load)
    except TableEmpty as error:
        if not is_known_elsewhere:
            raise
        loaded = Loaded(None, Source.NEITHER, str(error))
    if loaded.problem is not None:
        log_event(
            log, "table not read from its file", path=path, source=loaded.source, why=loaded.problem
        )
    return kind() if loaded.value is None else loaded.value  # type: ignore[return-value]


@dataclass(slots=True)
class TableFile:
    """One table and the file that follows it."""

    path: str
    table: SavedTable
    saved_changes: int
    lock: Turns
    on_saved: Callable[[], None] | None = None
    before_write: Callable[[], Awaitable[None]] | None = None


class TableFiles:
    """Writes changed tables, one write per file at a time."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        pool: Executor,
        *,
        watch: DiskWatch | None = None,
    ) -> None:
        """`watch` is told of each write."""
        self._watch = DiskWatch(clock, hung_after_s=0) if watch is None else watch
        self._disk = disk
        self._clock = clock
        self._pool = pool
        self._written_told: list[Callable[[str], None]] = []
        self._files: dict[str, TableFile] = {}
        self._writing: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def on_written(self, told: Callable[[str], None]) -> None:
        """Call this with the path of each replaced file."""
        self._written_told.append(told)

    async def close(self) -> None:
        """Start no more writes; returns once none is under way. A stopping server does not wait for
        the calls that it cancels, and their writes must not overlap with a reopening of the
        folder."""
        self._is_closed = True
        while self._writing:
            await asyncio.wait(self._writing)

    def add(
        self,
        path: str,
        table: SavedTable,
        on_saved: Callable[[], None] | None = None,
        *,
        before_write: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Add a table that was just loaded. `on_saved` is called when the file holds the latest
        snapshot; `before_write` is called after a snapshot is taken, and returns when the disk has
        what the table is derived from. If it raises NotWritable, the write is retried later."""
        self._files[path] = TableFile(path, table, table.changes, Turns(), on_saved, before_write)

    async def save(self, path: str) -> None:
        """Return once the file holds the table as it is now.

        Raises:
            NotWritable: the disk is full; the table continues in memory, a later save may succeed.
            StoreFailed: the disk failed.
        """
        file = self._files[path]
        async with file.lock:
            if file.table.changes == file.saved_changes:
                return
            for _ in file.table.prepare():
                await asyncio.sleep(0)
            changes = file.table.changes
            content = file.table.snapshot(self._clock.now_ms())
            if file.before_write is not None:
                await file.before_write()
            await self._replace(path, content)
            file.saved_changes = changes
            if file.on_saved is not None:
                file.on_saved()

    async def save_if_room(self, path: str) -> None:
        """`save`; on a full disk the table stays in memory for the next time.

        Raises:
            StoreFailed: the disk failed.
        """
        try:
            await self.save(path)
        except NotWritable as error:
            log_event(log, "table not saved", level=logging.WARNING, path=path, reason=error)

    async def save_all(self) -> None:
        """`save_if_room` every table that changed.

        Raises:
            StoreFailed: the disk failed.
        """
        for path in self._files:
            await self.save_if_room(path)

    async def keep_saving(self, interval_s: float) -> None:
        """`save_all` repeatedly, until cancelled. Raises StoreFailed."""
        while True:
            await asyncio.sleep(interval_s)
            await self.save_all()

    async def write(self, path: str, data: bytes) -> None:
        """Replace a file's content on the pool; also for files without a table.

        Raises:
            NotWritable: the disk is full, or the folder was given up; the file is unchanged.
            StoreFailed: the disk failed.
        """
        await self._replace(path, lambda: data)

    async def write_encoded(self, path: str, encode: Callable[[], bytes]) -> None:
        """`write` what `encode` returns, which is called once, on the pool. Raises as `write`."""
        await self._replace(path, encode)

    async def _replace(self, path: str, content: Callable[[], bytes]) -> None:
        if self._is_closed:
            raise NotWritable(
                f"{path} was not written: its folder was closed, or opened again, meanwhile"
            )
        loop = asyncio.get_running_loop()
        replacing = loop.run_in_executor(self._pool, self._write, path, content)
        self._writing.add(replacing)
        replacing.add_done_callback(partial(self._end_write, path))
        try:
            await asyncio.shield(replacing)
        except asyncio.CancelledError:
            # The caller's lock must outlast the thread, or the next write would overlap with this
            # one, even if the caller is cancelled, possibly more than once.
            while not replacing.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait((replacing,))
            raise
        except OSError as error:
            if error.errno in DISK_FULL:
                raise NotWritable(f"the disk is too full to write {path}: free space") from error
            raise StoreFailed(f"cannot write {path}: {error.strerror or error}") from error

    def _write(self, path: str, content: Callable[[], bytes]) -> None:
        """[pool] Raises OSError."""
        data = content()
        watched = self._watch.begin(size_bytes=len(data))
        try:
            replace_atomically(self._disk, path, data)
        finally:
            self._watch.end(watched)

    def _end_write(self, path: str, replacing: asyncio.Future[None]) -> None:
        self._writing.discard(replacing)
        if not replacing.cancelled() and replacing.exception() is None:
            for told in self._written_told:
                told(path)
