"""The one way into the log, for clients' batches and for what the broker writes itself.

    with appender.publishing:
        appender.append(...)    may this replica act? (guard) -> is there room, stamp, write (store)
        appender.append(...)    -> count
    at its end, once for all of them: flush, replicate, let consumers see it

Owns: what follows every append. Synchronous, on the loop.
Invariants: nothing enters the log while this replica may not act as master; the first failure of
the store, wherever it occurs, ends the broker; what was appended is published in the same turn,
because nothing is appended outside such a block, and none of them awaits anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aerobee.broker.counters import Counters
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.guard import Guard
from aerobee.domain import names
from aerobee.runtime.errors import StoreFailed
from aerobee.store.engine.statistics import Appended
from aerobee.store.format.checked_batch import CheckedBatch


class AppendableStore(Protocol):
    """What appending needs of the store."""

    def append(
        self,
        batch: CheckedBatch,
        *,
        queue_id: int,
        reserve: bool = False,
        ends_topic: str = "",
    ) -> Appended: ...


class Publishing:
    """`with publishing`: what is appended inside is published at the end, also after an error; of
    blocks inside each other, at the end of the outer one. Nothing is awaited inside."""

    __slots__ = ("_on_appended", "_on_store_failed", "depth", "is_due")

    def __init__(
        self, on_appended: Callable[[], None], on_store_failed: Callable[[StoreFailed], None]
    ) -> None:
        self._on_appended = on_appended
        self._on_store_failed = on_store_failed
        self.depth = 0
        """0: outside of all blocks."""
        self.is_due = False
        """Something was appended."""

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Pass what was appended on: to the disk, to the replicas, to consumers. Raises
        StoreFailed: the broker ends."""
        self.depth -= 1
        if self.is_due and not self.depth:
            self.is_due = False
            try:
                self._on_appended()
            except StoreFailed as failure:
                self._on_store_failed(failure)
                raise


class Appender:
    """Puts checked batches into the log."""

    def __init__(
        self,
        guard: Guard,
        store: AppendableStore,
        acknowledged: AcknowledgedBatches,
        counters: Counters,
        on_appended: Callable[[], None],
        on_store_failed: Callable[[StoreFailed], None],
    ) -> None:
        """`on_appended` gets new records confirmed, after flushing and replicating them if
        required. `on_store_failed` ends the broker."""
        self._guard = guard
        self._store = store
        self._acknowledged = acknowledged
        self._counters = counters
        self.publishing = Publishing(on_appended, on_store_failed)
        self._on_store_failed = on_store_failed

    def append(
        self,
        batch: CheckedBatch,
        *,
        queue_id: int,
        batches: int = 0,
        reserve: bool = False,
        ends_topic: str = "",
    ) -> Appended:
        """Append all of the batch or nothing, inside `with publishing`.

        `batches`: how many client batches it was made from; 0: the broker's own. `reserve`,
        `ends_topic`: see `MessageStore.append`.

        Raises:
            NotMaster: nothing was stored; this replica may not act as master now.
            NotWritable, Busy, ShuttingDown, MessageTooLarge, IllegalName: nothing was stored.
            StoreFailed: the broker ends.
        """
        publishing = self.publishing
        assert publishing.depth, "what is appended outside of `with publishing` is never published"
        self._guard.check_may_act()
        try:
            appended = self._store.append(
                batch, queue_id=queue_id, reserve=reserve, ends_topic=ends_topic
            )
        except StoreFailed as error:
            self._on_store_failed(error)
            raise
        publishing.is_due = True
        # What the broker writes for itself is not a client's message. A waiting message is counted
        # under the topic where it waits, and again under the topic of its delivery: so the counts
        # match the log.
        if batches:
            counters = self._counters
            counters.batches_in += batches
            counters.messages_in += batch.count
            counters.bytes_in += batch.size
        if batches or not names.is_system_topic(batch.topic):
            self._acknowledged.stored(batch, appended)
        return appended
