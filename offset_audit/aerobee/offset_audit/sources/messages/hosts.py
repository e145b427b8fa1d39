"""Addresses in records as text: who sent a message, and the id that says where it was stored.

Neighbouring records have few different hosts, so each is formatted once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from aerobee.offset_audit.sources.messages.pieces import constant, hex_text
from aerobee.store.format.like_pieces import pieces_of
from aerobee.store.format.record_arrays import Int64Array, RecordArrays, hosts_extra
from aerobee.store.format.record_layout import (
    BORN_HOST_AT,
    PHYSICAL_OFFSET_AT,
    STORE_HOST_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_STORE_HOST_V6,
    HostAddress,
)

_V4_BYTES = 8
_V6_BYTES = 20


def born_hosts(buffer: bytes | memoryview, arrays: RecordArrays) -> Any:
    """`address:port` of each record's sender, `[address]:port` for IPv6."""
    return _joined(
        arrays.sys_flags & SYSFLAG_BORN_HOST_V6,
        lambda chosen, width: _texts(buffer, arrays.starts[chosen] + BORN_HOST_AT, width),
    )


def store_hosts(buffer: bytes | memoryview, arrays: RecordArrays) -> Any:
    """The same of the broker that stored each record."""
    extra = hosts_extra(arrays.sys_flags)
    starts = arrays.starts if extra is None else arrays.starts + extra[0]
    return _joined(
        arrays.sys_flags & SYSFLAG_STORE_HOST_V6,
        lambda chosen, width: _texts(buffer, starts[chosen] + STORE_HOST_AT, width),
    )


def offset_message_ids(buffer: bytes | memoryview, arrays: RecordArrays) -> Any:
    """The id of each record that names its broker's address and its place in the log."""
    extra = hosts_extra(arrays.sys_flags)
    starts = arrays.starts
    host_starts = starts + STORE_HOST_AT if extra is None else starts + STORE_HOST_AT + extra[0]

    def ids(chosen: Int64Array, width: int) -> Any:
        hosts = _rows(buffer, host_starts[chosen], width)
        places = _rows(buffer, starts[chosen] + PHYSICAL_OFFSET_AT, 8)
        return hex_text(np.hstack((hosts, places)))

    return _joined(arrays.sys_flags & SYSFLAG_STORE_HOST_V6, ids)


def _joined(is_v6: Int64Array, texts: Any) -> Any:
    """`texts(records, width)` for the records of each width, in the order of the records."""
    if not is_v6.any():
        return texts(np.arange(len(is_v6)), _V4_BYTES)
    short, long = np.flatnonzero(is_v6 == 0), np.flatnonzero(is_v6)
    order = np.empty(len(is_v6), np.int64)
    order[short] = np.arange(len(short))
    order[long] = len(short) + np.arange(len(long))
    both = pa.concat_arrays([texts(short, _V4_BYTES), texts(long, _V6_BYTES)])
    return both.take(pa.array(order))


def _rows(buffer: bytes | memoryview, starts: Int64Array, width: int) -> Any:
    return pieces_of(buffer, starts, width).view(np.uint8).reshape(len(starts), width)


def _texts(buffer: bytes | memoryview, starts: Int64Array, width: int) -> Any:
    pieces = pieces_of(buffer, starts, width)
    if len(pieces) == 0:
        return pa.array([], pa.string())
    first = pieces[0].tobytes()
    if pieces.tobytes() == first * len(pieces):
        return constant(str(HostAddress.unpack(first)), len(pieces))
    # Numbers sort faster than bytes; IPv6 is rare.
    values = pieces.view(">i8") if width == _V4_BYTES else pieces.view(f"S{width}")
    _, first_at, codes = np.unique(values, return_index=True, return_inverse=True)
    names = [str(HostAddress.unpack(pieces[index].tobytes())) for index in first_at.tolist()]
    return pa.array(names, pa.string()).take(pa.array(codes))
