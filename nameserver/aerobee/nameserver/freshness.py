"""Proves that a watch has delivered everything that etcd has.

A silent watch may have nothing to deliver, or may hang on a dead network; the watch itself cannot
show which. So the quorum is asked, with a read that costs next to nothing, and what was followed
counts as fresh for `FRESH_FOR_S` from the moment of asking.

Invariant: while `is_proven`, everything that etcd had `FRESH_FOR_S` ago has been followed.
"""

from __future__ import annotations

import asyncio

from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.key_values import Snapshot, WatchBatch
from aerobee.runtime.clock import Clock

FRESH_FOR_S = 2.0
"""What can no longer be proved to be younger than this is marked stale."""
ARRIVAL_S = 0.1
"""How long a change in etcd may take to arrive."""
NEVER_S = float("-inf")


class Freshness:
    """The freshness of a snapshot of all keys below a prefix and the changes that followed it."""

    def __init__(self, etcd: KeyValueStore, prefix: str, clock: Clock) -> None:
        self._etcd = etcd
        self._prefix = prefix
        self._clock = clock
        self._proven_s = NEVER_S
        self._keys: set[str] = set()
        # All changes up to this revision have arrived.
        self._revision = 0

    def __repr__(self) -> str:
        return f"<Freshness revision={self._revision} left_s={self.left_s:.1f}>"

    @property
    def left_s(self) -> float:
        """How long the last proof still holds; zero or less: it has expired."""
        return self._proven_s + self._etcd.fresh_for_s - self._clock.monotonic_s()

    @property
    def age_s(self) -> float | None:
        """Since the last proof; None before the first."""
        return None if self._proven_s == NEVER_S else self._clock.monotonic_s() - self._proven_s

    @property
    def is_proven(self) -> bool:
        return self.left_s > 0

    def begin(self, snapshot: Snapshot, *, asked_s: float) -> None:
        """A snapshot requested at `asked_s` is the state from now on."""
        self._keys = {entry.key for entry in snapshot.entries}
        self._revision = snapshot.revision
        self._proven_s = asked_s

    def add(self, batch: WatchBatch) -> None:
        for event in batch.events:
            if event.value is None:
                self._keys.discard(event.key)
            else:
                self._keys.add(event.key)
            self._revision = max(self._revision, event.revision)

    async def prove(self) -> bool:
        """Whether everything that etcd has now has arrived; if so, moves the proof.

        Raises:
            RegistryUnavailable: etcd does not say.
        """
        asked_s = self._clock.monotonic_s()
        revision = await self._etcd.revision()
        if revision > self._revision:
            await asyncio.sleep(ARRIVAL_S)
        # Other users of this etcd advance its revision without our seeing it.
        if revision > self._revision and not await self._is_unchanged():
            return False
        self._proven_s = max(self._proven_s, asked_s)
        return True

    async def _is_unchanged(self) -> bool:
        count, revision = len(self._keys), self._revision
        return await self._etcd.is_unchanged(self._prefix, count=count, revision=revision)
