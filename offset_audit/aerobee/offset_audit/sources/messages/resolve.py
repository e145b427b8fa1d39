"""From the options to where to read: which place, and the offset of every queue."""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.live_place import LivePlace
from aerobee.offset_audit.sources.messages.offsets import (
    EARLIEST,
    LATEST,
    QueueOffsets,
    check_complete,
)
from aerobee.offset_audit.sources.messages.options import Bound, MessageOptions
from aerobee.offset_audit.sources.messages.place import Bounds, Place
from aerobee.offset_audit.sources.messages.store_place import StorePlace
from aerobee.runtime.errors import InvalidArgument


def open_place(options: MessageOptions) -> Place:
    """A live cluster or stores' files."""
    return StorePlace(options) if options.path else LivePlace(options)


def resolve(
    bound: Bound,
    bounds: Mapping[MessageQueue, Bounds],
    place: Place,
    *,
    late_is_error: bool = False,
) -> QueueOffsets:
    """The offset at each queue of `bounds`.

    Raises InvalidArgument: queues are missing or unknown, or, with `late_is_error`, a time is later
    than a queue's last message.
    """
    if bound.offset is not None:
        return {queue: _named(bound.offset, found) for queue, found in bounds.items()}
    if bound.offsets is not None:
        check_complete(bound.offsets, bounds, bound.option)
        return {queue: _named(bound.offsets[queue], found) for queue, found in bounds.items()}
    if bound.times_ms is not None:
        check_complete(bound.times_ms, bounds, bound.option)
        times_ms: Mapping[MessageQueue, int] = bound.times_ms
    else:
        assert bound.time_ms is not None
        times_ms = dict.fromkeys(bounds, bound.time_ms)
    offsets = place.at_times(times_ms)
    if late_is_error:
        # A queue that never had a message has nothing to miss.
        late = sorted(queue for queue, found in bounds.items() if 0 < found.end <= offsets[queue])
        if late:
            raise InvalidArgument(
                f"option {bound.option} is later than the last message of {len(late)} queues "
                f"({late[0]} is the first); startingOffsetsByTimestampStrategy=latest starts "
                "there at the latest offset"
            )
    return offsets


def _named(offset: int, found: Bounds) -> int:
    return {EARLIEST: found.begin, LATEST: found.end}.get(offset, offset)
