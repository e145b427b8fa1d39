"""Rewrites a stored record for another topic or with other properties.

What the application made is kept: body and its checksum, flag, born time and host, and the system
flag except for what says how it was stored. The body is not read: damage on the disk is found by
its checksum when the new record is checked before it is stored.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aerobee.store.format.property_crc import PROPERTY_CRC_NAME, reserve_property_crc
from aerobee.store.format.record_encode import magic_and_topic, properties_too_large
from aerobee.store.format.record_layout import (
    HOST_V6_EXTRA,
    PROPERTIES_BYTES_MAX,
    RECONSUME_TIMES_AT,
    STORE_HOST_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_STORE_HOST_V6,
    SYSFLAG_TRANSACTION_MASK,
)
from aerobee.store.format.record_view import Record

if TYPE_CHECKING:
    from aerobee.store.format.checked_batch import CheckedBatch

_CRC_NAME: Final = PROPERTY_CRC_NAME.to_bytes(8, "big")
_SIZE_AND_MAGIC: Final = struct.Struct(">ii")
_I32: Final = struct.Struct(">i")


def fitting_properties(properties: bytes) -> bytes:
    """With room for the CRC if they have one. Raises RecordIllegal if no record can hold them."""
    if _CRC_NAME in properties:
        properties = reserve_property_crc(properties)
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise properties_too_large(len(properties))
    return properties


def rewrite_batch(
    batch: CheckedBatch, *, topic: bytes, properties: Sequence[bytes]
) -> tuple[bytes, list[int]]:
    """All records of a batch rewritten as by `rewrite_record`, for a host of the same family, end
    to end, and their sizes. `properties` must be fitting. Costs 1 us for each record of 1 KiB.

    Raises RecordIllegal if the topic does not fit.
    """
    magic, middle = magic_and_topic(topic, None)
    pack = _SIZE_AND_MAGIC.pack
    sizes: list[int] = []
    parts: list[bytes | memoryview] = []
    buffer = memoryview(batch.buffer)
    if batch.has_transactions:
        buffer = memoryview(bytearray(buffer))
        for start, sys_flag in zip(batch.starts.tolist(), batch.sys_flags.tolist(), strict=True):
            _I32.pack_into(buffer, start + SYS_FLAG_AT, sys_flag & ~SYSFLAG_TRANSACTION_MASK)
    for start, end, text in zip(batch.starts.tolist(), batch.body_ends, properties, strict=True):
        size = end - start + len(middle) + 2 + len(text)
        sizes.append(size)
        parts += (
            pack(size, magic),
            buffer[start + _SIZE_AND_MAGIC.size : end],
            middle,
            len(text).to_bytes(2, "big"),
            text,
        )
    return b"".join(parts), sizes


def rewrite_record(
    record: Record,
    *,
    topic: bytes,
    properties: bytes,
    store_host_ipv6: bool,
    reconsume_times: int | None = None,
) -> bytes:
    """The record for `topic`, with placeholders for what the broker stamps.

    `store_host_ipv6` is the family of the host that stores it. It no longer takes part in a
    transaction, so that it can carry a number from the broker. `reconsume_times` None: unchanged.
    Raises RecordIllegal if topic or properties do not fit, RecordCorrupt for a damaged record.
    """
    properties = fitting_properties(properties)
    magic, middle = magic_and_topic(topic, None)
    buffer = record.buffer
    start = record.start
    body_start, body_end = record.body_span
    body = memoryview(buffer)[start + body_start : start + body_end]
    head = bytearray(buffer[start : start + body_start])
    extra = HOST_V6_EXTRA if record.sys_flag & SYSFLAG_BORN_HOST_V6 else 0
    was_ipv6 = bool(record.sys_flag & SYSFLAG_STORE_HOST_V6)
    host_at = STORE_HOST_AT + extra
    if was_ipv6 != store_host_ipv6:
        head[host_at : host_at + (20 if was_ipv6 else 8)] = bytes(20 if store_host_ipv6 else 8)
    sys_flag = record.sys_flag & ~(SYSFLAG_TRANSACTION_MASK | SYSFLAG_STORE_HOST_V6)
    if store_host_ipv6:
        sys_flag |= SYSFLAG_STORE_HOST_V6
        extra += HOST_V6_EXTRA
    size = len(head) + len(body) + len(middle) + 2 + len(properties)
    _SIZE_AND_MAGIC.pack_into(head, 0, size, magic)
    _I32.pack_into(head, SYS_FLAG_AT, sys_flag)
    if reconsume_times is not None:
        _I32.pack_into(head, RECONSUME_TIMES_AT + extra, reconsume_times)
    return b"".join((head, body, middle, len(properties).to_bytes(2, "big"), properties))


def recounted(record: Record, reconsume_times: int) -> bytes | bytearray | memoryview:
    """The record as it is stored, except for the number of its redeliveries. A view if that is the
    same."""
    data = memoryview(record.buffer)[record.start : record.start + record.size]
    if record.reconsume_times == reconsume_times:
        return data
    changed = bytearray(data)
    extra = HOST_V6_EXTRA if record.sys_flag & SYSFLAG_BORN_HOST_V6 else 0
    extra += HOST_V6_EXTRA if record.sys_flag & SYSFLAG_STORE_HOST_V6 else 0
    _I32.pack_into(changed, RECONSUME_TIMES_AT + extra, reconsume_times)
    return changed
