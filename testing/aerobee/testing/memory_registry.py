"""What a nameserver keeps in etcd, kept in memory: revisions, transactions, leases, watches.

Belongs to one event loop, whose time ends leases. Several nameservers of that loop may share it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aerobee.nameserver.etcd_calls import EtcdCalls
from aerobee.nameserver.key_values import (
    Compacted,
    Delete,
    KeyEvent,
    KeyValue,
    Lease,
    LeaseNotFound,
    Put,
    Snapshot,
    TransactionResult,
    WatchBatch,
)
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import RegistryUnavailable

HISTORY_MAX = 10_000
"""How far before the newest change a watch may begin."""
_ENDED = None


@dataclass(slots=True)
class _Lease:
    duration_ms: int
    expiry: asyncio.TimerHandle


class MemoryRegistry:
    """A `KeyValueStore`. While `is_away` it answers nothing and its watches have ended."""

    fresh_for_s = 3_600.0
    """Nothing is ever in flight: a watch has everything at once, or has ended."""

    def __init__(self, clock: Clock) -> None:
        self.calls = EtcdCalls(clock)
        self._loop = asyncio.get_running_loop()
        self._entries: dict[str, KeyValue] = {}
        self._revision = 1
        self._history: list[KeyEvent] = []
        self._forgotten = 0
        """The newest revision that is no longer in the history."""
        self._leases: dict[int, _Lease] = {}
        self._lease_ids = 0
        self._watches: dict[asyncio.Queue[WatchBatch | None], str] = {}
        self._is_away = False

    @property
    def endpoint(self) -> str:
        return "the registry in memory"

    @property
    def is_away(self) -> bool:
        return self._is_away

    def go_away(self) -> None:
        """Nothing is answered until `come_back`. Leases keep running, as in an etcd that merely
        cannot be reached."""
        self._is_away = True
        for watch in self._watches:
            watch.put_nowait(_ENDED)

    def come_back(self) -> None:
        self._is_away = False

    def close(self) -> None:
        """Leases no longer end."""
        for lease in self._leases.values():
            lease.expiry.cancel()

    # -------------------------------------------------------------------------------- reading

    async def get(self, key: str) -> KeyValue | None:
        self._answer()
        return self._entries.get(key)

    async def get_with_prefixes(
        self, key: str, *prefixes: str
    ) -> tuple[KeyValue | None, tuple[KeyValue, ...]]:
        self._answer()
        found = [entry for prefix in prefixes for entry in self._below(prefix)]
        return self._entries.get(key), tuple(found)

    async def snapshot(self, prefix: str) -> Snapshot:
        self._answer()
        return Snapshot(self._revision, tuple(self._below(prefix)))

    async def revision(self) -> int:
        self._answer()
        return self._revision

    async def is_unchanged(self, prefix: str, *, count: int, revision: int) -> bool:
        self._answer()
        entries = self._below(prefix)
        return len(entries) == count and all(entry.revision <= revision for entry in entries)

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, from_revision: int
    ) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        self._answer()
        arriving: asyncio.Queue[WatchBatch | None] = asyncio.Queue()
        self._watches[arriving] = prefix
        try:
            yield self._batches(arriving, prefix, from_revision)
        finally:
            del self._watches[arriving]

    async def _batches(
        self, arriving: asyncio.Queue[WatchBatch | None], prefix: str, from_revision: int
    ) -> AsyncIterator[WatchBatch]:
        if from_revision <= self._forgotten:
            raise Compacted(f"history starts after revision {self._forgotten}")
        yield WatchBatch(())
        missed = [
            event
            for event in self._history
            if event.revision >= from_revision and event.key.startswith(prefix)
        ]
        seen = self._revision
        if missed:
            yield WatchBatch(tuple(missed))
        while (batch := await arriving.get()) is not _ENDED:
            events = tuple(event for event in batch.events if event.revision > seen)
            if events:
                yield WatchBatch(events)
        raise RegistryUnavailable(f"{self.endpoint} is away")

    # -------------------------------------------------------------------------------- writing

    async def transaction(
        self, expected: Mapping[str, int], changes: Sequence[Put | Delete]
    ) -> TransactionResult:
        self._answer(is_write=True)
        for key, revision in expected.items():
            entry = self._entries.get(key)
            if (0 if entry is None else entry.revision) != revision:
                return TransactionResult(False, self._revision)
        for change in changes:
            if isinstance(change, Put) and change.lease_id and change.lease_id not in self._leases:
                raise LeaseNotFound(f"lease {change.lease_id:x} has ended")
        self._make(changes)
        return TransactionResult(True, self._revision)

    async def grant_lease(self, duration_ms: int) -> Lease:
        self._answer(is_write=True)
        self._lease_ids += 1
        lease_id = self._lease_ids
        whole_ms = math.ceil(duration_ms / 1_000) * 1_000
        self._leases[lease_id] = _Lease(whole_ms, self._expiry(lease_id, whole_ms))
        return Lease(lease_id, whole_ms)

    async def keep_alive(self, lease_id: int) -> Lease:
        self._answer()
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseNotFound(f"lease {lease_id:x} has ended")
        lease.expiry.cancel()
        lease.expiry = self._expiry(lease_id, lease.duration_ms)
        return Lease(lease_id, lease.duration_ms)

    async def revoke_lease(self, lease_id: int) -> None:
        self._answer(is_write=True)
        self._end_lease(lease_id)

    async def keep_trying_writes(self) -> None:
        """It never refuses only writes."""
        await self._loop.create_future()

    # -------------------------------------------------------------------------------- inside

    def _answer(self, *, is_write: bool = False) -> None:
        if self._is_away:
            error = RegistryUnavailable(f"{self.endpoint} is away")
            self.calls.failed(error, is_write=is_write)
            raise error
        self.calls.answered(0.0, is_write=is_write)

    def _below(self, prefix: str) -> list[KeyValue]:
        return [self._entries[key] for key in sorted(self._entries) if key.startswith(prefix)]

    def _expiry(self, lease_id: int, duration_ms: int) -> asyncio.TimerHandle:
        return self._loop.call_later(duration_ms / 1_000, self._end_lease, lease_id)

    def _end_lease(self, lease_id: int) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return
        lease.expiry.cancel()
        self._make([Delete(key) for key, at in self._entries.items() if at.lease_id == lease_id])

    def _make(self, changes: Sequence[Put | Delete]) -> None:
        """All at one revision."""
        revision = self._revision + 1
        events = []
        for change in changes:
            if isinstance(change, Put):
                entry = KeyValue(change.key, change.value, revision, change.lease_id)
                self._entries[change.key] = entry
                events.append(KeyEvent(change.key, change.value, revision, change.lease_id))
            elif self._entries.pop(change.key, None) is not None:
                events.append(KeyEvent(change.key, None, revision))
        if not events:
            return
        self._revision = revision
        self._history += events
        if len(self._history) > 2 * HISTORY_MAX:
            self._forgotten = self._history[-HISTORY_MAX - 1].revision
            self._history = [one for one in self._history if one.revision > self._forgotten]
        for watch, prefix in self._watches.items():
            told = tuple(event for event in events if event.key.startswith(prefix))
            if told:
                watch.put_nowait(WatchBatch(told))
