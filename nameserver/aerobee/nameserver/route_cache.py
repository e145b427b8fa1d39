"""Keeps a RouteTable up to date: snapshot, then watch from the next revision, for ever.

Owns: the current table, whether it is stale, and the loop that mends both. A lost connection or a
compacted history leads to a new snapshot; meanwhile the last table is served and marked stale.

What always holds: the table only moves forward (but for an etcd restored from a backup), and
changes of one revision appear together.
"""

from __future__ import annotations

import asyncio
import logging
import random

import tenacity

from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import Compacted, WatchBatch
from aerobee.nameserver.notifier import Notifier
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import Keys
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff, BackoffWait

log = logging.getLogger(__name__)


class RouteCache:
    """The routes as this nameserver knows them; `run` keeps them fresh."""

    def __init__(self, etcd: Etcd, keys: Keys, *, backoff: Backoff, chance: random.Random) -> None:
        self._etcd = etcd
        self._keys = keys
        self._backoff = backoff
        self._chance = chance
        self._table: RouteTable | None = None
        self._stale = True
        self.changed = Notifier()
        """Notified after every change of the table or of `stale`."""

    def __repr__(self) -> str:
        return f"<RouteCache version={self.version} stale={self._stale}>"

    @property
    def table(self) -> RouteTable:
        """
        Raises:
            RegistryUnavailable: etcd was not reached since the start.
        """
        if self._table is None:
            raise RegistryUnavailable(
                f"no routes are known yet: etcd at {self._etcd.endpoint} was not reached since "
                "this nameserver started; start etcd or correct the endpoints"
            )
        return self._table

    @property
    def version(self) -> int:
        """Of the current table; 0 before the first."""
        return 0 if self._table is None else self._table.version

    @property
    def stale(self) -> bool:
        """etcd is away: changes may be missing."""
        return self._stale

    async def wait_version(self, version: int, timeout_s: float) -> bool:
        """Whether the table reached `version` in time."""
        return await self.changed.wait_until(lambda: self.version >= version, timeout_s)

    async def run(self) -> None:
        """Follow etcd until cancelled."""
        while True:
            retrying = tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type((RegistryUnavailable, Compacted)),
                wait=BackoffWait(self._backoff, self._chance),
                before_sleep=self._on_failed_attempt,
            )
            await retrying(self._follow)

    async def _follow(self) -> None:
        """Snapshot and watch; returns when an established watch was lost.

        Raises:
            RegistryUnavailable, Compacted: it did not get as far as a watch.
        """
        snapshot = await self._etcd.snapshot(self._keys.prefix)
        self._become(RouteTable.from_snapshot(self._keys, snapshot), stale=True)
        established = False
        try:
            async with self._etcd.watch(
                self._keys.prefix, from_revision=snapshot.revision + 1
            ) as batches:
                async for batch in batches:
                    if not established:
                        log_event(log, "routes follow etcd", version=self.version)
                    established = True
                    self._apply(batch)
        except (RegistryUnavailable, Compacted) as error:
            if not established:
                raise
            self._lose(error)
            # An etcd that accepts watches only to end them must not make this a busy loop.
            await asyncio.sleep(self._backoff.delay_s(1, self._chance))

    def _apply(self, batch: WatchBatch) -> None:
        self._become(self.table.apply(self._keys, batch.events), stale=False)

    def _become(self, table: RouteTable, *, stale: bool) -> None:
        if table is self._table and stale == self._stale:
            return
        known = frozenset() if self._table is None else self._table.unreadable
        for key in sorted(table.unreadable - known):
            log_event(log, "unreadable key ignored", level=logging.ERROR, key=key)
        self._table, self._stale = table, stale
        self.changed.notify()

    def _lose(self, reason: BaseException | None) -> None:
        if not self._stale:
            log_event(
                log,
                "etcd lost; serving the last known routes",
                level=logging.WARNING,
                version=self.version,
                reason=reason,
            )
            self._stale = True
            self.changed.notify()

    def _on_failed_attempt(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        self._lose(error)
        if state.attempt_number == 1:
            log_event(log, "cannot follow etcd yet", level=logging.WARNING, reason=error)
