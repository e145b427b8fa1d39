"""PURE: which broker groups get a topic's queues.

Queues are spread as evenly as whole numbers allow. The groups that get one more than the others
begin at a place that the topic's name decides, so that many small topics do not all sit on the
first group, and every nameserver decides alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence


def place_queues(topic: str, queues: int, groups: Sequence[str]) -> dict[str, int]:
    """Group -> number of queues; groups that would get none are left out."""
    return grow_queues(topic, {}, queues, groups)


def grow_queues(
    topic: str, current: Mapping[str, int], queues: int, groups: Sequence[str]
) -> dict[str, int]:
    """`current` with queues added until there are `queues`, each to the group that has fewest.

    Only `groups` get new ones; what a group has it keeps, because queue ids run from 0 on each.
    """
    assert groups, "there must be a group to place queues on"
    assert queues >= sum(current.values()), "queues are never taken away"
    ordered = sorted(groups)
    start = zlib.crc32(topic.encode()) % len(ordered)
    turns = ordered[start:] + ordered[:start]
    counts = {group: current.get(group, 0) for group in turns}
    for _ in range(queues - sum(current.values())):
        fewest = min(turns, key=counts.__getitem__)  # the first of equals
        counts[fewest] += 1
    return {group: count for group, count in sorted((dict(current) | counts).items()) if count}
