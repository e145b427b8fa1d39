"""All producers' windows: a function of the appended log.

Owns: the windows by topic, queue and producer, in the order of their newest records, and which of
them changed since they were last written. Bounded: a window whose producer has sent nothing to the
queue for an hour of the log's own time is dropped when a new one comes, and above the limits those
idle longest are dropped. What is resent after its window was dropped is stored again.

The broker's own producers have separate windows: the newest BROKER_WINDOWS_MAX, of any age. From
them a new master knows what the last one moved, and clients must not displace them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from aerobee.store.engine.producers.window import NEW, AlreadyStored, ProducerWindow
from aerobee.store.format.producer_number import (
    BROKER_PRODUCER_IDS,
    ProducerRun,
    producer_ids,
    sequences,
)
from aerobee.store.format.scan import ScanResult
from aerobee.store.format.topic_end import TopicEnd

IDLE_MS: Final = 3_600_000
"""A producer gives up on a batch long before this."""
WINDOWS_MAX: Final = 100_000
INTERVALS_MAX: Final = 1_000_000
"""For all windows together: 24 bytes each."""


BROKER_WINDOWS_MAX: Final = 4_096
"""More queues than the broker appends to under one intent."""


class ProducerName(NamedTuple):
    """A producer as one queue knows it."""

    topic: str
    queue_id: int
    producer_id: int


class WindowRow(NamedTuple):
    """A window at one moment; without intervals: it was dropped. `intervals` are native 64-bit."""

    name: ProducerName
    floor: int
    timestamp_ms: int
    intervals: bytes


class ProducerWindows:
    """Loop thread only."""

    def __init__(
        self, *, windows_max: int = WINDOWS_MAX, intervals_max: int = INTERVALS_MAX
    ) -> None:
        self._windows: OrderedDict[ProducerName, ProducerWindow] = OrderedDict()
        self._of_broker: OrderedDict[ProducerName, ProducerWindow] = OrderedDict()
        self._windows_max = windows_max
        self._intervals_max = intervals_max
        self._intervals = 0
        self._changed: dict[ProducerName, None] = {}
        # Dropped within their hour, because there were too many.
        self.forgotten_early = 0

    def __repr__(self) -> str:
        return f"ProducerWindows({len(self)} windows, {self._intervals} intervals)"

    def __len__(self) -> int:
        return len(self._windows) + len(self._of_broker)

    def items(self) -> Iterator[tuple[ProducerName, ProducerWindow]]:
        """The longest idle first; the broker's own after all others."""
        return chain(self._windows.items(), self._of_broker.items())

    def _with(self, name: ProducerName) -> OrderedDict[ProducerName, ProducerWindow]:
        """The map that contains a producer's windows."""
        return self._windows if name.producer_id < BROKER_PRODUCER_IDS else self._of_broker

    def standing(self, name: ProducerName, sequence: int, count: int) -> AlreadyStored | None:
        """See `ProducerWindow.standing`. For an unknown producer everything is new."""
        window = self._with(name).get(name)
        return NEW if window is None else window.standing(sequence, count)

    # ------------------------------------------------------------------------------ growing

    def appended(
        self,
        topic: str,
        queue_id: int,
        runs: Sequence[ProducerRun],
        queue_offset: int,
        timestamp_ms: int,
    ) -> None:
        """The records of `runs` were appended, from `queue_offset` on."""
        for producer_id, sequence, count in runs:
            if producer_id:
                name = ProducerName(topic, queue_id, producer_id)
                self._add(name, sequence, count, queue_offset, timestamp_ms)
            queue_offset += count

    def end_topic(self, topic: str) -> None:
        """The topic has ended: what was sent to it before is new to its next life."""
        for name in [name for name, _ in self.items() if name.topic == topic]:
            self._intervals -= len(self._with(name).pop(name))
            self._changed[name] = None

    def feed(self, result: ScanResult, first: int = 0, ends: Sequence[TopicEnd] = ()) -> None:
        """Records of the log from the index `first` on, as a scan found them; `ends` are the
        topics' ends among all of them."""
        for end in ends:
            if end.number >= first:
                self._feed(result, first, end.number)
                self.end_topic(end.topic)
                first = end.number
        self._feed(result, first, result.count)

    def _feed(self, result: ScanResult, first: int, end: int) -> None:
        numbers = result.producer_numbers[first:end]
        chosen = np.flatnonzero(numbers) + first
        if not len(chosen):
            return
        numbers = numbers[chosen - first]
        ids = producer_ids(numbers)
        numbered = ids != 0
        if not numbered.all():  # not written by us
            chosen, numbers, ids = chosen[numbered], numbers[numbered], ids[numbered]
        topics, queues = result.topic_codes[chosen], result.queue_ids[chosen]
        offsets = result.queue_offsets[chosen]
        order = np.lexsort((queues, topics, ids))
        # Each number is one more than the previous one, within one queue's records of one producer.
        starts = np.ones(len(order), np.bool_)
        starts[1:] = (
            (np.diff(numbers[order]) != 1)
            | (np.diff(offsets[order]) != 1)
            | (np.diff(topics[order]) != 0)
            | (np.diff(queues[order]) != 0)
            | (np.diff(ids[order]) != 0)
        )
        run_starts = np.flatnonzero(starts)
        counts = np.diff(np.append(run_starts, len(order)))
        firsts, lasts = order[run_starts], order[run_starts + counts - 1]
        # In log order.
        in_order = np.argsort(firsts)
        firsts, lasts, counts = firsts[in_order], lasts[in_order], counts[in_order]
        for topic_code, queue_id, producer_id, sequence, count, offset, timestamp_ms in zip(
            topics[firsts].tolist(),
            queues[firsts].tolist(),
            ids[firsts].tolist(),
            sequences(numbers[firsts]).tolist(),
            counts.tolist(),
            offsets[firsts].tolist(),
            result.store_timestamps[chosen[lasts]].tolist(),
            strict=True,
        ):
            name = ProducerName(result.topic_table[topic_code], queue_id, producer_id)
            self._add(name, sequence, count, offset, timestamp_ms)

    def _add(
        self, name: ProducerName, sequence: int, count: int, queue_offset: int, timestamp_ms: int
    ) -> None:
        windows = self._with(name)
        window = windows.get(name)
        if window is None:
            if windows is self._windows:
                self._make_room(timestamp_ms)
            elif len(windows) >= BROKER_WINDOWS_MAX:
                self._forget(*windows.popitem(last=False))
            window = windows[name] = ProducerWindow()
        else:
            windows.move_to_end(name)
        self._intervals += window.add(sequence, count, queue_offset)
        window.timestamp_ms = timestamp_ms
        self._changed[name] = None
        if self._intervals > self._intervals_max and self._windows:
            self._forget_oldest(timestamp_ms)

    def _make_room(self, timestamp_ms: int) -> None:
        """Make room for another window."""
        if len(self._windows) >= self._windows_max:
            self._forget_oldest(timestamp_ms)
        for _ in range(2):  # drops more than are added, so the idle ones become fewer
            oldest = next(iter(self._windows.values()), None)
            if oldest is None or oldest.timestamp_ms > timestamp_ms - IDLE_MS:
                return
            self._forget_oldest(timestamp_ms)

    def _forget_oldest(self, timestamp_ms: int) -> None:
        name, window = self._windows.popitem(last=False)
        self._forget(name, window)
        if window.timestamp_ms > timestamp_ms - IDLE_MS:
            self.forgotten_early += 1

    def _forget(self, name: ProducerName, window: ProducerWindow) -> None:
        self._intervals -= len(window)
        self._changed[name] = None

    # ------------------------------------------------------------------------------ files

    def cut(self, queue_end: Callable[[str, int], int]) -> None:
        """Drop the records that the log has lost; `queue_end` says where queues end."""
        for name, window in list(self.items()):
            self._intervals -= len(window)
            window.cut(queue_end(name.topic, name.queue_id))
            self._intervals += len(window)
            self._changed[name] = None
            if not window.intervals:
                del self._with(name)[name]

    @property
    def has_unwritten(self) -> bool:
        return bool(self._changed)

    def take_all(self) -> list[WindowRow]:
        """Every window, as it is now."""
        self._changed.clear()
        return [
            WindowRow(name, window.floor, window.timestamp_ms, window.intervals.tobytes())
            for name, window in self.items()
        ]

    def take_changed(self) -> list[WindowRow]:
        """The windows that changed since they were last taken."""
        rows: list[WindowRow] = []
        for name in self._changed:
            window = self._with(name).get(name)
            if window is None:
                rows.append(WindowRow(name, 0, 0, b""))
            else:
                intervals = window.intervals.tobytes()
                rows.append(WindowRow(name, window.floor, window.timestamp_ms, intervals))
        self._changed.clear()
        return rows

    def restore(self, rows: Iterable[WindowRow]) -> None:
        """Put back what was taken; rows of equal names replace earlier ones."""
        found: dict[ProducerName, WindowRow] = {}
        for row in rows:
            if row.intervals:
                found[row.name] = row
            else:
                found.pop(row.name, None)
        for row in sorted(found.values(), key=_age):
            window = ProducerWindow(row.floor, row.timestamp_ms)
            window.intervals.frombytes(row.intervals)
            self._with(row.name)[row.name] = window
            self._intervals += len(window)


def _age(row: WindowRow) -> int:
    return row.timestamp_ms
