"""What a nameserver needs of etcd; `etcd.Etcd` is the real one, tests may put another in its place.

What always holds: every call is bounded in time, and a store that is away shows as
RegistryUnavailable and nothing else.
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
        """How calls go."""
        ...

    @property
    def endpoint(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def fresh_for_s(self) -> float:
        """How long what a watch has brought counts as all there is, from a proof of it on."""
        ...

    async def get(self, key: str) -> KeyValue | None:
        """One key."""
        ...

    async def get_with_prefixes(
        self, key: str, *prefixes: str
    ) -> tuple[KeyValue | None, tuple[KeyValue, ...]]:
        """One key, and the few that start with one of `prefixes`, as of one revision."""
        ...

    async def snapshot(self, prefix: str) -> Snapshot:
        """All keys that start with `prefix`, as of one revision."""
        ...

    async def revision(self) -> int:
        """The store's revision; asked once and cheap."""
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
        """Start the lease's time again."""
        ...

    async def revoke_lease(self, lease_id: int) -> None:
        """End the lease and all keys under it; fine if it has ended already."""
        ...

    async def keep_trying_writes(self) -> None:
        """While writes are refused, see now and then whether one is taken again. Until
        cancelled."""
        ...

    def watch(
        self, prefix: str, *, from_revision: int
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchBatch]]:
        """All changes below `prefix` from `from_revision` on; the first batch is empty."""
        ...
