"""Offsets of queues in the form of the options, checkpoints and Spark's progress: topic -> broker
-> queue -> offset.

An offset is the next message to read. In options -1 stands for the latest and -2 for the earliest.

A query's first end also contains where the query began, under BEGAN, which cannot be the name of a
topic: Spark records only ends, and a query killed in its first batch would otherwise look up
`latest` again, and get a different one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import InvalidArgument

LATEST = -1
EARLIEST = -2
BEGAN = "$began"

QueueOffsets = dict[MessageQueue, int]
Document = dict[str, Any]

_EXAMPLE = '{"orders": {"broker-a": {"0": 23, "1": -2}}}'


def to_document(offsets: Mapping[MessageQueue, int]) -> Document:
    """Sorted, so that equal offsets are equal text."""
    document: Document = {}
    for queue in sorted(offsets):
        by_broker = document.setdefault(queue.topic, {})
        by_broker.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return document


def from_document(document: Mapping[str, Any]) -> QueueOffsets:
    """The inverse; BEGAN is ignored.

    Raises InvalidArgument for any other shape.
    """
    offsets: QueueOffsets = {}
    try:
        for topic, by_broker in document.items():
            if topic == BEGAN:
                continue
            for broker_name, by_queue in by_broker.items():
                for queue_id, offset in by_queue.items():
                    if isinstance(offset, bool) or not isinstance(offset, int):
                        raise ValueError
                    offsets[MessageQueue(topic, broker_name, int(queue_id))] = offset
    except (AttributeError, ValueError):
        raise InvalidArgument(
            f"offsets are not topic -> broker -> queue -> number, as in {_EXAMPLE}"
        ) from None
    return offsets


def parse_offsets(text: str, option: str) -> QueueOffsets:
    """An option's JSON. Raises InvalidArgument that names the option."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError
        return from_document(document)
    except (ValueError, InvalidArgument):
        raise InvalidArgument(
            f"option {option} is {text!r:.80}, not JSON of topic -> broker -> queue -> number, "
            f"as in {_EXAMPLE}"
        ) from None


def with_beginning(
    end: Mapping[MessageQueue, int], beginning: Mapping[MessageQueue, int]
) -> Document:
    """The first end of a query, which also stores where the query began."""
    return {**to_document(end), BEGAN: to_document(beginning)}


def beginning_of(end: Mapping[str, Any]) -> QueueOffsets | None:
    """Where the query began, if this is the end of its first batch."""
    began = end.get(BEGAN)
    return None if began is None else from_document(began)


def check_complete(
    given: Mapping[MessageQueue, int], queues: Iterable[MessageQueue], option: str
) -> None:
    """Raises InvalidArgument unless `given` names every queue and no other."""
    there = set(queues)
    missing = sorted(there - given.keys())
    unknown = sorted(given.keys() - there)
    if missing:
        raise InvalidArgument(
            f"option {option} must name all queues that are read; it lacks {_listed(missing)}. "
            "-2 stands for the earliest offset, -1 for the latest"
        )
    if unknown:
        raise InvalidArgument(
            f"option {option} names queues that do not exist or are not read: {_listed(unknown)}"
        )


def _listed(queues: list[MessageQueue]) -> str:
    more = f" and {len(queues) - 5} more" if len(queues) > 5 else ""
    return ", ".join(str(queue) for queue in queues[:5]) + more
