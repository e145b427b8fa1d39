"""The bytes of a commit log record, described once.

With IPv4 hosts (each IPv6 host shifts everything after it by 12 bytes):

   0     size i32         whole record
   4     magic i32        v1: topic length is a byte; v2: an i16
   8     body CRC i32     CRC-32 of the stored body & 0x7FFFFFFF
   12  * queue id i32
   16    flag i32         the application's own
   20  * queue offset i64 0 for prepared and rollback records
   28  * physical offset i64
   36    system flag i32
   40    born timestamp i64, Unix ms
   48    born host        4 or 16 bytes of address, port i32
   56  * store timestamp i64, Unix ms
   64  * store host
   72    reconsume times i32
   76  * prepared transaction offset i64; outside of transactions the producer's number, see
        producer_number.py
   84    body length i32, body
         topic length u8 or i16, topic
         properties length i16, properties

* are placeholders until the broker stamps them. All numbers are big-endian.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Final, Self

MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)

SYSFLAG_COMPRESSED: Final = 0x001
SYSFLAG_MULTI_TAGS: Final = 0x002
SYSFLAG_TRANSACTION_MASK: Final = 0x00C
SYSFLAG_TRANSACTION_NONE: Final = 0x000
SYSFLAG_TRANSACTION_PREPARED: Final = 0x004
SYSFLAG_TRANSACTION_COMMIT: Final = 0x008
SYSFLAG_TRANSACTION_ROLLBACK: Final = 0x00C
SYSFLAG_BORN_HOST_V6: Final = 0x010
SYSFLAG_STORE_HOST_V6: Final = 0x020
SYSFLAG_HOSTS_MASK: Final = SYSFLAG_BORN_HOST_V6 | SYSFLAG_STORE_HOST_V6
SYSFLAG_NEED_UNWRAP: Final = 0x040
SYSFLAG_INNER_BATCH: Final = 0x080
SYSFLAG_COMPRESSION_MASK: Final = 0x700
SYSFLAG_COMPRESSION_UNSPECIFIED: Final = 0x000
SYSFLAG_COMPRESSION_LZ4: Final = 0x100
SYSFLAG_COMPRESSION_ZSTD: Final = 0x200
SYSFLAG_COMPRESSION_ZLIB: Final = 0x300

SIZE_AT: Final = 0
MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_TIMESTAMP_AT: Final = 40
BORN_HOST_AT: Final = 48
# For IPv4 hosts from here on; add HOST_V6_EXTRA for each IPv6 host before the field.
STORE_TIMESTAMP_AT: Final = 56
STORE_HOST_AT: Final = 64
RECONSUME_TIMES_AT: Final = 72
PREPARED_TRANSACTION_OFFSET_AT: Final = 76
BODY_LENGTH_AT: Final = 84
BODY_AT: Final = 88
HOST_V6_EXTRA: Final = 12

# Size of a v1 record without body, topic and properties.
RECORD_SIZE_MIN: Final = 91
# Size and magic, which a blank record at a segment's end consists of.
BLANK_SIZE_MIN: Final = 8

TOPIC_V1_BYTES_MAX: Final = 127
PROPERTIES_BYTES_MAX: Final = 32_767
CRC_MASK: Final = 0x7FFF_FFFF


class RecordCorrupt(ValueError):
    """Bytes that are not a record: where it starts, and what is wrong with it."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"corrupt record at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class RecordIllegal(ValueError):
    """A record that cannot be written: a field does not fit."""


@dataclass(frozen=True, slots=True)
class HostAddress:
    """An IP address (4 or 16 bytes) and a port, as stored in records."""

    ip: bytes
    port: int

    def __post_init__(self) -> None:
        if len(self.ip) not in (4, 16):
            raise ValueError(f"an IP address has 4 or 16 bytes, not {len(self.ip)}")
        if not -(1 << 31) <= self.port < 1 << 31:
            raise ValueError(f"port {self.port} does not fit into 4 bytes")

    @property
    def is_ipv6(self) -> bool:
        return len(self.ip) == 16

    def pack(self) -> bytes:
        """8 bytes for IPv4, 20 for IPv6."""
        return self.ip + self.port.to_bytes(4, "big", signed=True)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of `pack`. Raises ValueError unless `data` has 8 or 20 bytes."""
        return cls(data[:-4], int.from_bytes(data[-4:], "big", signed=True))

    @classmethod
    def parse(cls, text: str) -> Self:
        """`127.0.0.1:10911` or `[::1]:10911`. Raises ValueError; names are not resolved here."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not (colon and port.isascii() and port.isdigit() and int(port) <= 65_535):
            raise ValueError(f"{text!r:.80} is not an address like 127.0.0.1:10911 or [::1]:10911")
        return cls(ipaddress.ip_address(host).packed, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        """The IP address as text."""
        if self.is_ipv6:
            return str(ipaddress.IPv6Address(self.ip))
        # Five times as fast as the library; used for every delivered message.
        first, second, third, fourth = self.ip
        return f"{first}.{second}.{third}.{fourth}"


def host_size(sys_flag: int, mask: int) -> int:
    """Size in bytes of the host whose IPv6 bit is `mask`."""
    return 20 if sys_flag & mask else 8


def is_topic_storable(topic: bytes) -> bool:
    """Whether a topic's name can be a folder's.

    Only bodies have a checksum: a record torn inside its topic has consistent lengths, a valid body
    and zeros as its topic. Other names that lead out of their folder were never a topic's either.
    """
    return bool(topic) and not (b"\0" in topic or b"/" in topic or topic in (b".", b".."))


def blank_record(remaining: int) -> bytes:
    """The filler for the `remaining` bytes (at least 8) of a segment; only 8 bytes are written."""
    if remaining < BLANK_SIZE_MIN:
        raise RecordIllegal(f"a blank record needs 8 bytes, {remaining} remain in the segment")
    return struct.pack(">ii", remaining, MAGIC_BLANK)


def blank_position(tail: bytes | bytearray) -> int | None:
    """Where the blank record starts in the last bytes of a full segment; None: there is none.

    The first place that looks like one, whatever else is there: it is the same in all copies.
    """
    magic = struct.pack(">i", MAGIC_BLANK)
    at = tail.find(magic, 4)
    while at >= 0:
        if int.from_bytes(tail[at - 4 : at]) == len(tail) - (at - 4):
            return at - 4
        at = tail.find(magic, at + 1)
    return None
