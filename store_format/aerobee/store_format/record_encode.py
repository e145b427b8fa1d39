"""Messages to commit log records with placeholders for what the broker stamps.

`encode_batch` gives the same bytes as joined `encode_record`s: one template per batch,
repeated with the varying numbers written as arrays, and joined with bodies and properties.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from aerobee.store_format.property_crc import reserve_property_crc
from aerobee.store_format.record_layout import (
    BODY_CRC_AT,
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_BYTES_MAX,
    SIZE_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_HOSTS_MASK,
    SYSFLAG_STORE_HOST_V6,
    TOPIC_V1_BYTES_MAX,
    HostAddress,
    RecordIllegal,
)

# All before the body, by (born host is IPv6, store host is IPv6).
_HEADS: Final = {
    (born, store): struct.Struct(f">iiiiiqqiq{20 if born else 8}sq{20 if store else 8}siqi")
    for born in (False, True)
    for store in (False, True)
}

# Below this many records the arrays cost more than they save.
_ARRAY_RECORDS_MIN: Final = 8


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """CRC-32 of a stored body with the top bit cleared."""
    return crc32(body) & CRC_MASK


def encode_record(
    *,
    topic: bytes,
    body: bytes,
    properties: bytes,
    born_timestamp_ms: int,
    born_host: HostAddress,
    flag: int = 0,
    sys_flag: int = 0,
    store_host_ipv6: bool = False,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    version: int | None = None,
    property_crc: bool = False,
) -> bytes:
    """One record. Version 2 is taken for topics above 127 bytes only, unless told otherwise.

    The host bits of `sys_flag` follow from the hosts. `property_crc` reserves the 20 bytes that
    the stamp fills with the CRC of the whole record. Raises RecordIllegal if a field does not fit.
    """
    if property_crc:
        properties = reserve_property_crc(properties)
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise properties_too_large(len(properties))
    magic, middle = magic_and_topic(topic, version)
    head = _HEADS[born_host.is_ipv6, store_host_ipv6]
    size = head.size + len(body) + len(middle) + 2 + len(properties)
    try:
        packed = head.pack(
            size,
            magic,
            crc32(body) & CRC_MASK,
            0,
            flag,
            0,
            0,
            _with_host_bits(sys_flag, born_host, store_host_ipv6),
            born_timestamp_ms,
            born_host.pack(),
            0,
            b"",
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise RecordIllegal(f"a number does not fit into its field: {error}") from None
    length = len(properties).to_bytes(2, "big")
    return b"".join((packed, body, middle, length, properties))


def encode_batch(
    *,
    topic: bytes,
    bodies: Sequence[bytes],
    properties: Sequence[bytes],
    born_timestamp_ms: int,
    born_host: HostAddress,
    flag: int = 0,
    sys_flags: int | Sequence[int] = 0,
    store_host_ipv6: bool = False,
) -> tuple[bytes, list[int]]:
    """Records of one topic end to end, and their sizes.

    `sys_flags` is one for all or one for each. Raises RecordIllegal if a field does not fit, and
    ValueError unless there are as many properties (and flags) as bodies.
    """
    parts, sizes = encode_batch_parts(
        topic=topic,
        bodies=bodies,
        properties=properties,
        born_timestamp_ms=born_timestamp_ms,
        born_host=born_host,
        flag=flag,
        sys_flags=sys_flags,
        store_host_ipv6=store_host_ipv6,
    )
    return b"".join(parts), sizes


def encode_batch_parts(
    *,
    topic: bytes,
    bodies: Sequence[bytes],
    properties: Sequence[bytes],
    born_timestamp_ms: int,
    born_host: HostAddress,
    flag: int = 0,
    sys_flags: int | Sequence[int] = 0,
    store_host_ipv6: bool = False,
) -> tuple[list[bytes], list[int]]:
    """As `encode_batch`, but not yet joined: for those who join them with more around them."""
    count = len(bodies)
    if len(properties) != count or not (isinstance(sys_flags, int) or len(sys_flags) == count):
        raise ValueError("bodies, properties and sys_flags must be equally many")
    if count < _ARRAY_RECORDS_MIN:
        records = [
            encode_record(
                topic=topic,
                body=body,
                properties=properties[index],
                born_timestamp_ms=born_timestamp_ms,
                born_host=born_host,
                flag=flag,
                sys_flag=sys_flags if isinstance(sys_flags, int) else sys_flags[index],
                store_host_ipv6=store_host_ipv6,
            )
            for index, body in enumerate(bodies)
        ]
        return records, [len(record) for record in records]
    template = encode_record(
        topic=topic,
        body=b"",
        properties=b"",
        born_timestamp_ms=born_timestamp_ms,
        born_host=born_host,
        flag=flag,
        sys_flag=sys_flags if isinstance(sys_flags, int) else 0,
        store_host_ipv6=store_host_ipv6,
    )
    if not isinstance(sys_flags, int):
        host_bits = _with_host_bits(0, born_host, store_host_ipv6)
        sys_flags = [sys_flag & ~SYSFLAG_HOSTS_MASK | host_bits for sys_flag in sys_flags]
    head_size = _HEADS[born_host.is_ipv6, store_host_ipv6].size
    return _fill_template(template, head_size, bodies, properties, sys_flags)


def _fill_template(
    template: bytes,
    head_size: int,
    bodies: Sequence[bytes],
    properties: Sequence[bytes],
    sys_flags: int | Sequence[int],
) -> tuple[list[bytes], list[int]]:
    """Parts of records like `template`, which has no body and no properties.

    `sys_flags` are written if they vary.
    """
    count = len(bodies)
    body_sizes = _int64(map(len, bodies), count)
    properties_sizes = _int64(map(len, properties), count)
    properties_size_max = int(properties_sizes.max())
    if properties_size_max > PROPERTIES_BYTES_MAX:
        raise properties_too_large(properties_size_max)
    sizes = body_sizes + properties_sizes + len(template)

    heads = _repeated(template[:head_size], count)
    _column(heads, SIZE_AT, ">i4")[:] = sizes
    _column(heads, BODY_CRC_AT, ">i4")[:] = _int64(map(crc32, bodies), count) & CRC_MASK
    _column(heads, head_size - 4, ">i4")[:] = body_sizes
    if not isinstance(sys_flags, int):
        if min(sys_flags) < -(1 << 31) or max(sys_flags) >= 1 << 31:
            raise RecordIllegal("a system flag does not fit into 32 bits")
        _column(heads, SYS_FLAG_AT, ">i4")[:] = sys_flags
    middles = _repeated(template[head_size:], count)
    _column(middles, len(template) - head_size - 2, ">i2")[:] = properties_sizes

    parts: list[bytes] = [b""] * (4 * count)
    parts[0::4] = heads.tolist()
    parts[1::4] = bodies
    parts[2::4] = middles.tolist()
    parts[3::4] = properties
    return parts, sizes.tolist()


def _repeated(template: bytes, count: int) -> npt.NDArray[np.void]:
    """`template` `count` times, as elements that can be changed and listed as bytes."""
    return np.frombuffer(bytearray(template * count), f"V{len(template)}")


def _column(elements: npt.NDArray[np.void], at: int, dtype: str) -> npt.NDArray[np.int64]:
    """The number at byte `at` of each element."""
    return elements.getfield(dtype, at)


def _int64(values: Iterable[int], count: int) -> npt.NDArray[np.int64]:
    return np.fromiter(values, np.int64, count)


def magic_and_topic(topic: bytes, version: int | None) -> tuple[int, bytes]:
    """The magic, and the topic after its length."""
    if version is None:
        version = 1 if len(topic) <= TOPIC_V1_BYTES_MAX else 2
    if version == 1 and len(topic) <= TOPIC_V1_BYTES_MAX:
        return MAGIC_V1, len(topic).to_bytes(1, "big") + topic
    if version == 2 and len(topic) < 1 << 15:
        return MAGIC_V2, len(topic).to_bytes(2, "big") + topic
    raise RecordIllegal(
        f"a topic of {len(topic)} bytes does not fit into a version {version} record"
    )


def _with_host_bits(sys_flag: int, born_host: HostAddress, store_host_ipv6: bool) -> int:
    return (
        (sys_flag & ~SYSFLAG_HOSTS_MASK)
        | (SYSFLAG_BORN_HOST_V6 if born_host.is_ipv6 else 0)
        | (SYSFLAG_STORE_HOST_V6 if store_host_ipv6 else 0)
    )


def properties_too_large(size: int) -> RecordIllegal:
    return RecordIllegal(
        f"properties of {size} bytes exceed the limit of {PROPERTIES_BYTES_MAX}; "
        "put large values into the body"
    )
