"""What a nameserver needs from etcd; `etcd.Etcd` is the real one, and tests may use another.

Invariant: every call is bounded in time, and a store that is away shows as RegistryUnavailable and
nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from aerobee.nameserver.etcd_calls import EtcdCalls
from aerobee.nameserver.key_values import (
    Delete,
    KeyValue,
    Lease,
    Put,
    Snapshot,
    TransactionResult,
    WatchBatch,
)


class KeyValueStore(Protocol):
    """See `Etcd` for what each call raises."""

    @property
    def calls(self) -> EtcdCalls:
        """How calls are going."""
        ...

    @property
    def endpoint(self) -> str:
        """Where it is, in readable form."""
        ...

    @property
    def fresh_for_s(self) -> float:
        """How long after a proof the changes delivered by a watch count as complete."""
        ...

    async def get(self, key: str) -> KeyValue | None:
        """One key."""
        ...

    async def get_with_prefixes(
        self, key: str, *prefixes: str
    ) -> tuple[KeyValue | None, tuple[KeyValue, ...]]:
        """One key and the few that start with one of `prefixes`, as of one revision."""
        ...

    async def snapshot(self, prefix: str) -> Snapshot:
        """All keys that start with `prefix`, as of one revision."""
        ...

    async def revision(self) -> int:
        """The store's revision; asked once, and cheap."""
        ...

    async def is_unchanged(self, prefix: str, *, count: int, revision: int) -> bool:
        """Whether `count` keys start with `prefix`, all as they were at `revision`."""
        ...

    async def transaction(
        self, expected: Mapping[str, int], changes: Sequence[Put | Delete]
    ) -> TransactionResult:
        """Make all `changes` if each expected key is at its revision (0: does not exist)."""
        ...

    async def grant_lease(self, duration_ms: int) -> Lease:
        """A new lease; it may be longer."""
        ...

    async def keep_alive(self, lease_id: int) -> Lease:
        """Restart the lease's time."""
        ...

    async def revoke_lease(self, lease_id: int) -> None:
        """End the lease and all its keys; not an error if it has already ended."""
        ...

    async def keep_trying_writes(self) -> None:
        """While writes are refused, check from time to time whether one is accepted again. Runs
        until cancelled."""
        ...

    def watch(
        self, prefix: str, *, from_revision: int
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """All changes below `prefix` from `from_revision` on; the first batch is empty."""
        ...
