"""PURE: on which replica sets a topic has queues, and over which of them its keys are spread.

A topic's keys are spread over its queues by replica set and id, until it is retired from a set.
From then on its key order is kept: each retired queue's place is taken by its successor, a new
queue elsewhere, and queues that are added come last. So retiring moves the keys of the retired
queues and no others, each queue's keys to one queue together.

    before     a:0 a:1 b:0 b:1
    retire a   c:0 c:1 b:0 b:1     a:0 and a:1 are read to their end, and then leave the topic

Invariant: the key order has every queue that takes messages exactly once. A set from which a topic
was retired gets no queues of it again: its queue ids would continue the old ones.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from aerobee.nameserver.stored import QueueRun, Topic


def place_queues(topic: str, queues: int, replica_sets: Sequence[str]) -> dict[str, int]:
    """Replica set -> number of queues; replica sets that would get none are left out."""
    return grow_queues(topic, {}, queues, replica_sets)


def grow_queues(
    topic: str, current: Mapping[str, int], queues: int, replica_sets: Sequence[str]
) -> dict[str, int]:
    """`current` with queues added until there are `queues`, each to the replica set that has the
    fewest: they are spread as evenly as whole numbers allow. Which sets get one more than the
    others depends on the topic's name, so that many small topics do not all land on the first set,
    and every nameserver decides alike.

    Only `replica_sets` get new ones; existing queues stay where they are: queue ids start at 0 on
    each set.
    """
    assert replica_sets, "there must be a replica set to place queues on"
    assert queues >= sum(current.values()), "queues are never taken away"
    ordered = sorted(replica_sets)
    start = zlib.crc32(topic.encode()) % len(ordered)
    turns = ordered[start:] + ordered[:start]
    counts = {replica_set: current.get(replica_set, 0) for replica_set in turns}
    for _ in range(queues - sum(current.values())):
        fewest = min(turns, key=counts.__getitem__)  # the first among equals
        counts[fewest] += 1
    return {
        replica_set: count
        for replica_set, count in sorted((dict(current) | counts).items())
        if count
    }


def leveled(topic: Topic, replica_sets: Sequence[str], *, queues_max: int) -> dict[str, int]:
    """The topic's queues with as many on each of `replica_sets` as on the one that has most, or as
    evenly as `queues_max` in total allow. Retired queues do not count as a measure."""
    current = topic.queues_by_broker
    most = max((n for name, n in current.items() if name not in topic.retired), default=1)
    missing = sum(max(0, most - current.get(name, 0)) for name in replica_sets)
    total = max(topic.queues, min(topic.queues + missing, queues_max))
    return grow_queues(topic.name, current, total, replica_sets)


def with_queues(topic: Topic, queues_by_broker: Mapping[str, int]) -> Topic:
    """The topic with queues added; its keys are spread over these as well."""
    added = [
        QueueRun(name, topic.queues_by_broker.get(name, 0), count)
        for name, count in added_to(topic, queues_by_broker).items()
    ]
    return dataclasses.replace(
        topic,
        queues_by_broker=dict(queues_by_broker),
        key_order=(*topic.key_order, *added) if topic.key_order else (),
    )


def added_to(topic: Topic, queues_by_broker: Mapping[str, int]) -> dict[str, int]:
    """Replica set -> how many queues it gets, without those that get none."""
    found = {
        name: count - topic.queues_by_broker.get(name, 0)
        for name, count in sorted(queues_by_broker.items())
    }
    return {name: count for name, count in found.items() if count}


def without_keys_on(topic: Topic, retired: Collection[str], replica_sets: Sequence[str]) -> Topic:
    """The topic retired from some of its replica sets; each queue there gets a successor on one of
    `replica_sets`."""
    leaving = [name for name in sorted(retired) if name not in topic.retired]
    kept = {n: count for n, count in topic.queues_by_broker.items() if n in replica_sets}
    wanted = sum(topic.queues_by_broker[name] for name in leaving)
    grown = grow_queues(topic.name, kept, sum(kept.values()) + wanted, replica_sets)
    new = [
        (name, queue_id)
        for name, count in grown.items()
        for queue_id in range(kept.get(name, 0), count)
    ]
    heirs = iter(new)
    successors = {
        (name, queue_id): next(heirs)
        for name in leaving
        for queue_id in range(topic.queues_by_broker[name])
    }
    order = [successors.get(each, each) for each in _places(key_order(topic))]
    return dataclasses.replace(
        topic,
        queues_by_broker=dict(sorted((dict(topic.queues_by_broker) | grown).items())),
        key_order=_runs(order),
        retired=dict(topic.retired)
        | {
            name: _runs(successors[name, n] for n in range(topic.queues_by_broker[name]))
            for name in leaving
        },
    )


def key_order(topic: Topic) -> tuple[QueueRun, ...]:
    """The queues over which the topic's keys are spread, in order."""
    return topic.key_order or tuple(
        QueueRun(name, 0, count) for name, count in sorted(topic.queues_by_broker.items())
    )


def _places(runs: Iterable[QueueRun]) -> list[tuple[str, int]]:
    return [(run.broker_name, run.first + n) for run in runs for n in range(run.queues)]


def _runs(places: Iterable[tuple[str, int]]) -> tuple[QueueRun, ...]:
    found: list[QueueRun] = []
    for name, queue_id in places:
        last = found[-1] if found else None
        if last is not None and (last.broker_name, last.first + last.queues) == (name, queue_id):
            found[-1] = last._replace(queues=last.queues + 1)
        else:
            found.append(QueueRun(name, queue_id, 1))
    return tuple(found)
