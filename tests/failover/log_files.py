"""What the folders of the replicas hold, read as files: no broker is asked."""

from __future__ import annotations

import struct
from pathlib import Path

from aerobee.store_format.record import MAGIC_BLANK, Record
from tests.failover.checker import Stored
from tests.failover.history import Place


def log_bytes(folder: Path, end: int) -> bytes:
    """A replica's log from its first segment up to `end`."""
    parts = []
    for path in sorted((folder / "commitlog").iterdir()):
        begin = int(path.name) if path.name.isdecimal() else end
        if begin < end:
            parts.append(path.read_bytes()[: end - begin])
    return b"".join(parts)


def stored_messages(log: bytes, topic: str) -> list[Stored]:
    """The messages of a topic, in the log's order. `log` begins with a record."""
    found = []
    at = 0
    while at + 8 <= len(log):
        size, magic = struct.unpack_from(">ii", log, at)
        assert size > 0, f"no record at {at} of {len(log)}"
        if magic != MAGIC_BLANK:
            record = Record(log, at)
            if record.topic == topic:
                place = Place(record.queue_id, record.queue_offset)
                found.append(Stored(place, bytes(record.body), record.store_timestamp_ms))
        at += size
    return found
