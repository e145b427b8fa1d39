"""Acknowledged batches, reported to the parts that count them.

Owns: the batches that are stored but not yet as safe as their acknowledgements promise, in log
order. Listeners are told of a batch once it is: with page-cache acknowledgement in the turn in
which it was stored, otherwise when disk or replicas have it.

Invariant: listeners are told, in log order, only of batches that were or can now be acknowledged.
What a term leaves open when it ends is never reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aerobee.store.engine.statistics import Appended
from aerobee.store.format.checked_batch import CheckedBatch

KIB = 1024
MESSAGE_SIZES = (KIB, 4 * KIB, 512 * KIB, 1024 * KIB, 2048 * KIB, 4096 * KIB)
"""RocketMQ's buckets, in bytes of the stored record."""


class AcknowledgedBatch(NamedTuple):
    """Messages of one topic, up to `end` of the log."""

    end: int
    topic: str
    store_timestamp_ms: int
    messages: int
    size: int
    """Bytes of the stored records."""
    size_counts: Sequence[int] | None
    """How many messages fall into each bucket of `MESSAGE_SIZES`; None: all into the first."""


class AcknowledgedBatches:
    """Holds batches back until they are acknowledged, then notifies every listener."""

    def __init__(self, listeners: Sequence[Callable[[AcknowledgedBatch], None]] = ()) -> None:
        self._listeners = tuple(listeners)
        self._pending: deque[AcknowledgedBatch] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def stored(self, batch: CheckedBatch, appended: Appended) -> None:
        """Stored in the log, after everything that was stored before."""
        size = batch.size
        # Most batches have only small messages, and checking that is cheap.
        is_small = size <= KIB or batch.largest <= KIB
        self._pending.append(
            AcknowledgedBatch(
                appended.end,
                batch.topic,
                appended.store_timestamp_ms,
                batch.count,
                size,
                None if is_small else batch.size_counts(MESSAGE_SIZES),
            )
        )

    def reached(self, end: int) -> None:
        """Everything below `end` of the log is acknowledged."""
        pending = self._pending
        while pending and pending[0].end <= end:
            batch = pending.popleft()
            for told in self._listeners:
                told(batch)

    def give_up(self) -> None:
        """The term has ended: whether what is pending will ever be safe is unknown."""
        self._pending.clear()
