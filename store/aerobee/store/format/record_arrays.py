"""Many records parsed at once: the positions of all fields, as arrays.

Numbers are read through views of the buffer in which an element starts at every byte, so that one
index expression gathers a field of all records wherever they are, and one assignment writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from aerobee.store.format.record_layout import (
    BODY_LENGTH_AT,
    HOST_V6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
    SIZE_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_HOSTS_MASK,
    SYSFLAG_STORE_HOST_V6,
)

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_WIDTHS: Final = {"u1": 1, ">i2": 2, ">i4": 4, ">i8": 8}


def byte_field(buffer: bytes | bytearray | memoryview, dtype: str) -> npt.NDArray[Any]:
    """A view in which element p is the `dtype` number at byte p; writable if the buffer is."""
    length = max(0, len(buffer) - _WIDTHS[dtype] + 1)
    return np.ndarray((length,), dtype, buffer, 0, (1,))


def read_field(field: npt.NDArray[Any], positions: Int64Array) -> Int64Array:
    """The numbers at `positions`, in native order."""
    return field[positions].astype(np.int64)


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """Columns over records: positions in the buffer, system flags, and whether lengths agree.

    If `legal` is false, the other columns of that record are meaningless.
    """

    starts: Int64Array
    ends: Int64Array
    sys_flags: Int64Array
    body_starts: Int64Array
    body_ends: Int64Array
    topic_starts: Int64Array
    topic_ends: Int64Array
    properties_starts: Int64Array
    legal: BoolArray

    def only(self, chosen: BoolArray | slice) -> RecordArrays:
        """The columns of some of the records."""
        return RecordArrays(
            starts=self.starts[chosen],
            ends=self.ends[chosen],
            sys_flags=self.sys_flags[chosen],
            body_starts=self.body_starts[chosen],
            body_ends=self.body_ends[chosen],
            topic_starts=self.topic_starts[chosen],
            topic_ends=self.topic_ends[chosen],
            properties_starts=self.properties_starts[chosen],
            legal=self.legal[chosen],
        )


def hosts_extra(sys_flags: Int64Array) -> tuple[Int64Array, Int64Array] | None:
    """Bytes that the born host, and both hosts, take beyond IPv4's size; None if none does."""
    if not (sys_flags & SYSFLAG_HOSTS_MASK).any():
        return None
    born = np.where(sys_flags & SYSFLAG_BORN_HOST_V6, HOST_V6_EXTRA, 0)
    both = born + np.where(sys_flags & SYSFLAG_STORE_HOST_V6, HOST_V6_EXTRA, 0)
    return born, both


def parse_records(
    buffer: bytes | bytearray | memoryview, starts: Int64Array, ends: Int64Array
) -> RecordArrays:
    """Parse the records at [starts, ends), each at least RECORD_SIZE_MIN long and in the buffer."""
    int32s = byte_field(buffer, ">i4")
    int16s = byte_field(buffer, ">i2")
    uint8s = byte_field(buffer, "u1")
    magics = read_field(int32s, starts + MAGIC_AT)
    is_v2 = magics == MAGIC_V2
    legal = (is_v2 | (magics == MAGIC_V1)) & (read_field(int32s, starts + SIZE_AT) == ends - starts)
    sys_flags = read_field(int32s, starts + SYS_FLAG_AT)
    extra = hosts_extra(sys_flags)
    body_starts = starts + (BODY_LENGTH_AT + 4)
    if extra is not None:
        body_starts += extra[1]
        legal &= ends - starts >= RECORD_SIZE_MIN + extra[1]
        # Illegal ones must not be read past their end, where the buffer may end.
        body_starts = np.where(legal, body_starts, starts + (BODY_LENGTH_AT + 4))
    # The smallest trailer: topic length (1 or 2 bytes) and properties length.
    trailer_sizes = 3 + is_v2
    body_lengths = read_field(int32s, body_starts - 4)
    body_ends = body_starts + body_lengths
    legal &= (body_lengths >= 0) & (body_ends + trailer_sizes <= ends)
    body_ends = np.where(legal, body_ends, body_starts)
    topic_lengths = read_field(uint8s, body_ends)
    topic_starts = body_ends + 1
    if is_v2.any():
        topic_lengths = np.where(is_v2, read_field(int16s, body_ends), topic_lengths)
        topic_starts += is_v2
    topic_ends = topic_starts + topic_lengths
    legal &= (topic_lengths >= 0) & (topic_ends + 2 <= ends)
    topic_ends = np.where(legal, topic_ends, body_ends)
    properties_starts = topic_ends + 2
    # A negative length never equals the remaining size.
    legal &= read_field(int16s, topic_ends) == ends - properties_starts
    return RecordArrays(
        starts=starts,
        ends=ends,
        sys_flags=sys_flags,
        body_starts=body_starts,
        body_ends=body_ends,
        topic_starts=topic_starts,
        topic_ends=topic_ends,
        properties_starts=properties_starts,
        legal=legal,
    )
