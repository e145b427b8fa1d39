"""The file of what is done with delayed messages: it saves reading the journal from its last image.

Owns: when it is written, and that it never says more than the journal on the disk does, or a
message could count as delivered that is not.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aerobee.broker.flush.table_files import TableFiles
from aerobee.broker.journal.journal import Journal
from aerobee.broker.sending.durability import Durability
from aerobee.broker.store.disk import Disk
from aerobee.broker.store.errors import StoreUnusable
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.tables.atomic_file import (
    BACKUP_SUFFIX,
    TEMPORARY_SUFFIX,
    Loaded,
    Source,
    read_with_backup,
    replace_atomically,
)
from aerobee.broker.timers.entries import TimerEntry
from aerobee.broker.timers.state import TimerJournalState, file_reader
from aerobee.broker.timers.term import TimerTerm
from aerobee.runtime.errors import NotWritable

PROGRESS_PATH: Final = "config/timerProgress"
SAVED_AFTER_RECORDS: Final = 1_000
"""So many records of the journal are read at most when a broker starts; and those that came while
the file was written."""


def load_progress(disk: Disk, journal_end: int) -> TimerJournalState:
    """What is done as the file says, or nothing: then the journal says it all. Blocks.

    Raises OSError.
    """
    try:
        loaded = read_with_backup(disk, PROGRESS_PATH, file_reader(journal_end))
    except StoreUnusable as error:
        loaded = Loaded(None, Source.NEITHER, str(error))
    if loaded.problem is not None:
        # What does not count now must not count later, when the journal has grown again.
        forget_progress(disk)
        if loaded.value is not None:
            replace_atomically(disk, PROGRESS_PATH, loaded.value.encode_file())
    return TimerJournalState() if loaded.value is None else loaded.value


def forget_progress(disk: Disk) -> None:
    """Remove the file, for what it says is of another log. Blocks; raises OSError."""
    for suffix in ("", BACKUP_SUFFIX, TEMPORARY_SUFFIX):
        if disk.exists(PROGRESS_PATH + suffix):
            disk.remove(PROGRESS_PATH + suffix)
            disk.fsync_directory(PROGRESS_PATH.rpartition("/")[0])


class ProgressFile:
    """On the loop."""

    def __init__(
        self,
        state: TimerJournalState,
        journal: Journal[TimerEntry, TimerTerm],
        files: TableFiles,
        store: MessageStore,
        durability: Durability,
    ) -> None:
        self._state = state
        self._journal = journal
        self._files = files
        self._store = store
        self._durability = durability
        self._writing = asyncio.Lock()
        self._saved_offset = state.next_offset
        self._due = asyncio.Event()

    def look(self) -> None:
        """More of the log is confirmed."""
        if self._state.next_offset - self._saved_offset >= SAVED_AFTER_RECORDS:
            self._due.set()

    async def run(self) -> None:
        """Write it now and then, until cancelled. Raises StoreFailed."""
        while True:
            await self._due.wait()
            await self.save_if_room()
            self._due.clear()

    async def save_if_room(self) -> None:
        """Write it if it is old; on a full disk it stays as it is. Raises StoreFailed."""
        async with self._writing:
            next_offset = self._state.next_offset
            if next_offset == self._saved_offset:
                return
            encode = self._state.snapshot()
            end = self._store.appended_end
            self._durability.request_flush()
            await self._durability.flushed.wait(end, float("inf"))
            data = await asyncio.to_thread(encode)
            try:
                await self._files.write(PROGRESS_PATH, data)
            except NotWritable:
                return
            self._saved_offset = next_offset
            self._journal.saved(next_offset)
