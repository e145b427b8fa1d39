"""The one way into the log, for clients' batches and for what the broker writes itself.

    may this replica act? (guard) -> is there room, stamp, write (store) -> count
    `publish`, once for everything that a turn appended: flush, replicate, let consumers see it

Owns: what follows every append. Synchronous, on the loop.
Invariants: nothing enters the log while this replica may not act as master; the first failure of
the store, wherever it occurs, ends the broker; what was appended is published in the same turn.
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
        self._on_appended = on_appended
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
        """Append all of the batch or nothing; the caller calls `publish` in the same turn.

        `batches`: how many client batches it was made from; 0: the broker's own. `reserve`,
        `ends_topic`: see `MessageStore.append`.

        Raises:
            NotMaster: nothing was stored; this replica may not act as master now.
            NotWritable, Busy, ShuttingDown, MessageTooLarge, IllegalName: nothing was stored.
            StoreFailed: the broker ends.
        """
        self._guard.check_may_act()
        try:
            appended = self._store.append(
                batch, queue_id=queue_id, reserve=reserve, ends_topic=ends_topic
            )
        except StoreFailed as error:
            self._on_store_failed(error)
            raise
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

    def publish(self) -> None:
        """Pass what was appended on: to the disk, to the replicas, to consumers.

        Raises:
            StoreFailed: the broker ends.
        """
        try:
            self._on_appended()
        except StoreFailed as error:
            self._on_store_failed(error)
            raise
