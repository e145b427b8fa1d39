"""Keeps a RouteTable up to date: snapshot, then watch from the next revision, without end.

Owns: the current table, whether it is stale, and the loop that keeps both current. A lost
connection or a compacted history leads to a new snapshot; until then the last table is served and
marked stale. It is also stale while etcd does not confirm that nothing is missing, which it is
asked continually (Freshness).

Invariant: the table only moves forward (except when an etcd was restored from a backup), and
changes of one revision appear together; a table that is not stale shows all changes older than
`FRESH_FOR_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator

import tenacity

from aerobee.nameserver.backoff_wait import BackoffWait
from aerobee.nameserver.freshness import Freshness
from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.key_values import Compacted, Put, WatchBatch
from aerobee.nameserver.notifier import Notifier
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import History, Keys, encode_history
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import RegistryUnavailable
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff

log = logging.getLogger(__name__)

PROOF_INTERVAL_S = 0.5
"""How often etcd is asked whether anything is missing; two failures in a row are tolerated."""


class RouteCache:
    """The routes as this nameserver knows them; `run` keeps them fresh."""

    def __init__(
        self,
        etcd: KeyValueStore,
        keys: Keys,
        *,
        backoff: Backoff,
        chance: random.Random,
        clock: Clock,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._backoff = backoff
        self._chance = chance
        self._table: RouteTable | None = None
        self._clock = clock
        self._freshness = Freshness(etcd, keys.prefix, clock)
        self._is_following = False
        self._was_stale = True
        self._expiry: asyncio.TimerHandle | None = None
        self._use: asyncio.Timeout | None = None
        self.changed = Notifier()
        """Notified after every change of the table or of `stale`."""

    def __repr__(self) -> str:
        return f"<RouteCache version={self.version} stale={self.stale}>"

    @property
    def table(self) -> RouteTable:
        """
        Raises:
            RegistryUnavailable: etcd has not been reached since the start.
        """
        if self._table is None:
            raise RegistryUnavailable(self.why_unknown())
        return self._table

    def why_unknown(self) -> str:
        """Why no routes are known; empty once there are any."""
        if self._table is not None:
            return ""
        return (
            "no routes are known yet: this nameserver has not reached etcd at "
            f"{self._etcd.endpoint} since it started; start etcd or correct the endpoints"
        )

    @property
    def version(self) -> int:
        """Of the current table; 0 before the first."""
        return 0 if self._table is None else self._table.version

    @property
    def stale(self) -> bool:
        """etcd is away, or has not confirmed for too long that nothing is missing."""
        return not (self._is_following and self._freshness.is_proven)

    @property
    def confirmed_age_s(self) -> float | None:
        """Since etcd last confirmed that nothing is missing; None before the first time."""
        return self._freshness.age_s

    async def wait_version(self, version: int, timeout_s: float) -> bool:
        """Whether the table reached `version` in time."""
        return await self.changed.wait_until(lambda: self.version >= version, timeout_s)

    async def run(self) -> None:
        """Follow etcd until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_for_ever(), name="route-cache:follow")
            tasks.create_task(self._prove_for_ever(), name="route-cache:prove")

    async def _follow_for_ever(self) -> None:
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
            RegistryUnavailable, Compacted: no watch was established.
        """
        asked_s = self._clock.monotonic_s()
        snapshot = await self._etcd.snapshot(self._keys.prefix)
        self._is_following = False
        self._freshness.begin(snapshot, asked_s=asked_s)
        self._become(RouteTable.from_snapshot(self._keys, snapshot))
        await self._name_history()
        try:
            # An established watch has no time limit: it ends when it proves useless.
            async with (
                asyncio.timeout(None) as self._use,
                self._etcd.watch(self._keys.prefix, from_revision=snapshot.revision + 1) as batches,
            ):
                await self._apply_all(batches)
        except (RegistryUnavailable, Compacted, TimeoutError) as error:
            if not self._is_following:
                raise
            self._lose(error)
            # An etcd that accepts watches only to end them must not turn this into a busy loop.
            await asyncio.sleep(self._backoff.delay_s(1, self._chance))

    async def _name_history(self) -> None:
        """etcd's own id does not distinguish an emptied etcd from the former one: members with the
        same names get the same id again. Routes do not wait for it."""
        if not self.table.history:
            history = History(f"{self._chance.getrandbits(64):016x}")
            name = Put(self._keys.history, encode_history(history))
            with contextlib.suppress(RegistryUnavailable):
                await self._etcd.transaction({self._keys.history: 0}, [name])

    async def _apply_all(self, batches: AsyncIterator[WatchBatch]) -> None:
        async for batch in batches:
            if not self._is_following:
                log_event(log, "routes follow etcd", version=self.version)
            self._is_following = True
            self._freshness.add(batch)
            self._become(self.table.apply(self._keys, batch.events))

    async def _prove_for_ever(self) -> None:
        """Prove that the watch delivers all changes; end it if etcd answers and it does not."""
        while True:
            await asyncio.sleep(PROOF_INTERVAL_S)
            if not self._is_following:
                continue
            try:
                is_complete = await self._freshness.prove()
            except RegistryUnavailable as error:
                log_event(
                    log, "etcd does not confirm the routes", level=logging.DEBUG, reason=error
                )
                is_complete = True
            self._show()
            is_useless = self._is_following and not is_complete and not self._freshness.is_proven
            if is_useless and self._use is not None and not self._use.expired():
                log_event(log, "etcd's watch brought nothing; reading again", level=logging.WARNING)
                self._use.reschedule(asyncio.get_running_loop().time())

    def _become(self, table: RouteTable) -> None:
        if self._table is not None and table.shows_same_as(self._table):
            self._table = table
            self._show()
            return
        known = frozenset() if self._table is None else self._table.unreadable
        for key in sorted(table.unreadable - known):
            log_event(log, "unreadable key ignored", level=logging.ERROR, key=key)
        self._table = table
        self._was_stale = self.stale
        self._watch_expiry()
        self.changed.notify()

    def _lose(self, reason: BaseException | None) -> None:
        self._is_following = False
        self._show(reason)

    def _show(self, reason: BaseException | None = None) -> None:
        """Notify when the routes became stale, or fresh again."""
        stale = self.stale
        self._watch_expiry()
        if stale == self._was_stale:
            return
        self._was_stale = stale
        if stale:
            log_event(
                log,
                "etcd lost; serving the last known routes",
                level=logging.WARNING,
                version=self.version,
                reason=reason or "etcd has not confirmed for too long that nothing is missing",
            )
        self.changed.notify()

    def _watch_expiry(self) -> None:
        """Check again when the current proof expires: nothing else may happen then."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        left_s = self._freshness.left_s
        if self._is_following and left_s > 0:
            self._expiry = asyncio.get_running_loop().call_later(left_s + 0.01, self._show)

    def _on_failed_attempt(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        self._lose(error)
        if state.attempt_number == 1:
            log_event(log, "cannot follow etcd yet", level=logging.WARNING, reason=error)
