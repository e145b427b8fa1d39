"""What follows an append: flush it, replicate it, confirm it, answer the waiting sends.

Owns: the watermarks of the appends and what waits for them. Disk and replicas work in parallel:

    own safe end  = flushed end under SYNC_FLUSH, else appended end
    confirmed end = what the in-sync set has of it; consumers see no more
    acknowledged  = the confirmed end under SYNC_MASTER, the own safe end under ASYNC_MASTER

Invariant: nothing is confirmed or acknowledged while this replica may not act as master. What still
waits when the term ends is told that its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from aerobee.broker.replication.duties import Duty
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.runtime.errors import StoreFailed
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.message_store import MessageStore

BEHIND_SHARE = 0.75
"""Above this share of the maximum, senders are read no faster than disk and replicas keep up."""


class Late(Enum):
    """Why a stored message was not acknowledged in time."""

    DISK = "disk"
    REPLICAS = "replicas"
    """Some of the in-sync set are late, or another master has taken over: outcome unknown."""
    NO_REPLICA = "no replica"
    """Too few replicas are in sync, or none of them is connected."""


class Flusher(Protocol):
    """The flush thread's side on the loop."""

    def appended(self) -> None:
        """Something was appended: flush according to the policy."""
        ...

    def request(self) -> None:
        """Flush everything appended so far, soon."""
        ...


class Sending(Protocol):
    """The streams to this master's slaves."""

    def on_appended(self) -> None:
        """The log has grown."""
        ...

    def on_confirmed(self) -> None:
        """More is confirmed."""
        ...


class Durability(Duty):
    """Called by the send path after appends, by the flush thread after flushes, and when a replica
    has acknowledged or the role has changed."""

    def __init__(
        self,
        store: MessageStore,
        roles: Roles,
        batches: AcknowledgedBatches,
        config: StoreConfig,
        new_waiters: Callable[[int], EndWaiters],
        flusher: Flusher,
        sending: Sending,
        on_store_failed: Callable[[StoreFailed], None],
    ) -> None:
        """`batches` is told what is acknowledged. `new_waiters` makes the waiters for a watermark
        starting at the given position. `on_store_failed` ends the broker."""
        self._store = store
        self._roles = roles
        self._batches = batches
        self._flusher = flusher
        self._on_store_failed = on_store_failed
        self._is_sync_flush = config.flush_mode is FlushMode.SYNC
        self._behind_bytes = int(config.unflushed_bytes_max * BEHIND_SHARE)
        self._sending = sending
        self._listeners: list[Callable[[], None]] = []
        self.flushed = new_waiters(store.flushed_end)
        self.confirmed = new_waiters(0)
        self.acknowledged = new_waiters(0)

    def listen(self, advanced: Callable[[], None]) -> None:
        """`advanced` is called whenever more is confirmed, as far as this replica knows."""
        self._listeners.append(advanced)

    @property
    def waits(self) -> bool:
        """Whether an acknowledgement has to wait for anything."""
        return self._is_sync_flush or self._roles.is_sync

    def on_appended(self) -> None:
        """A frame has been appended.

        Raises:
            StoreFailed: the store can no longer keep its promises.
        """
        self.advance()
        self._flusher.appended()
        self._sending.on_appended()

    def on_copied(self) -> None:
        """On a slave: bytes of the master's log have been appended."""
        self._flusher.appended()

    def request_flush(self) -> None:
        """Flush everything appended so far, soon, in any flush mode."""
        self._flusher.request()

    def on_flushed(self, flushed_end: int) -> None:
        """The disk has everything below `flushed_end`. Raises StoreFailed."""
        self.flushed.reached(flushed_end)
        if self._is_sync_flush:
            self.advance()

    def look(self) -> None:
        """More may be safe; a failure ends the broker."""
        try:
            self.advance()
        except StoreFailed as error:
            self._on_store_failed(error)

    def begin(self, term: MasterTerm) -> None:
        self.look()

    def end(self) -> None:
        """Tell the sends that wait for an acknowledgement that none will come."""
        self.confirmed.give_up()
        self.acknowledged.give_up()
        self._batches.give_up()

    def advance(self) -> None:
        """More may be safe. Raises StoreFailed."""
        roles = self._roles
        term = roles.term
        if term is None or not roles.may_act():
            return
        store = self._store
        own_end = store.flushed_end if self._is_sync_flush else store.appended_end
        confirmed_end = term.confirm(own_end)
        if confirmed_end > store.confirmed_end:
            store.confirm(confirmed_end)
        if confirmed_end > self.confirmed.end:
            self.confirmed.reached(confirmed_end)
            self._sending.on_confirmed()
            self._tell_listeners()
        if roles.is_sync:
            own_end = confirmed_end if self._has_enough() else 0
        if own_end > self.acknowledged.end:
            self.acknowledged.reached(own_end)
            self._batches.reached(own_end)

    def on_confirmed(self, confirmed_end: int) -> None:
        """On a slave: the master says that everything below is confirmed. Raises StoreFailed."""
        store = self._store
        self._roles.note_confirmed(confirmed_end)
        visible_end = min(confirmed_end, store.appended_end)
        if visible_end > store.confirmed_end:
            store.confirm(visible_end)
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for advanced in self._listeners:
            advanced()

    async def wait_safe(self, end: int, deadline_s: float) -> Late | None:
        """None once everything stored up to `end` may be acknowledged; at the deadline, why not."""
        in_time = await self.acknowledged.wait(end, deadline_s)
        return None if in_time else self.why_late(end)

    def why_late(self, end: int) -> Late:
        """Why what was stored up to `end` is not acknowledged yet."""
        if self._is_sync_flush and self._store.flushed_end < end:
            return Late.DISK
        term = self._roles.term
        if term is None or not self._roles.is_sync:
            return Late.REPLICAS
        others = term.in_sync - {term.own}
        connected = {progress.name for progress in term.progress()}
        if not self._has_enough() or (others and not others & connected):
            return Late.NO_REPLICA
        return Late.REPLICAS

    def _has_enough(self) -> bool:
        term = self._roles.term
        return term is not None and len(term.in_sync) >= term.policy.min_insync_replicas

    # ------------------------------------------------------------------------------ pace

    def is_behind(self) -> bool:
        """So full that senders should be read no faster than disk and replicas keep up."""
        return self._is_disk_behind() or self._are_replicas_behind()

    async def wait_progress(self) -> None:
        """Until the next flush, or the next acknowledgement by the replicas."""
        if self._are_replicas_behind() and not self._is_disk_behind():
            await self.confirmed.wait_progress()
            return
        self.request_flush()
        await self.flushed.wait_progress()

    def _is_disk_behind(self) -> bool:
        return self._store.unflushed_bytes > self._behind_bytes

    def _are_replicas_behind(self) -> bool:
        store = self._store
        return store.appended_end - store.confirmed_end > self._behind_bytes

    async def drain(self) -> None:
        """Until everything appended is on disk."""
        while self._store.flushed_end < self._store.appended_end:
            self.request_flush()
            await self.flushed.wait_progress()

    async def wait_flushed(self) -> None:
        """Until everything appended so far is on disk."""
        end = self._store.appended_end
        self.request_flush()
        await self.flushed.wait(end, float("inf"))

    async def replicate(self, deadline_s: float) -> bool:
        """Whether everything appended was confirmed before the deadline; also False if this replica
        is not master."""
        if self._roles.term is None:
            return False
        return await self.confirmed.wait(self._store.appended_end, deadline_s)
