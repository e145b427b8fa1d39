"""The file `consumequeue.ends`: how far each queue's files surely reach.

Apache's broker cannot tell a queue that lost its files from one that never had any, and would hand
out its offsets a second time. This list, written with each checkpoint, tells. It counts only beside
the very checkpoint it was written with, so a folder that another broker used meanwhile is not
judged by it. Losing it loses nothing.

    <physic timestamp> <logics timestamp> <minimum offset of the log>
    <first entry in files> <end> <queue id> <topic>            one line per queue
    crc32 of all lines above, 8 hex digits
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from aerobee.broker.store.disk import Disk
from aerobee.broker.store.queues.consume_queue import ConsumeQueue
from aerobee.store_format.checkpoint import Checkpoint

QUEUE_ENDS_FILE = "consumequeue.ends"
_NEW_FILE = "consumequeue.ends.tmp"


class FileRange(NamedTuple):
    """The entries in a queue's files."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """What the file says; nothing if it does not count."""

    log_min_offset: int = 0
    queues: dict[tuple[str, int], FileRange] = field(default_factory=dict)


def encode_queue_ends(
    checkpoint: Checkpoint, log_min_offset: int, queues: Iterable[ConsumeQueue]
) -> bytes:
    """The file for queues whose present entries are about to be in their files."""
    physic, logics = checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp
    lines = [f"{physic} {logics} {log_min_offset}\n"]
    lines += [
        f"{queue.first_offset} {queue.end} {queue.queue_id} {queue.topic}\n"
        for queue in queues
        if queue.end
    ]
    data = "".join(lines).encode()
    return data + b"%08x\n" % crc32(data)


def decode_queue_ends(data: bytes, checkpoint: Checkpoint) -> QueueEnds:
    """Nothing if the bytes are damaged or belong to another checkpoint."""
    body, digits = data[:-9], data[-9:]
    if digits != b"%08x\n" % crc32(body):
        return QueueEnds()
    head, *lines = body.decode().splitlines()
    physic, logics, log_min_offset = map(int, head.split())
    if (physic, logics) != (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp):
        return QueueEnds()
    queues = {}
    for line in lines:
        first, end, queue_id, topic = line.split(" ", 3)
        queues[topic, int(queue_id)] = FileRange(int(first), int(end))
    return QueueEnds(log_min_offset, queues)


def write_queue_ends(disk: Disk, data: bytes) -> None:
    """[one thread at a time] Replace the file; durable with the next fsync of the root."""
    file = disk.open_file(_NEW_FILE, create=True)
    file.truncate(0)
    file.write_at(0, (data,))
    file.datasync()
    file.close()
    disk.rename(_NEW_FILE, QUEUE_ENDS_FILE)


def read_queue_ends(disk: Disk, checkpoint: Checkpoint) -> QueueEnds:
    try:
        return decode_queue_ends(disk.read_file(QUEUE_ENDS_FILE), checkpoint)
    except OSError:
        return QueueEnds()
