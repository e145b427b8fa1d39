"""Stores' files as a place of messages: a broker's folder, a copy of one, or several.

The messages are those in the queues' files: a record that its broker had not yet put into a queue
when it stopped is not a message yet. Reading is divided by position in the log, not by queue:
queues are interleaved in it, so everything wanted is read in one sweep, and a single long queue
takes no longer than others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.offsets import QueueOffsets
from aerobee.offset_audit.sources.messages.options import MessageOptions
from aerobee.offset_audit.sources.messages.place import Bounds, KnownBounds, Window
from aerobee.offset_audit.sources.messages.queue_entries import QueueEntries
from aerobee.offset_audit.sources.messages.ranges import OffsetRange
from aerobee.offset_audit.sources.messages.store_log import StoreLog
from aerobee.offset_audit.sources.messages.store_reading import QueueSlice, StoreReading
from aerobee.offset_audit.sources.store.config_files import read_kept_from
from aerobee.offset_audit.sources.store.files import QueueFiles, StoreFile, queue_files
from aerobee.offset_audit.sources.store.folders import Names, StoreFolder, find_stores
from aerobee.runtime.errors import InvalidArgument

SLICES_MAX = 2_000_000
"""Queues times partitions: limits what the driver holds of a plan."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """See Place."""

    options: MessageOptions

    def bounds(self, timeout_ms: int) -> KnownBounds:
        found: dict[MessageQueue, Bounds | None] = {}
        for store in self._stores().values():
            kept_from = read_kept_from(store)
            with StoreLog(store) as log:
                for queue, files in self._queues(store).items():
                    bounds = _bounds_of(files, log.begin)
                    found[queue] = None if bounds is None else _kept(bounds, queue, kept_from)
        return found

    def confirmed_bounds(
        self, queues: Sequence[MessageQueue], timeout_ms: int
    ) -> dict[MessageQueue, Bounds]:
        """Files have no second opinion."""
        found = self.bounds(timeout_ms)
        return {queue: one for queue in queues if (one := found.get(queue)) is not None}

    def at_times(self, times_ms: Mapping[MessageQueue, int]) -> QueueOffsets:
        found: QueueOffsets = {}
        for store in self._stores().values():
            queues = self._queues(store)
            kept_from = read_kept_from(store)
            with StoreLog(store) as log:
                for queue in queues.keys() & times_ms.keys():
                    with QueueEntries(queues[queue]) as entries:
                        bounds = _kept(entries.bounds(log.begin), queue, kept_from)
                        found[queue] = entries.first_stored(times_ms[queue], bounds, log.read)
        return found

    def plan(self, ranges: Sequence[OffsetRange], window: Window) -> list[StoreReading]:
        readings: list[StoreReading] = []
        stores = self._stores()
        by_store: dict[str, list[OffsetRange]] = {}
        for one in ranges:
            by_store.setdefault(one.queue.broker_name, []).append(one)
        make = partial(
            StoreReading,
            window=window,
            columns=self.options.columns,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        for broker_name, wanted in by_store.items():
            store = stores[broker_name]
            slices = self._slices(store, wanted)
            with StoreLog(store) as log:
                span = log.begin, log.end
            for begin, end in self._borders(slices, span, len(by_store)):
                inside = tuple(one for one in slices if one.reaches(begin, end))
                if inside:
                    readings.append(make(store, inside, begin, end))
        return readings

    # ------------------------------------------------------------------------------ inside

    def _stores(self) -> dict[str, StoreFolder]:
        """By broker name. Raises StoreUnreadable, InvalidArgument."""
        names = Names(broker_name=self.options.broker_name or None)
        stores: dict[str, StoreFolder] = {}
        for store in find_stores(_paths(self.options.path), names):
            other = stores.setdefault(store.origin.broker_name, store)
            if other is not store:
                raise InvalidArgument(
                    f"{other.root} and {store.root} are both of broker "
                    f"{store.origin.broker_name!r}: read only one of them, or give one another "
                    "name with PATH=NAME"
                )
        return stores

    def _queues(self, store: StoreFolder) -> dict[MessageQueue, tuple[StoreFile, ...]]:
        name = store.origin.broker_name
        takes = self.options.topics.takes

        def named(files: QueueFiles) -> MessageQueue:
            return MessageQueue(files.topic, name, files.queue_id)

        return {
            named(files): files.files
            for files in queue_files(
                store, lambda topic, queue_id: takes(MessageQueue(topic, name, queue_id))
            )
        }

    def _slices(self, store: StoreFolder, ranges: Sequence[OffsetRange]) -> list[QueueSlice]:
        """The ranges with the log positions where they begin and end."""
        files = self._queues(store)
        slices: list[QueueSlice] = []
        for one in ranges:
            with QueueEntries(files.get(one.queue, ())) as entries:
                first, _ = entries.between(one.begin, one.begin + 1)
                last, _ = entries.between(one.end - 1, one.end)
            slices.append(
                QueueSlice(
                    one.queue.topic,
                    one.queue.queue_id,
                    one.begin,
                    one.end,
                    int(first[0]),
                    max(int(first[0]), int(last[0])),
                )
            )
        return slices

    def _borders(
        self, slices: Sequence[QueueSlice], log: tuple[int, int], stores: int
    ) -> list[tuple[int, int]]:
        """Where the log, which exists in [begin, end), is cut; the first piece has no beginning and
        the last no end, so that even what a damaged entry says is read once."""
        begin = max(min(one.first_position for one in slices), log[0])
        span = max(1, min(max(one.last_position for one in slices) + 1, log[1]) - begin)
        step = self.options.partition_bytes
        if self.options.partitions_min:
            step = min(step, -(-span * stores // self.options.partitions_min))
        if self.options.partition_messages_max:
            messages = sum(one.end - one.begin for one in slices)
            step = min(step, max(1, span * self.options.partition_messages_max // messages))
        step = max(step, span * len(slices) // SLICES_MAX, 1)
        cuts = [begin + at for at in range(step, span, step)]
        return list(zip([-1, *cuts], [*cuts, 1 << 63], strict=True))


def _paths(text: str) -> list[str]:
    return [path.strip() for path in text.split(",") if path.strip()]


def _kept(bounds: Bounds, queue: MessageQueue, kept_from: Mapping[tuple[str, int], int]) -> Bounds:
    """Without what the topic no longer keeps."""
    begin = min(kept_from.get((queue.topic, queue.queue_id), 0), bounds.end)
    return Bounds(max(bounds.begin, begin), bounds.end)


def _bounds_of(files: tuple[StoreFile, ...], log_begin: int) -> Bounds | None:
    try:
        with QueueEntries(files) as entries:
            return entries.bounds(log_begin)
    except FileNotFoundError:  # its broker is removing it now
        return None
