"""PURE: how entries change one queue of a group: the part of its state on every replica.

    below `committed`    finished
    in `finished`        finished, although an older message is not
    in `flights`         handed out, with a client or to be redelivered
    all others           not handed out yet

Invariant: `committed` is the oldest unfinished message; no message is both finished and in flight;
serials only rise.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.entries import (
    NO_LANE,
    Begun,
    Finished,
    Flight,
    Invisible,
    InvisibleKind,
    PopEntry,
    QueueImage,
)
from aerobee.store.engine.tables.finished_ranges import FinishedRanges

IMAGE_FLIGHTS: Final = 400
"""In one entry of an image: about 30 KiB of JSON, as its ranges."""
IMAGE_RANGES: Final = 1_500


class Standing:
    """The state of one group on one queue."""

    __slots__ = ("committed", "finished", "flights", "next_serial")

    def __init__(self, committed: int, next_serial: int) -> None:
        self.committed = committed
        self.next_serial = next_serial
        self.finished = FinishedRanges()
        self.flights: dict[int, Flight] = {}

    def __repr__(self) -> str:
        return f"Standing(committed={self.committed}, {self.finished}, {len(self.flights)} flights)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Standing):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _facts(self) -> tuple[object, ...]:
        return self.committed, self.next_serial, list(self.finished), self.flights

    def copy(self) -> Standing:
        copy = Standing(self.committed, self.next_serial)
        copy.finished, copy.flights = self.finished.copy(), self.flights.copy()
        return copy

    def is_finished(self, offset: int) -> bool:
        return offset < self.committed or offset in self.finished

    @property
    def finished_count(self) -> int:
        """The number of messages finished before an older one."""
        return sum(end - begin for begin, end in self.finished)

    # ------------------------------------------------------------------------------ entries

    def apply(self, entry: PopEntry) -> None:
        """Apply an entry of this queue, except one that ends it."""
        if isinstance(entry, Invisible):
            self._hand_out(entry)
        elif isinstance(entry, Finished):
            for begin, end in entry.ranges:
                self.finish(begin, end)
        elif isinstance(entry, Begun):
            self.committed, self.next_serial = entry.offset, entry.serial
            self.finished, self.flights = FinishedRanges(), {}
        elif isinstance(entry, QueueImage):
            self._take_image(entry)

    def _hand_out(self, entry: Invisible) -> None:
        kind, _, offsets, serial, at_ms, visible_ms, holder, attempts, lanes = entry
        flights, is_counted = self.flights, kind is not InvisibleKind.RETURNED
        for index, offset in enumerate(offsets):
            flights[offset] = Flight(
                serial + index,
                attempts[index] if attempts else 1,
                at_ms,
                visible_ms,
                holder,
                lanes[index] if lanes else NO_LANE,
                is_counted,
            )
        self.next_serial = max(self.next_serial, serial + len(offsets))

    def finish(self, begin: int, end: int) -> None:
        """These are finished, whatever their state was."""
        flights, finished = self.flights, self.finished
        if end - begin <= len(flights):
            for offset in range(begin, end):
                flights.pop(offset, None)
        else:
            for offset in [each for each in flights if begin <= each < end]:
                del flights[offset]
        if begin > self.committed:
            finished.add(begin, end)
        elif end > self.committed:
            self.committed = finished.first_outside(end)
            finished.drop_below(self.committed)

    def _take_image(self, image: QueueImage) -> None:
        """For a reader that has read everything this changes nothing."""
        self.next_serial = max(self.next_serial, image.next_serial)
        self.finish(0, image.committed)
        for begin, end in image.finished:
            self.finish(begin, end)
        self.flights.update(image.flights)

    def image(self, key: GroupQueue, at_ms: int) -> Iterator[QueueImage]:
        """Entries that recreate this state. Each part holds when it is requested; changes in
        between must be recorded after it."""
        offsets = iter(list(self.flights))
        told, is_first = 0, True
        while True:
            some = list(islice(offsets, IMAGE_FLIGHTS))
            ranges = tuple(islice(self.finished.after(told), IMAGE_RANGES))
            if not is_first and not some and not ranges:
                return
            is_first = False
            told = ranges[-1].end if ranges else told
            flights = tuple((each, self.flights[each]) for each in some if each in self.flights)
            yield QueueImage(key, self.committed, self.next_serial, ranges, flights, at_ms)
