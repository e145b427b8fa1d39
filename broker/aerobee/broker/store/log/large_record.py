"""Whether a record that is larger than what is read at once may be one, by its lengths alone.

The size that a torn record claims is whatever bytes stand there. Reading so much, only to find that
nothing fits, may take more memory than there is.
"""

from __future__ import annotations

import struct

from aerobee.broker.store.disk import DiskFile
from aerobee.store_format.record_layout import (
    BODY_AT,
    BODY_LENGTH_AT,
    HOST_V6_EXTRA,
    MAGIC_AT,
    MAGIC_V2,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_STORE_HOST_V6,
)

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
HEAD_BYTES_MAX = BODY_AT + 2 * HOST_V6_EXTRA


def lengths_add_up(file: DiskFile, at: int, size: int) -> bool:
    """Whether the lengths of body, topic and properties make the record at byte `at`, which claims
    to be `size` bytes long, more than HEAD_BYTES_MAX, so long. Reads a few bytes of it.

    Raises OSError."""
    head = file.read_at(at, HEAD_BYTES_MAX)
    if len(head) < HEAD_BYTES_MAX:
        return False
    (magic,) = _I32.unpack_from(head, MAGIC_AT)
    (sys_flag,) = _I32.unpack_from(head, SYS_FLAG_AT)
    extra = HOST_V6_EXTRA * (
        bool(sys_flag & SYSFLAG_BORN_HOST_V6) + bool(sys_flag & SYSFLAG_STORE_HOST_V6)
    )
    (body_length,) = _I32.unpack_from(head, BODY_LENGTH_AT + extra)
    length_bytes = 2 if magic == MAGIC_V2 else 1
    topic_at = BODY_AT + extra + body_length + length_bytes
    if body_length < 0 or topic_at + _I16.size > size:
        return False
    topic_length = int.from_bytes(file.read_at(at + topic_at - length_bytes, length_bytes), "big")
    properties_at = topic_at + topic_length + _I16.size
    if properties_at > size:
        return False
    data = file.read_at(at + properties_at - _I16.size, _I16.size)
    return len(data) == _I16.size and properties_at + _I16.unpack(data)[0] == size
