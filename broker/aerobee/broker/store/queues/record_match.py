"""Whether the bytes that a queue's entries led to are records of that queue.

Entries have no checksum, and a start does not look at every one of them. A bit that flips in one
would let readers see the middle of a record, or another queue's message; so each read compares what
it got with what led there, for all of its records at once.
"""

from __future__ import annotations

import struct

import numpy as np

from aerobee.broker.store.errors import EntryMismatch
from aerobee.broker.store.queues.reading import Located
from aerobee.store_format.names import LIGHT_QUEUE_PREFIX
from aerobee.store_format.record_arrays import Int64Array, byte_field
from aerobee.store_format.record_layout import (
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
)

_HEAD = struct.Struct(">ii4xi12xq")
_MAGICS = (MAGIC_V1, MAGIC_V2)
# From so many records on arrays are faster than a loop.
_ARRAYS_FROM = 8


class RecordCheck:
    """Tells whether records are those of one queue."""

    __slots__ = ("_queue_id", "_topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self._topic = topic
        self._queue_id = queue_id

    def check(self, located: Located, records: bytes) -> None:
        """[any thread] Raises EntryMismatch unless `records` are what `located` means."""
        own_id = None if self._topic.startswith(LIGHT_QUEUE_PREFIX) else self._queue_id
        wrong = first_mismatch(records, located.positions, located.sizes, own_id)
        if wrong is not None:
            raise self.mismatch(f"at log offset {located.positions[wrong]}")

    def mismatch(self, where: str) -> EntryMismatch:
        return EntryMismatch(self._topic, self._queue_id, where)


def first_mismatch(
    records: bytes, positions: Int64Array, sizes: Int64Array, queue_id: int | None
) -> int | None:
    """Which of the records, which lie end to end, is not the one that an entry of the log offset
    `positions[i]` and of `sizes[i]` bytes means; None if all are. `queue_id` None: any queue's.
    """
    if len(sizes) < _ARRAYS_FROM:
        return _first_by_loop(records, positions.tolist(), sizes.tolist(), queue_id)
    ends = np.cumsum(sizes)
    if int(ends[-1]) != len(records):
        return 0
    starts = ends - sizes
    numbers = byte_field(records, ">i4")
    magics = numbers[starts + MAGIC_AT]
    matches = numbers[starts] == sizes
    matches &= (magics == MAGIC_V1) | (magics == MAGIC_V2)
    matches &= byte_field(records, ">i8")[starts + PHYSICAL_OFFSET_AT] == positions
    if queue_id is not None:
        matches &= numbers[starts + QUEUE_ID_AT] == queue_id
    return None if matches.all() else int(matches.argmin())


def _first_by_loop(
    records: bytes, positions: list[int], sizes: list[int], queue_id: int | None
) -> int | None:
    start = 0
    for index, (position, size) in enumerate(zip(positions, sizes, strict=True)):
        if size < _HEAD.size or start + size > len(records):
            return index
        stored_size, magic, stored_queue_id, stored_position = _HEAD.unpack_from(records, start)
        if stored_size != size or magic not in _MAGICS or stored_position != position:
            return index
        if queue_id is not None and stored_queue_id != queue_id:
            return index
        start += size
    return None
