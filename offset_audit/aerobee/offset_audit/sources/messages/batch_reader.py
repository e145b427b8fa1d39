"""A batch of messages: its range is decided once, then executors read their parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.losses import LossRule
from aerobee.offset_audit.sources.messages.narrowing import CLOCK_MARGIN_MS, Narrowing, narrow
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
from aerobee.runtime.errors import TopicNotFound


class MessagePartition(InputPartition):
    """One executor's part; `value` is a Reading."""

    value: Reading


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch reads: pure except for the answers of `place`."""

    options: MessageOptions
    narrowing: Narrowing

    def readings(self, place: Place) -> Sequence[Reading]:
        """Raises AerobeeError; MessagesLost if the offsets that were named are gone."""
        options = self.options
        bounds = all_known(place.bounds(options.timeout_ms))
        check_topics(options, bounds)
        starts = resolve(options.start, bounds, place, late_is_error=options.late_start_is_error)
        ends = resolve(options.end, bounds, place)
        ranges, losses = clip(between(starts, ends), bounds)
        LossRule(options.fail_on_data_loss).apply(losses)
        window = self.narrowing.window
        return place.plan(self._narrowed(ranges, bounds, place), window)

    def _narrowed(
        self, ranges: Sequence[OffsetRange], bounds: dict[MessageQueue, Bounds], place: Place
    ) -> list[OffsetRange]:
        wanted = [one for one in ranges if self.narrowing.takes(one.queue)]
        queues = [one.queue for one in wanted]
        begins, ends = self._times(queues, bounds, place)
        wanted = [
            replace(
                one,
                begin=max(one.begin, self.narrowing.offset_begin, begins[one.queue]),
                end=min(one.end, self.narrowing.offset_end, ends[one.queue]),
            )
            for one in wanted
        ]
        return [one for one in wanted if one.count > 0]

    def _times(
        self, queues: Sequence[MessageQueue], bounds: dict[MessageQueue, Bounds], place: Place
    ) -> tuple[QueueOffsets, QueueOffsets]:
        window = self.narrowing.window
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
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        plan = BatchPlan(self._options, self._narrowing)
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
        self._narrowing = narrow(filters)
        return filters
