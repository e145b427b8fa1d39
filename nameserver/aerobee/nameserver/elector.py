"""Makes sure that every replica set has a master: holds the elections that are due.

Owns: one task. It checks the routes after every change and once a second, so an election follows
the end of a master's lease as fast as etcd reports it. Every nameserver does this; one of them
succeeds.
"""

from __future__ import annotations

import asyncio
import logging

from aerobee.nameserver.election import Election, LiveReplicas, has_master
from aerobee.nameserver.replica_sets import ReplicaSets, is_hasty
from aerobee.nameserver.route_cache import RouteCache
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import ReplicaSet
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
HASTY_PAUSE_S = 1.0
"""How long to delay an election whose outcome depends on which replicas are back and how much they
have."""
HEARD_PAUSE_S = 5.0
"""The minimum delay if that depends on heartbeats: most brokers send one within this time. A broker
that stays silent longer than its lease is no longer registered."""


class Elector:
    """Elects for all replica sets of the cluster, alongside the electors of the other
    nameservers."""

    def __init__(self, replica_sets: ReplicaSets, cache: RouteCache, *, clock: Clock) -> None:
        self._replica_sets = replica_sets
        self._cache = cache
        self._clock = clock
        self._hasty_since_s: dict[str, float] = {}
        self._orphans: set[str] = set()
        self._short_since_s: dict[str, float] = {}

    async def run(self) -> None:
        """Hold elections until cancelled."""
        wake = asyncio.Event()
        with self._cache.changed.subscribed(wake.set):
            while True:
                wake.clear()
                # Without etcd, nobody knows which brokers are alive.
                if self._cache.version > 0 and not self._cache.stale:
                    await self.look(self._cache.table)
                try:
                    async with asyncio.timeout(LOOK_INTERVAL_S):
                        await wake.wait()
                except TimeoutError:
                    pass

    async def look(self, table: RouteTable) -> None:
        """Hold the elections that are due now by these routes."""
        live_by_replica_set = table.live_by_replica_set()
        due = [
            (replica_set, live)
            for name, replica_set in table.replica_sets.items()
            if self._due(replica_set, live := live_by_replica_set.get(name, {})) is not None
        ]
        # If a machine dies with the masters of several replica sets, none of these waits for
        # another.
        await asyncio.gather(*(self._hold(replica_set, live) for replica_set, live in due))

    def _due(self, replica_set: ReplicaSet, live: LiveReplicas) -> Election | None:
        """The election to hold now."""
        due = self._replica_sets.election_due(replica_set, live)
        self._note_orphan(
            replica_set, live, is_orphan=due is None and not has_master(replica_set, live)
        )
        if due is None or not is_hasty(replica_set, due):
            self._hasty_since_s.pop(replica_set.broker_name, None)
            return due
        pause_s = HASTY_PAUSE_S
        if due.is_short and due.is_unclean:
            lease_s = max(record.lease_ms for record in live.values()) / 1_000
            pause_s = max(HEARD_PAUSE_S, lease_s + LOOK_INTERVAL_S)
        return None if self._is_too_early(replica_set.broker_name, pause_s) else due

    async def _hold(self, replica_set: ReplicaSet, live: LiveReplicas) -> None:
        try:
            await self._replica_sets.learn_noted(replica_set)
            due = self._due(replica_set, live)
            if due is not None:
                await self._replica_sets.hold(replica_set, due)
        except RegistryUnavailable as error:
            log_event(
                log,
                "election not held",
                level=logging.WARNING,
                group=replica_set.broker_name,
                reason=error,
            )

    def _is_too_early(self, name: str, pause_s: float) -> bool:
        now_s = self._clock.monotonic_s()
        return now_s - self._hasty_since_s.setdefault(name, now_s) < pause_s

    def _note_orphan(self, replica_set: ReplicaSet, live: LiveReplicas, *, is_orphan: bool) -> None:
        """Log, once, that a replica set has replicas but cannot have a master now."""
        name = replica_set.broker_name
        short = self._replica_sets.short_of(replica_set, live) if is_orphan else {}
        if not short:
            self._short_since_s.pop(name, None)
        if not is_orphan:
            self._orphans.discard(name)
        elif live and name not in self._orphans:
            now_s = self._clock.monotonic_s()
            if short and now_s - self._short_since_s.setdefault(name, now_s) < HEARD_PAUSE_S:
                return  # they may have sent it before the master said what is confirmed
            self._orphans.add(name)
            event = "no master: no replica with all messages is alive; start one of them"
            if short:
                event = (
                    "no master: the live replicas in sync lack messages that were acknowledged; "
                    "start one that has them"
                )
            log_event(
                log,
                event,
                level=logging.ERROR,
                group=name,
                in_sync=[one.broker_id for one in replica_set.in_sync],
                alive=sorted(live),
                confirmed_end=self._replica_sets.confirmed_end(replica_set),
                lacking=short,
            )
