"""The questions that a place with messages answers: a live cluster, or stores' files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.losses import Loss
from aerobee.offset_audit.sources.messages.offsets import QueueOffsets
from aerobee.offset_audit.sources.messages.ranges import OffsetRange
from aerobee.runtime.errors import NoBrokerAvailable


@dataclass(frozen=True, slots=True)
class Bounds:
    """Messages [begin, end) of a queue exist."""

    begin: int
    end: int


KnownBounds = Mapping[MessageQueue, Bounds | None]
"""For all queues that are read; None if the broker could not tell now."""


@dataclass(frozen=True, slots=True)
class Window:
    """Store times that are wanted, both inclusive, Unix ms."""

    first_ms: int = -(1 << 63)
    last_ms: int = (1 << 63) - 1

    @property
    def is_all(self) -> bool:
        return self == Window()


class Reading(Protocol):
    """What one executor reads: picklable, and complete in itself."""

    def batches(self) -> Iterator[Any]:
        """pyarrow.RecordBatches, in the order of each queue.

        Raises:
            MessagesLost: messages are gone or damaged, and that is an error.
            AerobeeError: a broker could not be read in all the time.
        """
        ...


class Place(Protocol):
    """Asked on the driver."""

    def bounds(self, timeout_ms: int) -> KnownBounds:
        """Of every queue that the options choose. Raises AerobeeError."""
        ...

    def confirmed_bounds(
        self, queues: Sequence[MessageQueue], timeout_ms: int
    ) -> dict[MessageQueue, Bounds]:
        """Bounds of these queues, from the best authority; queues whose authority does not answer
        are left out."""
        ...

    def at_times(self, times_ms: Mapping[MessageQueue, int]) -> QueueOffsets:
        """The first offset stored at or after a time, the queue's end if there is none."""
        ...

    def plan(self, ranges: Sequence[OffsetRange], window: Window) -> Sequence[Reading]:
        """Who reads what."""
        ...


def all_known(bounds: KnownBounds) -> dict[MessageQueue, Bounds]:
    """Raises NoBrokerAvailable unless all queues' bounds are known."""
    unknown = sorted(queue for queue, found in bounds.items() if found is None)
    if unknown:
        raise NoBrokerAvailable(
            f"the bounds of {len(unknown)} queues ({unknown[0]} is the first) are not known: no "
            f"broker of group {unknown[0].broker_name} answered; see `aerobee cluster show` and "
            "try again"
        )
    return {queue: found for queue, found in bounds.items() if found is not None}


def clip(
    ranges: Sequence[OffsetRange], bounds: KnownBounds
) -> tuple[list[OffsetRange], list[Loss]]:
    """The part of the ranges that exists, and the part that does not. Ranges of unknown bounds are
    unchanged."""
    there: list[OffsetRange] = []
    losses: list[Loss] = []
    for one in ranges:
        found = bounds.get(one.queue)
        if found is None:
            if one.queue in bounds:
                there.append(one)
            else:
                losses.append(Loss(one.queue, one.begin, one.end, "the queue is gone"))
            continue
        begin = min(max(one.begin, found.begin), one.end)
        end = max(min(one.end, found.end), begin)
        if begin > one.begin:
            losses.append(Loss(one.queue, one.begin, begin, "removed by retention"))
        if end < one.end:
            losses.append(Loss(one.queue, end, one.end, "past the queue's end"))
        if begin < end:
            there.append(OffsetRange(one.queue, begin, end))
    return there, losses
