"""Encodes messages as commit log records with placeholders for what the broker stamps.

`encode_batch` gives the same bytes as joined `encode_record`s: the parts that the records of a
batch share are encoded once, and packed with each record's own numbers between bodies and
properties.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

from isal.isal_zlib import crc32

from aerobee.store.format.property_crc import reserve_property_crc
from aerobee.store.format.record_layout import (
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_BYTES_MAX,
    QUEUE_ID_AT,
    SYS_FLAG_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_HOSTS_MASK,
    SYSFLAG_STORE_HOST_V6,
    TOPIC_V1_BYTES_MAX,
    HostAddress,
    RecordIllegal,
)

# Everything before the body, by (born host is IPv6, store host is IPv6).
_HEADS: Final = {
    (born, store): struct.Struct(f">iiiiiqqiq{20 if born else 8}sq{20 if store else 8}siqi")
    for born in (False, True)
    for store in (False, True)
}

# By a head's size: record size, magic, body CRC, shared fields, body length.
_VARYING: Final = {
    head.size: struct.Struct(f">i4si{head.size - QUEUE_ID_AT - 4}si") for head in _HEADS.values()
}
_I32: Final = struct.Struct(">i")


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
    """One record. Version 2 is used only for topics above 127 bytes, unless told otherwise.

    The host bits of `sys_flag` follow from the hosts. `property_crc` reserves the 20 bytes in which
    the stamp writes the CRC of the whole record. Raises RecordIllegal if a field does not fit.
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


EncodeRecord = Callable[[bytes, bytes, int, int], bytes]
"""Of a body, properties, the born time in Unix ms, and system flags without those of hosts."""


def record_encoder(
    *, topic: bytes, born_host: HostAddress, store_host_ipv6: bool = False
) -> EncodeRecord:
    """`encode_record` for many messages of one sender to one topic: what they share is made once.
    The encoder raises RecordIllegal if a field does not fit."""
    magic, middle = magic_and_topic(topic, None)
    head = _HEADS[born_host.is_ipv6, store_host_ipv6]
    pack, host = head.pack, born_host.pack()
    host_bits = _with_host_bits(0, born_host, store_host_ipv6)
    shared = head.size + len(middle) + 2

    def encode(body: bytes, properties: bytes, born_timestamp_ms: int, sys_flag: int) -> bytes:
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise properties_too_large(len(properties))
        body_size, properties_size = len(body), len(properties)
        try:
            packed = pack(
                shared + body_size + properties_size,
                magic,
                crc32(body) & CRC_MASK,
                0,
                0,
                0,
                0,
                sys_flag | host_bits,
                born_timestamp_ms,
                host,
                0,
                b"",
                0,
                0,
                body_size,
            )
        except struct.error as error:
            raise RecordIllegal(f"a number does not fit into its field: {error}") from None
        return b"".join((packed, body, middle, properties_size.to_bytes(2, "big"), properties))

    return encode


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
    """As `encode_batch`, but not yet joined: for callers that join them with other data."""
    count = len(bodies)
    if len(properties) != count or not (isinstance(sys_flags, int) or len(sys_flags) == count):
        raise ValueError("bodies, properties and sys_flags must be equally many")
    if count == 1:
        record = encode_record(
            topic=topic,
            body=bodies[0],
            properties=properties[0],
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            flag=flag,
            sys_flag=sys_flags if isinstance(sys_flags, int) else sys_flags[0],
            store_host_ipv6=store_host_ipv6,
        )
        return [record], [len(record)]
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
    """Parts of records based on `template`, which has no body and no properties.

    `sys_flags` are written if they vary.
    """
    pack = _VARYING[head_size].pack
    magic, common = template[4:8], template[QUEUE_ID_AT : head_size - 4]
    commons: Iterable[bytes] = (
        repeat(common) if isinstance(sys_flags, int) else _with_flags(common, sys_flags)
    )
    topic = template[head_size:-2]
    template_size = len(template)
    middle = b""
    known_size = -1
    parts: list[bytes] = []
    sizes: list[int] = []
    for body, text, common in zip(bodies, properties, commons, strict=False):
        body_size, properties_size = len(body), len(text)
        if properties_size != known_size:
            if properties_size > PROPERTIES_BYTES_MAX:
                raise properties_too_large(max(map(len, properties)))
            known_size = properties_size
            middle = topic + properties_size.to_bytes(2, "big")
        size = template_size + body_size + properties_size
        sizes.append(size)
        parts += (pack(size, magic, crc32(body) & CRC_MASK, common, body_size), body, middle, text)
    return parts, sizes


def _with_flags(common: bytes, sys_flags: Sequence[int]) -> Iterator[bytes]:
    """`common`, which starts at the queue id, with each system flag in turn."""
    before = common[: SYS_FLAG_AT - QUEUE_ID_AT]
    after = common[SYS_FLAG_AT - QUEUE_ID_AT + 4 :]
    try:
        for sys_flag in sys_flags:
            yield before + _I32.pack(sys_flag) + after
    except struct.error:
        raise RecordIllegal("a system flag does not fit into 32 bits") from None


def magic_and_topic(topic: bytes, version: int | None) -> tuple[int, bytes]:
    """The magic, then the topic preceded by its length."""
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


def properties_too_large(size: int, limit: int = PROPERTIES_BYTES_MAX) -> RecordIllegal:
    return RecordIllegal(
        f"properties of {size} bytes exceed the limit of {limit}; put large values into the body"
    )
