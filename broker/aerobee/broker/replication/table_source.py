"""The master's tables for its slaves: the files as they are on disk.

Owns: the latest content read of each file. A file is read on a thread, when it is requested and was
written since the last read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from isal.isal_zlib import crc32

from aerobee.runtime.waiting import Turns
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.tables.config_tables import SUBSCRIPTION_GROUPS_PATH, TOPICS_PATH
from aerobee.store.engine.tables.delay_offset_table import DELAY_OFFSETS_PATH

COPIED_PATHS = (TOPICS_PATH, SUBSCRIPTION_GROUPS_PATH, DELAY_OFFSETS_PATH)
"""Consumer offsets are not among them: they are replicated in the log."""
TABLE_BYTES_MAX = 24 * 1024 * 1024
"""A larger one would not fit into a frame."""


@dataclass(frozen=True, slots=True)
class TableContent:
    """One file, as it was read."""

    content: bytes
    checksum: int


class TableSource:
    """One for all slaves."""

    def __init__(self, disk: Disk, pool: Executor) -> None:
        self._disk = disk
        self._pool = pool
        self._known: dict[str, TableContent] = {}
        self._unread = set(COPIED_PATHS)
        self._lock = Turns()

    def written(self, path: str) -> None:
        """A file was replaced, possibly not one of these."""
        if path in COPIED_PATHS:
            self._unread.add(path)

    async def current(self) -> Mapping[str, TableContent]:
        """The tables by path. One that cannot be read now counts as unchanged."""
        async with self._lock:
            # Always in the same order, so that slaves get topics before tables that refer to them.
            paths = [path for path in COPIED_PATHS if path in self._unread]
            self._unread.clear()
            if paths:
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(self._pool, _read, self._disk, paths)
                self._known |= found
                self._unread.update(path for path in paths if path not in found)
            return self._known


def _read(disk: Disk, paths: Iterable[str]) -> dict[str, TableContent]:
    """[any thread] The ones that exist."""
    found: dict[str, TableContent] = {}
    for path in paths:
        try:
            content = disk.read_file(path)
        except OSError:
            continue
        if 0 < len(content) <= TABLE_BYTES_MAX:
            found[path] = TableContent(content, crc32(content))
    return found
