"""What the folders of the replicas hold, read as files: no broker is asked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from aerobee.store.format.dead_letter_fields import dead_letter_topic, retry_topic
from aerobee.store.format.record import MAGIC_BLANK, Record
from tests.failover.checker import Failed, Stored
from tests.failover.history import Place, read_body


def log_bytes(folder: Path, end: int) -> bytes:
    """A replica's log from its first segment up to `end`."""
    parts = []
    for path in sorted((folder / "commitlog").iterdir()):
        begin = int(path.name) if path.name.isdecimal() else end
        if begin < end:
            parts.append(path.read_bytes()[: end - begin])
    return b"".join(parts)


def failed_messages(log: bytes, group: str) -> Failed:
    """What came again to a group, and its dead letters."""
    return Failed(
        attempts=[
            (read_body(bytes(record.body)), record.reconsume_times)
            for record in _records(log, retry_topic(group))
        ],
        dead_letters=[
            read_body(bytes(record.body)) for record in _records(log, dead_letter_topic(group))
        ],
    )


def stored_messages(log: bytes, topic: str) -> list[Stored]:
    """The messages of a topic, in the log's order. `log` begins with a record."""
    return [
        Stored(
            Place(record.queue_id, record.queue_offset),
            bytes(record.body),
            record.store_timestamp_ms,
        )
        for record in _records(log, topic)
    ]


def _records(log: bytes, topic: str) -> Iterator[Record]:
    at = 0
    while at + 8 <= len(log):
        size, magic = struct.unpack_from(">ii", log, at)
        assert size > 0, f"no record at {at} of {len(log)}"
        if magic != MAGIC_BLANK:
            record = Record(log, at)
            if record.topic == topic:
                yield record
        at += size
