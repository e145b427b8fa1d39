"""A stream of messages: Spark's checkpoint keeps the offsets, so each message enters a sink once.

What is between two offsets never depends on when it is asked for. A queue that appears while the
query runs is read from offset 0. The queues of a broker that cannot be asked stay where they are,
and the others continue. Offsets never go back, unless the log did and `failOnDataLoss` is false:
then a queue that was cut is read again from offset 0, and what was left of it comes twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.batch_reader import MessagePartition, check_topics
from aerobee.offset_audit.sources.messages.losses import Loss, LossRule
from aerobee.offset_audit.sources.messages.offsets import (
    BEGAN,
    Document,
    QueueOffsets,
    beginning_of,
    from_document,
    to_document,
    with_beginning,
)
from aerobee.offset_audit.sources.messages.options import MessageOptions
from aerobee.offset_audit.sources.messages.place import (
    KnownBounds,
    Reading,
    Window,
    all_known,
    clip,
)
from aerobee.offset_audit.sources.messages.ranges import between, share_limit
from aerobee.offset_audit.sources.messages.resolve import open_place, resolve

log = logging.getLogger(__name__)

ASK_MS_MAX: Final = 5_000
"""A broker silent for this long is left out of one batch."""

IDLE_S: Final = 0.2
"""Spark asks again every few milliseconds while nothing comes; brokers are asked no more often than
this."""


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's side of it; one instance lives as long as the query, others are pickled for
    reading."""

    def __init__(self, options: MessageOptions) -> None:
        self._options = options
        self._place = open_place(options)
        self._rule = LossRule(options.fail_on_data_loss)
        self._initial: QueueOffsets | None = None
        self._target: QueueOffsets | None = None
        self._newest: QueueOffsets | None = None
        self._bounds: KnownBounds = {}
        self._is_idle = False

    # ------------------------------------------------------------------------------ offsets

    def initialOffset(self) -> Document:
        bounds = all_known(self._place.bounds(self._options.timeout_ms))
        check_topics(self._options, bounds)
        self._initial = resolve(
            self._options.start,
            bounds,
            self._place,
            late_is_error=self._options.late_start_is_error,
        )
        return to_document(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.messages_per_trigger_max
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        bounds = all_known(self._place.bounds(self._options.timeout_ms))
        self._target = {queue: found.end for queue, found in bounds.items()}

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:
        if self._is_idle:
            Event().wait(IDLE_S)
        begins = from_document(start)
        self._bounds = self._place.bounds(min(ASK_MS_MAX, self._options.timeout_ms))
        ends = self._ends(begins)
        self._newest = dict(ends)
        if isinstance(limit, ReadMaxRows):
            ends = share_limit(begins, ends, limit.max_rows)
        if self._initial is not None and BEGAN not in start and begins == self._initial:
            return with_beginning(ends, self._initial)
        self._is_idle = ends == begins
        return start if self._is_idle else to_document(ends)

    def reportLatestOffset(self) -> Document | None:
        return None if self._newest is None else to_document(self._newest)

    def commit(self, end: Document) -> None:
        """Only Spark's checkpoint remembers progress; no group's offsets are touched."""

    # ------------------------------------------------------------------------------ reading

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        beginning = beginning_of(end)
        begins = from_document(start) if beginning is None else beginning
        ends = from_document(end)
        rewound = [queue for queue in ends if ends[queue] < begins.get(queue, 0)]
        # What was written since the cut is new, and nothing shows where it begins.
        begins |= dict.fromkeys(rewound, 0)
        for queue in rewound:
            log.warning("%s was cut back: its offsets 0 to %d are read again", queue, ends[queue])
        ranges = between(begins, ends)
        if not ranges:
            return []
        there, losses = clip(ranges, self._known_to(ends))
        self._rule.apply([loss for loss in losses if loss.queue not in rewound])
        return [MessagePartition(one) for one in self._place.plan(there, Window())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        reading: Reading = partition.value
        return reading.batches()

    # ------------------------------------------------------------------------------ inside

    def _known_to(self, ends: Mapping[MessageQueue, int]) -> KnownBounds:
        """Bounds recent enough for these ends: a restarted query has none yet."""
        found: KnownBounds = self._bounds
        if any(queue not in found for queue in ends):
            found = self._place.bounds(min(ASK_MS_MAX, self._options.timeout_ms))
        known = {}
        for queue, bounds in found.items():
            # A replica that is behind decides nothing; the readers will find out.
            is_behind = bounds is None or bounds.end < ends.get(queue, 0)
            known[queue] = None if is_behind else bounds
        return known

    def _ends(self, begins: QueueOffsets) -> QueueOffsets:
        """How far each queue can be read now."""
        ends = dict(begins)
        behind: list[MessageQueue] = []
        for queue, bounds in self._bounds.items():
            if bounds is None:
                continue
            if bounds.end < begins.get(queue, 0):
                behind.append(queue)
            else:
                ends[queue] = bounds.end
        if behind:
            ends |= self._cut_back(begins, behind)
        gone = sorted(queue for queue in begins if queue not in self._bounds)
        if gone:
            self._rule.apply(
                [
                    Loss(queue, begins[queue], begins[queue] + 1, "the queue is gone")
                    for queue in gone
                ]
            )
            for queue in gone:
                del ends[queue]
        if self._target is not None:
            target = self._target
            ends = {
                queue: min(end, max(target.get(queue, 0), begins.get(queue, 0)))
                for queue, end in ends.items()
                if queue in target or queue in begins
            }
        return ends

    def _cut_back(self, begins: QueueOffsets, behind: Sequence[MessageQueue]) -> QueueOffsets:
        """Queues that end before what was already read, as confirmed by their masters."""
        timeout_ms = min(ASK_MS_MAX, self._options.timeout_ms)
        found = self._place.confirmed_bounds(behind, timeout_ms)
        cut = {queue: bounds.end for queue, bounds in found.items() if bounds.end < begins[queue]}
        self._rule.apply(
            [
                Loss(queue, end, begins[queue], "read before, and now past the queue's end")
                for queue, end in cut.items()
            ]
        )
        grown = {queue: bounds.end for queue, bounds in found.items() if queue not in cut}
        return {**grown, **cut}
