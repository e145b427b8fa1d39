"""Copies of the master's tables on a slave: they become the slave's own.

Owns: which content of each file was taken. Invariant: a table for which the nameserver has given
this replica a newer version than the master has is left alone until the master has caught up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from isal.isal_zlib import crc32

from aerobee.broker.replication.table_source import COPIED_PATHS
from aerobee.runtime.errors import NotWritable
from aerobee.runtime.log import log_event
from aerobee.store.engine.tables.config_tables import (
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    Named,
    NamedConfigs,
    SubscriptionGroupTable,
    TopicTable,
)

log = logging.getLogger(__name__)

Config = TypeVar("Config", bound=Named)
Table = TypeVar("Table")


class SavedFiles(Protocol):
    """The part of `TableFiles` that is needed here."""

    async def save_if_room(self, path: str) -> None: ...

    async def write(self, path: str, data: bytes) -> None: ...


class TableCopies:
    """One for the life of the broker, across all of its streams."""

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        files: SavedFiles,
        pool: Executor,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._files = files
        self._pool = pool
        self._taken: dict[str, int] = {}

    @property
    def taken(self) -> dict[str, int]:
        """Checksums of the master's files that this slave has, by path."""
        return dict(self._taken)

    async def take(self, path: str, content: bytes) -> None:
        """Make the slave's table equal to the master's.

        On a full disk the table is served from memory, and saved by the next snapshot that finds
        room.

        Raises:
            StoreFailed: the disk failed.
        """
        if path not in COPIED_PATHS:
            log_event(log, "unknown table", level=logging.WARNING, path=path)
            return
        try:
            if path == TOPICS_PATH:
                await self._take_topics(content)
            elif path == SUBSCRIPTION_GROUPS_PATH:
                masters = await self._on_thread(SubscriptionGroupTable.load, content)
                _make_equal(self._groups, masters)
                await self._files.save_if_room(path)
            else:
                await self._files.write(path, content)
        except NotWritable as error:
            log_event(log, "table not saved", level=logging.WARNING, path=path, reason=error)
            return
        except ValueError as error:
            log_event(log, "the master's table is damaged", level=logging.WARNING, reason=error)
        self._taken[path] = crc32(content)

    async def _take_topics(self, content: bytes) -> None:
        masters = await self._on_thread(TopicTable.load, content)
        own = self._topics
        # Revisions of different histories are not comparable; the next answer to a heartbeat
        # repairs a table that was older.
        is_comparable = masters.metadata_history == own.metadata_history
        if is_comparable and masters.metadata_revision < own.metadata_revision:
            return  # the master's file changes once it has caught up
        _make_equal(own, masters)
        for name, deleted_at_ms in masters.ending.items():
            own.begin_ending(name, deleted_at_ms)
        own.metadata_revision = masters.metadata_revision
        own.metadata_history = masters.metadata_history
        await self._files.save_if_room(TOPICS_PATH)

    async def _on_thread(self, load: Callable[[bytes], Table], content: bytes) -> Table:
        """On a thread, because large tables take a while."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, load, content)


def _make_equal(own: NamedConfigs[Config], masters: NamedConfigs[Config]) -> None:
    for config in masters.configs():
        own.put(config)
    for name in own.names():
        if name not in masters:
            own.remove(name)
