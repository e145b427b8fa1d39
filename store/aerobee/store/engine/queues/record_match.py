"""Whether the bytes that a queue's entries point to are records of that queue.

Entries have no checksum, and a start does not check every one of them. A flipped bit in one would
show readers the middle of a record, or another queue's message; so each read compares what it got
with its entries, for all of its records at once: size, magic, log offset, queue id and topic. Queue
offsets are not compared: in folders that once lost an entry, all later ones are off by one, and are
served.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from aerobee.store.engine.errors import EntryMismatch
from aerobee.store.engine.queues.reading import Located
from aerobee.store.format.names import LIGHT_QUEUE_PREFIX
from aerobee.store.format.record_arrays import (
    BoolArray,
    Int64Array,
    byte_field,
    hosts_extra,
)
from aerobee.store.format.record_layout import (
    BODY_AT,
    BODY_LENGTH_AT,
    HOST_V6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    RECORD_SIZE_MIN,
    SIZE_AT,
    SYS_FLAG_AT,
    SYSFLAG_HOSTS_MASK,
)

HeadArray = npt.NDArray[np.void]

_HEADS = np.dtype(
    {
        "names": ["size", "magic", "queue_id", "position", "flags", "body_length"],
        "formats": [">i4", ">i4", ">i4", ">i8", ">i4", ">i4"],
        "offsets": [
            SIZE_AT,
            MAGIC_AT,
            QUEUE_ID_AT,
            PHYSICAL_OFFSET_AT,
            SYS_FLAG_AT,
            BODY_LENGTH_AT,
        ],
        "itemsize": BODY_AT,
    }
)
# The same except the body's length.
_HEAD = struct.Struct(">ii4xi12xqi")
_BODY_LENGTH = struct.Struct(">i")
_MAGICS = (MAGIC_V1, MAGIC_V2)
_PROPERTIES_LENGTH_BYTES = 2
# From this many records on, arrays are faster than a loop.
_ARRAYS_FROM = 8


class RecordCheck:
    """Checks whether records belong to one queue."""

    __slots__ = ("_queue_id", "_topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self._topic = topic
        self._queue_id = queue_id

    def check(self, located: Located, records: bytes) -> None:
        """[any thread] Raises EntryMismatch unless `records` are those that `located` describes."""
        self.check_records(records, located.positions, located.sizes)

    def check_records(self, records: bytes, positions: Int64Array, sizes: Int64Array) -> None:
        """[any thread] Raises EntryMismatch unless `records` are at these places of the log."""
        is_light = self._topic.startswith(LIGHT_QUEUE_PREFIX)
        wrong = find_mismatch(
            records,
            positions,
            sizes,
            queue_id=None if is_light else self._queue_id,
            topic=None if is_light else _stored_topic(self._topic),
        )
        if wrong is not None:
            raise self.mismatch(f"at log offset {positions[wrong]}")

    def mismatch(self, where: str) -> EntryMismatch:
        return EntryMismatch(self._topic, self._queue_id, where)


def find_mismatch(
    records: bytes,
    positions: Int64Array,
    sizes: Int64Array,
    *,
    queue_id: int | None,
    topic: bytes | None,
) -> int | None:
    """One of the concatenated records that does not match its entry, which has log offset
    `positions[i]` and size `sizes[i]`; None if all match. `queue_id` and `topic` None: any.
    """
    if len(sizes) < _ARRAYS_FROM:
        return _find_by_loop(records, positions.tolist(), sizes.tolist(), queue_id, topic)
    if int(sizes.min()) < RECORD_SIZE_MIN:
        return int(sizes.argmin())
    ends = np.cumsum(sizes)
    if int(ends[-1]) != len(records):
        return 0
    starts = ends - sizes
    heads = _heads(records, starts)
    is_v2 = heads["magic"] == MAGIC_V2
    matches = heads["size"] == sizes
    matches &= is_v2 | (heads["magic"] == MAGIC_V1)
    matches &= heads["position"] == positions
    if queue_id is not None:
        matches &= heads["queue_id"] == queue_id
    if matches.all():
        if topic is None:
            return None
        matches = _have_topic(records, heads, starts, ends, topic)
    return None if matches.all() else int(matches.argmin())


def _heads(records: bytes, starts: Int64Array) -> HeadArray:
    """All fixed fields copied at once: then each column is cheap."""
    views = np.ndarray((len(records) - BODY_AT + 1,), f"V{BODY_AT}", records, 0, (1,))
    return views[starts].view(_HEADS)


def _have_topic(
    records: bytes, heads: HeadArray, starts: Int64Array, ends: Int64Array, topic: bytes
) -> BoolArray:
    """Which of these records are of the topic; False if lengths point outside the record."""
    body_starts = starts + BODY_AT
    lengths = heads["body_length"]
    if (heads["flags"] & SYSFLAG_HOSTS_MASK).any():
        extra = hosts_extra(heads["flags"].astype(np.int64))
        assert extra is not None
        # The last record may be too short for its hosts.
        body_starts = np.minimum(body_starts + extra[1], len(records))
        lengths = byte_field(records, ">i4")[body_starts - _BODY_LENGTH.size]
    body_ends = body_starts + lengths
    if int(lengths.min()) < 0:
        body_ends = np.where(lengths < 0, len(records), body_ends)
    v1_text, v2_text = _topic_fields(topic)
    is_v2 = heads["magic"] == MAGIC_V2
    if not is_v2.any():
        return _have_text(records, body_ends, ends, v1_text)
    have_v2 = _have_text(records, body_ends, ends, v2_text)
    if is_v2.all():
        return have_v2
    return np.where(is_v2, have_v2, _have_text(records, body_ends, ends, v1_text))


def _have_text(records: bytes, at: Int64Array, ends: Int64Array, text: bytes) -> BoolArray:
    """Whether `text` is `at` each position, and the properties' length before the record's end."""
    size = len(text)
    if size > len(records):
        return np.zeros(len(at), np.bool_)
    fits = at <= ends - (size + _PROPERTIES_LENGTH_BYTES)
    if not fits.all():
        at = np.where(fits, at, 0)
    views = np.ndarray((max(1, len(records) - size + 1),), f"S{size}", records, 0, (1,))
    texts = views[at]
    if texts.tobytes() == text * len(at):
        return fits
    fits &= texts == text
    return fits


def _topic_fields(topic: bytes) -> tuple[bytes, bytes]:
    """A topic preceded by its length, as in records of v1 and of v2."""
    v2_text = len(topic).to_bytes(2, "big") + topic
    return v2_text[1:], v2_text


def _find_by_loop(
    records: bytes,
    positions: list[int],
    sizes: list[int],
    queue_id: int | None,
    topic: bytes | None,
) -> int | None:
    start = 0
    fields = None if topic is None else _topic_fields(topic)
    for index, (position, size) in enumerate(zip(positions, sizes, strict=True)):
        end = start + size
        if size < RECORD_SIZE_MIN or end > len(records):
            return index
        stored_size, magic, stored_id, stored_position, flags = _HEAD.unpack_from(records, start)
        if stored_size != size or magic not in _MAGICS or stored_position != position:
            return index
        if queue_id is not None and stored_id != queue_id:
            return index
        if fields is not None:
            body_start = start + BODY_AT
            if flags & SYSFLAG_HOSTS_MASK:
                body_start += HOST_V6_EXTRA * (flags & SYSFLAG_HOSTS_MASK).bit_count()
            if body_start > end:
                return index
            body_length: int = _BODY_LENGTH.unpack_from(records, body_start - _BODY_LENGTH.size)[0]
            body_end = body_start + body_length
            text = fields[magic == MAGIC_V2]
            if body_length < 0 or not records.startswith(text, body_end, end):
                return index
        start = end
    return None


def _stored_topic(topic: str) -> bytes | None:
    """A topic as in records; None if the bytes of its name are unknown: it was not UTF-8."""
    if "\ufffd" in topic:
        return None
    try:
        return topic.encode()
    except UnicodeEncodeError:
        return None
