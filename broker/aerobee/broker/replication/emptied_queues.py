"""PURE: queues whose messages were all removed, as they go to a slave: the log does not tell where
their numbers go on, and a slave that becomes master must know.

They travel like one of the tables, under a name of their own that no file has.
"""

from __future__ import annotations

import json

EMPTIED_QUEUES_PATH = "consumequeue/emptied"

QueueOffsets = dict[tuple[str, int], int]
"""Next offset by topic and queue id."""


def encode_emptied(queues: QueueOffsets) -> bytes:
    return json.dumps(
        [[topic, queue_id, offset] for (topic, queue_id), offset in sorted(queues.items())]
    ).encode()


def decode_emptied(data: bytes) -> QueueOffsets:
    """Raises ValueError for anything else."""
    queues: QueueOffsets = {}
    document = json.loads(data)
    if not isinstance(document, list):
        raise ValueError("it is not a list of queues")
    for entry in document:
        match entry:
            case [str(topic), int(queue_id), int(offset)] if queue_id >= 0 and offset >= 0:
                queues[topic, queue_id] = offset
            case _:
                raise ValueError(f"{entry!r} is not a topic, a queue id and an offset")
    return queues
