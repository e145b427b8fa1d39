"""A commit log record as a lazy view of its bytes: fields are decoded on access.

A view checks on creation that size, magic and body are inside the buffer, and each other length
when it is first used; contradictory bytes raise RecordCorrupt, never anything else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from isal.isal_zlib import crc32

from aerobee.store.format.properties import VALUE_END, decode_properties, find_property, find_values
from aerobee.store.format.record_layout import (
    BODY_AT,
    BODY_CRC_AT,
    BODY_LENGTH_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    CRC_MASK,
    FLAG_AT,
    HOST_V6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    PREPARED_TRANSACTION_OFFSET_AT,
    PROPERTIES_BYTES_MAX,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    SYSFLAG_BORN_HOST_V6,
    SYSFLAG_HOSTS_MASK,
    SYSFLAG_STORE_HOST_V6,
    SYSFLAG_TRANSACTION_MASK,
    HostAddress,
    RecordCorrupt,
    host_size,
    is_topic_storable,
)

# Size, magic, system flag, and the body length of a record with two IPv4 hosts: the smallest legal
# record is longer than this, so one read is enough to check a view.
_HEAD: Final = struct.Struct(">ii28xi44xi")
_MAGIC_V1_LAST_BYTE: Final = MAGIC_V1 & 0xFF
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_PLACE: Final = struct.Struct(">qq")  # QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT


class Stamps(NamedTuple):
    """Where and when a record was stored, and where it came from."""

    queue_id: int
    queue_offset: int
    born_timestamp_ms: int
    born_host: bytes
    """In the form of `HostAddress.pack`."""
    store_timestamp_ms: int
    store_host: bytes


_STAMPS: Final = struct.Struct(">i4xq8x4xq8sq8s")
"""From the queue id on, with hosts of IPv4."""


class Record:
    """One record in `buffer`, starting at `start`.

    With `end` the record must end exactly there; without it, anywhere inside the buffer. Raises
    RecordCorrupt if its bytes contradict that. The view keeps the buffer alive.
    """

    __slots__ = (
        "_body_end",
        "_body_start",
        "_properties",
        "_properties_at",
        "buffer",
        "end",
        "start",
        "sys_flag",
    )

    def __init__(
        self, buffer: bytes | bytearray | memoryview, start: int = 0, end: int | None = None
    ) -> None:
        try:
            size, magic, sys_flag, body_length = _HEAD.unpack_from(buffer, start)
            body_start = start + BODY_AT
            if sys_flag & SYSFLAG_HOSTS_MASK:
                body_start += _hosts_extra(sys_flag)
                (body_length,) = _I32.unpack_from(buffer, body_start - 4)
        except struct.error:
            raise RecordCorrupt(start, f"only {len(buffer) - start} bytes are left") from None
        self.buffer = buffer
        self.start = start
        self.sys_flag: int = sys_flag
        self._body_start = body_start
        self._body_end: int = body_start + body_length
        body_end = self._body_end
        self.end: int = start + size
        record_end = self.end
        # 0 until the lengths after the body have been checked.
        self._properties_at = 0
        self._properties: dict[str, str] | None = None
        if (
            (magic != MAGIC_V1 and magic != MAGIC_V2)
            or body_length < 0
            or body_end + 3 > record_end
            or record_end > len(buffer)
            or (end is not None and end != record_end)
            or start < 0
        ):
            self._refuse(size, magic, body_length, end)

    def _refuse(self, size: int, magic: int, body_length: int, end: int | None) -> None:
        if self.start < 0:
            reason = "the position is negative"
        elif magic not in (MAGIC_V1, MAGIC_V2):
            reason = f"magic {magic & 0xFFFFFFFF:#010x} is not a message"
        elif self.end > len(self.buffer):
            reason = f"size {size} exceeds the {len(self.buffer) - self.start} bytes left"
        elif end is not None and end != self.end:
            reason = f"size {size} where {end - self.start} was expected"
        else:
            reason = f"body length {body_length} does not fit into a record of {size} bytes"
        raise RecordCorrupt(self.start, reason)

    # Fixed fields, in the order of the layout.

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def magic(self) -> int:
        return self._i32(4)

    @property
    def version(self) -> int:
        """1 or 2."""
        return 1 if self.buffer[self.start + 7] == _MAGIC_V1_LAST_BYTE else 2

    @property
    def body_crc(self) -> int:
        """As stored; see `check_body_crc`."""
        return self._i32(BODY_CRC_AT)

    @property
    def queue_id(self) -> int:
        return self._i32(QUEUE_ID_AT)

    @property
    def flag(self) -> int:
        return self._i32(FLAG_AT)

    @property
    def queue_offset(self) -> int:
        return self._i64(QUEUE_OFFSET_AT)

    @property
    def physical_offset(self) -> int:
        return self._i64(PHYSICAL_OFFSET_AT)

    @property
    def place(self) -> tuple[int, int, int]:
        """Queue offset, physical offset and size, at the price of one of them."""
        queue_offset, physical_offset = _PLACE.unpack_from(
            self.buffer, self.start + QUEUE_OFFSET_AT
        )
        return queue_offset, physical_offset, self.end - self.start

    @property
    def born_timestamp_ms(self) -> int:
        return self._i64(BORN_TIMESTAMP_AT)

    @property
    def born_host(self) -> HostAddress:
        return HostAddress.unpack(self.packed_born_host)

    @property
    def packed_born_host(self) -> bytes:
        """In the form of `HostAddress.pack`."""
        return self._packed_host(BORN_HOST_AT, SYSFLAG_BORN_HOST_V6)

    @property
    def store_timestamp_ms(self) -> int:
        return self._i64(STORE_TIMESTAMP_AT + self._born_extra())

    @property
    def store_host(self) -> HostAddress:
        return HostAddress.unpack(self.packed_store_host)

    @property
    def packed_store_host(self) -> bytes:
        """In the form of `HostAddress.pack`."""
        return self._packed_host(STORE_HOST_AT + self._born_extra(), SYSFLAG_STORE_HOST_V6)

    @property
    def reconsume_times(self) -> int:
        return self._i32(RECONSUME_TIMES_AT + _hosts_extra(self.sys_flag))

    @property
    def prepared_transaction_offset(self) -> int:
        return self._i64(PREPARED_TRANSACTION_OFFSET_AT + _hosts_extra(self.sys_flag))

    @property
    def transaction_type(self) -> int:
        """One of the SYSFLAG_TRANSACTION_* values."""
        return self.sys_flag & SYSFLAG_TRANSACTION_MASK

    def stamps(self) -> Stamps:
        """What most readers want of the fixed fields, in a quarter of the time that one after the
        other takes."""
        if self.sys_flag & (SYSFLAG_BORN_HOST_V6 | SYSFLAG_STORE_HOST_V6):
            return Stamps(
                self.queue_id,
                self.queue_offset,
                self.born_timestamp_ms,
                self.packed_born_host,
                self.store_timestamp_ms,
                self.packed_store_host,
            )
        return Stamps(*_STAMPS.unpack_from(self.buffer, self.start + QUEUE_ID_AT))

    # Variable fields.

    @property
    def body_size(self) -> int:
        return self._body_end - self._body_start

    @property
    def body_span(self) -> tuple[int, int]:
        """Start and end of the body, counted from the record's first byte."""
        return self._body_start - self.start, self._body_end - self.start

    @property
    def body(self) -> bytes:
        """As stored: compressed if the system flag says so."""
        body = self.buffer[self._body_start : self._body_end]
        return body if type(body) is bytes else bytes(body)

    @property
    def topic_bytes(self) -> bytes:
        end = self._properties_start() - 2
        return bytes(self.buffer[self._body_end + self.version : end])

    @property
    def topic(self) -> str:
        return self.topic_bytes.decode("utf-8", "replace")

    @property
    def properties_bytes(self) -> bytes:
        start = self._properties_start()
        return bytes(self.buffer[start : self.end])

    @property
    def properties(self) -> dict[str, str]:
        """Decoded once; callers must not change it."""
        if self._properties is None:
            self._properties = decode_properties(self.properties_bytes)
        return self._properties

    def property_value(self, name: str) -> str | None:
        """One property, without decoding the others; None if it is not set."""
        return self._find(name.encode())

    def property_values(self, needles: Iterable[bytes]) -> list[str | None]:
        """`property_value` of several names, each given in UTF-8 and with NAME_END."""
        start = self._properties_at or self._properties_start()
        buffer = self.buffer
        if isinstance(buffer, memoryview):
            properties = bytes(buffer[start : self.end])
            return find_values(properties, 0, len(properties), needles)
        return find_values(buffer, start, self.end, needles)

    def properties_extent(self) -> tuple[int, int]:
        """How many properties there are, possibly with repetitions, and their bytes in all; without
        decoding any."""
        start = self._properties_at or self._properties_start()
        buffer = self.buffer
        if isinstance(buffer, memoryview):
            buffer = bytes(buffer[start : self.end])
            start, end = 0, len(buffer)
        else:
            end = self.end
        return buffer.count(VALUE_END, start, end) + 1, end - start

    @property
    def tag(self) -> str | None:
        return self._find(b"TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        keys = self._find(b"KEYS")
        return () if keys is None else tuple(key for key in keys.split(" ") if key)

    @property
    def unique_key(self) -> str | None:
        return self._find(b"UNIQ_KEY")

    @property
    def raw(self) -> bytes:
        """The whole record."""
        return bytes(self.buffer[self.start : self.end])

    # Checks.

    def check(self) -> None:
        """Raises RecordCorrupt unless the lengths fit, the topic is possible, and the CRC is
        right."""
        if not is_topic_storable(self.topic_bytes):
            raise RecordCorrupt(self.start, f"{self.topic_bytes!r:.80} cannot be a topic's name")
        self.check_body_crc()

    def check_body_crc(self) -> None:
        """Raises RecordCorrupt unless the body matches its CRC; an empty body needs none."""
        if self._body_end == self._body_start:
            return
        view = memoryview(self.buffer)[self._body_start : self._body_end]
        actual = crc32(view) & CRC_MASK
        if actual != self.body_crc:
            raise RecordCorrupt(
                self.start, f"the body's CRC is {actual:#010x}, the record says {self.body_crc:#x}"
            )

    def __repr__(self) -> str:
        return (
            f"Record(start={self.start}, size={self.size}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, physical_offset={self.physical_offset})"
        )

    def _i32(self, at: int) -> int:
        value: int = _I32.unpack_from(self.buffer, self.start + at)[0]
        return value

    def _i64(self, at: int) -> int:
        value: int = _I64.unpack_from(self.buffer, self.start + at)[0]
        return value

    def _born_extra(self) -> int:
        return HOST_V6_EXTRA if self.sys_flag & SYSFLAG_BORN_HOST_V6 else 0

    def _packed_host(self, at: int, mask: int) -> bytes:
        start = self.start + at
        return bytes(self.buffer[start : start + host_size(self.sys_flag, mask)])

    def _find(self, name: bytes) -> str | None:
        start = self._properties_at or self._properties_start()
        buffer = self.buffer
        if isinstance(buffer, memoryview):
            properties = bytes(buffer[start : self.end])
            value = find_property(properties, 0, len(properties), name)
        else:
            value = find_property(buffer, start, self.end, name)
        return None if value is None else value.decode("utf-8", "replace")

    def _properties_start(self) -> int:
        """Where the properties start; they end with the record. Checks topic and properties."""
        if self._properties_at:
            return self._properties_at
        buffer = self.buffer
        body_end = self._body_end
        if buffer[self.start + 7] == _MAGIC_V1_LAST_BYTE:
            topic_end = body_end + 1 + buffer[body_end]
        else:
            # A negative length becomes one that fits no record: 2 GiB more.
            length = buffer[body_end] << 8 | buffer[body_end + 1]
            topic_end = body_end + 2 + (length if length < 0x8000 else 0x8000_0000)
        start = topic_end + 2
        if start > self.end:
            raise RecordCorrupt(self.start, f"the topic exceeds the record of {self.size} bytes")
        length = buffer[topic_end] << 8 | buffer[topic_end + 1]
        if length != self.end - start or length > PROPERTIES_BYTES_MAX:
            raise RecordCorrupt(
                self.start,
                f"properties length {length}, but {self.end - start} bytes are left for them",
            )
        self._properties_at = start
        return start


def iterate_records(buffer: bytes | bytearray | memoryview) -> Iterator[Record]:
    """The records end to end in `buffer`, from trusted sources: bodies are not checked.

    Raises RecordCorrupt at the first position without a whole record.
    """
    position = 0
    end = len(buffer)
    head_end = end - _HEAD.size
    unpack = _HEAD.unpack_from
    new = Record.__new__
    while position < end:
        # The common record, without the cost of a call: two IPv4 hosts, nothing wrong. `Record`
        # handles all others.
        if position <= head_end:
            size, magic, sys_flag, body_length = unpack(buffer, position)
            body_start = position + BODY_AT
            body_end = body_start + body_length
            record_end = position + size
            if (
                magic == MAGIC_V1
                and not sys_flag & SYSFLAG_HOSTS_MASK
                and body_start <= body_end <= record_end - 3
                and record_end <= end
            ):
                record = new(Record)
                record.buffer = buffer
                record.start = position
                record.end = position = record_end
                record.sys_flag = sys_flag
                record._body_start = body_start
                record._body_end = body_end
                record._properties_at = 0
                record._properties = None
                yield record
                continue
        record = Record(buffer, position)
        position = record.end
        yield record


def _hosts_extra(sys_flag: int) -> int:
    extra = HOST_V6_EXTRA if sys_flag & SYSFLAG_BORN_HOST_V6 else 0
    return extra + HOST_V6_EXTRA if sys_flag & SYSFLAG_STORE_HOST_V6 else extra


# The body starts four bytes after its length field, hence the difference.
assert BODY_LENGTH_AT + 4 == BODY_AT
