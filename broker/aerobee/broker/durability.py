"""What follows an append: flush it, let consumers see it, tell whoever waits.

Owns: the order of these steps in each flush mode. Under ASYNC_FLUSH an append is visible at once
and flushed by interval and size; under SYNC_FLUSH it is flushed first, by group commit: one fsync
covers everything appended before it began.
"""

from __future__ import annotations

from typing import Protocol

from aerobee.broker.egress import Egress
from aerobee.broker.store.config import FlushMode, StoreConfig
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.watermarks import FlushWaiters

BEHIND_SHARE = 0.75
"""Senders are read no faster than the disk writes above this share of the unflushed maximum."""


class Flusher(Protocol):
    """The flush thread's side on the loop."""

    def appended(self) -> None:
        """Something was appended: flush as the policy wants."""
        ...

    def request(self) -> None:
        """Flush all that is appended now, soon."""
        ...


class Durability:
    """Called by the send path after appends and by the flush thread's return after flushes."""

    def __init__(
        self,
        store: MessageStore,
        egress: Egress,
        waiters: FlushWaiters,
        config: StoreConfig,
    ) -> None:
        self._store = store
        self._egress = egress
        self._waiters = waiters
        self._flusher: Flusher | None = None
        self._is_sync = config.flush_mode is FlushMode.SYNC
        self._behind_bytes = int(config.unflushed_bytes_max * BEHIND_SHARE)

    def attach(self, flusher: Flusher) -> None:
        """The flush thread needs `on_flushed` before it can be made; this is the other half."""
        self._flusher = flusher

    def on_appended(self) -> None:
        """A frame has been appended.

        Raises:
            StoreFailed: the store can keep no promises any more.
        """
        store = self._store
        if not self._is_sync and store.appended_end > store.confirmed_end:
            self._egress.on_grown(store.confirm(store.appended_end))
        if self._flusher is not None:
            self._flusher.appended()

    def on_flushed(self, flushed_end: int) -> None:
        """The disk holds everything below `flushed_end`."""
        store = self._store
        if self._is_sync and flushed_end > store.confirmed_end:
            self._egress.on_grown(store.confirm(flushed_end))
        self._waiters.on_flushed(flushed_end)

    def is_behind(self) -> bool:
        """So far that senders should be read no faster than the disk writes."""
        return self._store.unflushed_bytes > self._behind_bytes

    async def wait_progress(self) -> None:
        """Until the next flush."""
        if self._flusher is not None:
            self._flusher.request()
        await self._waiters.wait_progress()

    async def drain(self) -> None:
        """Until everything appended is on the disk."""
        while self._store.flushed_end < self._store.appended_end:
            await self.wait_progress()
