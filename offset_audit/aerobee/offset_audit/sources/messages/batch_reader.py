"""A batch of messages: its range is decided once, then executors read their parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.losses import LossRule
from aerobee.offset_audit.sources.messages.offsets import QueueOffsets
from aerobee.offset_audit.sources.messages.options import MessageOptions
from aerobee.offset_audit.sources.messages.place import (
    Bounds,
    Place,
    Reading,
    Window,
    all_known,
    clip,
)
from aerobee.offset_audit.sources.messages.ranges import OffsetRange, between
from aerobee.offset_audit.sources.messages.resolve import open_place, resolve
from aerobee.offset_audit.sources.store.conditions import Conditions
from aerobee.offset_audit.sources.store.filters import with_filter
from aerobee.runtime.errors import TopicNotFound

CLOCK_MARGIN_MS: Final = 10 * 60 * 1_000
_NARROWED: Final = ("topic", "broker_name", "queue_id", "queue_offset", "store_ms")


class MessagePartition(InputPartition):
    """One executor's part; `value` is a Reading."""

    value: Reading


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch reads: pure except for the answers of `place`."""

    options: MessageOptions
    conditions: Conditions
    """A reading only ever becomes smaller by them: Spark applies its filters again."""

    def readings(self, place: Place) -> Sequence[Reading]:
        """Raises AerobeeError; MessagesLost if the offsets that were named are gone."""
        options = self.options
        bounds = all_known(place.bounds(options.timeout_ms))
        check_topics(options, bounds)
        starts = resolve(options.start, bounds, place, late_is_error=options.late_start_is_error)
        ends = resolve(options.end, bounds, place)
        ranges, losses = clip(between(starts, ends), bounds)
        LossRule(options.fail_on_data_loss).apply(losses)
        window = Window(*self.conditions.span("store_ms"))
        return place.plan(self._narrowed(ranges, bounds, place, window), window)

    def _narrowed(
        self,
        ranges: Sequence[OffsetRange],
        bounds: dict[MessageQueue, Bounds],
        place: Place,
        window: Window,
    ) -> list[OffsetRange]:
        wanted = [one for one in ranges if self._takes(one.queue)]
        queues = [one.queue for one in wanted]
        begins, ends = _times(queues, bounds, place, window)
        first, last = self.conditions.span("queue_offset")
        wanted = [
            replace(
                one,
                begin=max(one.begin, first, begins[one.queue]),
                end=min(one.end, last + 1, ends[one.queue]),
            )
            for one in wanted
        ]
        return [one for one in wanted if one.count > 0]

    def _takes(self, queue: MessageQueue) -> bool:
        conditions = self.conditions
        return conditions.accepts_text("broker_name", queue.broker_name) and (
            conditions.accepts_queue(queue.topic, queue.queue_id)
        )


def _times(
    queues: Sequence[MessageQueue],
    bounds: dict[MessageQueue, Bounds],
    place: Place,
    window: Window,
) -> tuple[QueueOffsets, QueueOffsets]:
    """Where the window begins and ends in each queue, with a margin, because a broker's clock may
    have been set back; times are compared message by message then."""
    begins = {queue: bounds[queue].begin for queue in queues}
    ends = {queue: bounds[queue].end for queue in queues}
    if queues and window.first_ms > Window().first_ms:
        begins = place.at_times(dict.fromkeys(queues, window.first_ms - CLOCK_MARGIN_MS))
    if queues and window.last_ms < Window().last_ms:
        ends = place.at_times(dict.fromkeys(queues, window.last_ms + CLOCK_MARGIN_MS + 1))
    return begins, ends


def check_topics(options: MessageOptions, queues: Iterable[MessageQueue]) -> None:
    """Raises TopicNotFound unless each topic that was named has queues."""
    named = options.topics.named()
    missing = sorted(set(named or ()) - {queue.topic for queue in queues})
    if missing:
        where = options.path or ",".join(options.nameservers)
        raise TopicNotFound(
            f"topic {missing[0]!r} has no queues at {where}: see `aerobee topic list`, or the "
            "store's folder consumequeue"
        )


class MessageReader(DataSourceReader):
    """Spark's side of it."""

    def __init__(self, options: MessageOptions) -> None:
        self._options = options
        self._conditions = Conditions()

    def partitions(self) -> Sequence[InputPartition]:
        plan = BatchPlan(self._options, self._conditions)
        readings = plan.readings(open_place(self._options))
        return [MessagePartition(reading) for reading in readings]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        reading: Reading | None = partition.value
        # None is Spark's own, of a plan without partitions.
        return iter(()) if reading is None else reading.batches()


class FilteredMessageReader(MessageReader):
    """Also reads less if Spark's filters allow it.

    Spark 4.3 keeps what was narrowed for one query of a DataFrame for its other queries too, which
    then lack rows. So this is only for users who state that each DataFrame is used once.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            self._conditions = with_filter(self._conditions, one, _NARROWED) or self._conditions
        return filters
