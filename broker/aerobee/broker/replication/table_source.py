"""The master's tables for its slaves: the files as they lie on the disk, and when they change.

Owns: the newest content of each file that was read. The files are looked at, at most once a second,
and read on a thread; what is being replaced at that moment counts as unchanged.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass

from isal.isal_zlib import crc32

from aerobee.broker.store.disk import Disk
from aerobee.broker.store.tables.config_tables import SUBSCRIPTION_GROUPS_PATH, TOPICS_PATH
from aerobee.broker.store.tables.delay_offset_table import DELAY_OFFSETS_PATH
from aerobee.runtime.clock import Clock

COPIED_PATHS = (TOPICS_PATH, SUBSCRIPTION_GROUPS_PATH, DELAY_OFFSETS_PATH)
"""Consumer offsets are not among them: they travel in the log."""
LOOK_INTERVAL_S = 0.9
RECENT_MS = 3_000
"""So long after a change a file is read again, should it have changed twice in one moment."""
TABLE_BYTES_MAX = 24 * 1024 * 1024
"""A larger one would not fit into a frame."""


@dataclass(frozen=True, slots=True)
class TableContent:
    """One file, as it was read."""

    content: bytes
    checksum: int
    modified_ms: int


class TableSource:
    """One for all slaves."""

    def __init__(self, disk: Disk, pool: Executor, clock: Clock) -> None:
        self._disk = disk
        self._pool = pool
        self._clock = clock
        self._known: dict[str, TableContent] = {}
        self._looked_s = float("-inf")
        self._lock = asyncio.Lock()

    async def current(self) -> dict[str, TableContent]:
        """The tables by path, at most a second old. A disk that cannot be read changes nothing."""
        async with self._lock:
            now_s = self._clock.monotonic_s()
            if now_s - self._looked_s >= LOOK_INTERVAL_S:
                self._looked_s = now_s
                loop = asyncio.get_running_loop()
                now_ms, known = self._clock.now_ms(), self._known
                self._known = await loop.run_in_executor(
                    self._pool, _look, self._disk, known, now_ms
                )
            return self._known


def _look(disk: Disk, known: dict[str, TableContent], now_ms: int) -> dict[str, TableContent]:
    """[any thread] The tables as they are now."""
    found = dict(known)
    for path in COPIED_PATHS:
        folder, _, name = path.rpartition("/")
        try:
            entry = next((entry for entry in disk.list(folder) if entry.name == name), None)
            if entry is None or not 0 < entry.size_bytes <= TABLE_BYTES_MAX:
                continue
            before = known.get(path)
            is_recent = abs(now_ms - entry.modified_ms) < RECENT_MS
            if before is None or before.modified_ms != entry.modified_ms or is_recent:
                content = disk.read_file(path)
                found[path] = TableContent(content, crc32(content), entry.modified_ms)
        except OSError:
            continue
    return found
