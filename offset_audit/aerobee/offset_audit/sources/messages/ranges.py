"""Which messages are read: ranges of offsets, shared fairly and divided for executors. Pure.

The share of a queue in a limited batch is proportional to its unread messages, as in Spark's Kafka
source, but the limit is never exceeded: every queue with messages gets at least one or, if there
are more queues than allowed messages, queues take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.offsets import QueueOffsets


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages [begin, end) of a queue."""

    queue: MessageQueue
    begin: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.begin


def between(
    begins: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> list[OffsetRange]:
    """What is between two sets of offsets, in order; a new queue begins at 0."""
    ranges = [OffsetRange(queue, begins.get(queue, 0), ends[queue]) for queue in sorted(ends)]
    return [one for one in ranges if one.count > 0]


def share_limit(
    begins: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], limit: int
) -> QueueOffsets:
    """Ends at most `limit` messages, over all queues, after `begins`."""
    waiting = {queue: max(0, ends[queue] - begins.get(queue, 0)) for queue in sorted(ends)}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    filled = [queue for queue, count in waiting.items() if count]
    if limit < len(filled):
        shares = _in_turn(filled, sum(begins.values()), limit)
    else:
        shares = _in_proportion(filled, waiting, limit)
    return {
        queue: min(ends[queue], begins.get(queue, 0) + shares.get(queue, 0)) for queue in waiting
    }


def _in_turn(filled: Sequence[MessageQueue], turn: int, limit: int) -> dict[MessageQueue, int]:
    """One message from each of `limit` queues; the turn advances with every message read."""
    first = turn % len(filled)
    order = [*filled[first:], *filled[:first]]
    return dict.fromkeys(order[:limit], 1)


def _in_proportion(
    filled: Sequence[MessageQueue], waiting: Mapping[MessageQueue, int], limit: int
) -> dict[MessageQueue, int]:
    """One for each, and a proportional share of the rest; remainders of rounding go to the largest
    fractions."""
    rest = limit - len(filled)
    total = sum(waiting[queue] - 1 for queue in filled)
    shares = {queue: 1 + rest * (waiting[queue] - 1) // max(1, total) for queue in filled}
    left = limit - sum(shares.values())
    by_remainder = sorted(
        filled, key=lambda queue: (-(rest * (waiting[queue] - 1) % max(1, total)), queue)
    )
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return shares


def divide(
    ranges: Iterable[OffsetRange], *, pieces_min: int = 0, messages_max: int = 0
) -> list[OffsetRange]:
    """Ranges of at most `messages_max` messages, and at least `pieces_min` of them if there are
    that many messages; 0: no minimum."""
    pieces = [one for one in ranges if one.count > 0]
    if messages_max > 0:
        pieces = [part for one in pieces for part in _split(one, -(-one.count // messages_max))]
    if pieces_min > len(pieces) > 0:
        total = sum(one.count for one in pieces)
        # Rounded up, so that there are never too few.
        pieces = [
            part for one in pieces for part in _split(one, -(-one.count * pieces_min // total))
        ]
    return pieces


def _split(one: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = max(1, min(parts, one.count))
    borders = [one.begin + one.count * index // parts for index in range(parts + 1)]
    return [OffsetRange(one.queue, begin, end) for begin, end in pairwise(borders)]


def pack(
    ranges: Sequence[OffsetRange], *, messages_min: int, pieces_min: int
) -> list[tuple[OffsetRange, ...]]:
    """Combines neighbouring ranges of one broker until a package has `messages_min` messages; at
    least `pieces_min` packages if there are that many ranges."""
    if len(ranges) <= pieces_min:
        return [(one,) for one in ranges]
    total = sum(one.count for one in ranges)
    enough = min(messages_min, max(1, total // max(1, pieces_min)))
    packages: list[tuple[OffsetRange, ...]] = []
    taken: list[OffsetRange] = []
    by_broker = sorted(ranges, key=lambda one: (one.queue.broker_name, one.queue, one.begin))
    for one in by_broker:
        is_other = bool(taken) and taken[-1].queue.broker_name != one.queue.broker_name
        if taken and (is_other or sum(each.count for each in taken) >= enough):
            packages.append(tuple(taken))
            taken = []
        taken.append(one)
    if taken:
        packages.append(tuple(taken))
    return packages
