"""The file of a journal's state: it saves reading the journal from its last image.

Owns: when it is written, and that it never says more than the journal on disk: what is lost with
the journal's end must not take effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from aerobee.broker.journal.journal import Journal
from aerobee.broker.sending.durability import Durability
from aerobee.runtime.errors import NotWritable
from aerobee.runtime.waiting import Turns
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.atomic_file import (
    BACKUP_SUFFIX,
    TEMPORARY_SUFFIX,
    Loaded,
    Source,
    read_with_backup,
    replace_atomically,
)
from aerobee.store.flush.table_files import TableFiles

SAVED_AFTER_RECORDS: Final = 1_000
"""At most this many records of the journal are read when a broker starts, plus those that came
while the file was being written."""


class FiledState(Protocol):
    """A journal's state that has a file."""

    @property
    def next_offset(self) -> int: ...

    def snapshot(self) -> Callable[[], bytes]:
        """A callable that encodes the file as of now; call it on [any thread]."""
        ...


S = TypeVar("S", bound=FiledState)


def load_state(disk: Disk, path: str, read: Callable[[bytes], S]) -> S | None:
    """The state in the file; None: there is none, so the journal must be read in full. Blocks.

    Raises OSError.
    """
    try:
        loaded = read_with_backup(disk, path, read)
    except StoreUnusable as error:
        loaded = Loaded(None, Source.NEITHER, str(error))
    if loaded.problem is not None:
        # A file that is ignored now must not become valid later, when the journal has grown again.
        forget_state(disk, path)
        if loaded.value is not None:
            replace_atomically(disk, path, loaded.value.snapshot()())
    return loaded.value


def forget_state(disk: Disk, path: str) -> None:
    """Remove the file, because it belongs to another log. Blocks; raises OSError."""
    for suffix in ("", BACKUP_SUFFIX, TEMPORARY_SUFFIX):
        if disk.exists(path + suffix):
            disk.remove(path + suffix)
            disk.fsync_directory(path.rpartition("/")[0])


class StateFile:
    """The file of one journal; on the loop."""

    def __init__(
        self,
        path: str,
        state: FiledState,
        journal: Journal[Any, Any],
        files: TableFiles,
        store: MessageStore,
        durability: Durability,
    ) -> None:
        self._path = path
        self._state = state
        self._journal = journal
        self._files = files
        self._store = store
        self._durability = durability
        self._writing = Turns()
        self._saved_offset = state.next_offset
        self._due = asyncio.Event()

    def look(self) -> None:
        """Called when more of the log is confirmed."""
        if self._state.next_offset - self._saved_offset >= SAVED_AFTER_RECORDS:
            self._due.set()

    async def run(self) -> None:
        """Write it from time to time, until cancelled. Raises StoreFailed."""
        while True:
            await self._due.wait()
            await self.save_if_room()
            self._due.clear()

    async def save_if_room(self) -> None:
        """Write it if it is outdated; on a full disk it stays as it is. Raises StoreFailed."""
        async with self._writing:
            next_offset = self._state.next_offset
            if next_offset == self._saved_offset:
                return
            encode = self._state.snapshot()
            end = self._store.appended_end
            self._durability.request_flush()
            await self._durability.flushed.wait(end, float("inf"))
            try:
                await self._files.write_encoded(self._path, encode)
            except NotWritable:
                return
            self._saved_offset = next_offset
            self._journal.saved(next_offset)
