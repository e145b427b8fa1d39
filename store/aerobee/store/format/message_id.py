"""Message ids as text: the position of a record (server side), and a unique key (client side).

Offset message id:  store host (ip, port i32), log offset i64     upper-case hex, 32 or 56 digits
Unique key:         ip, process id u16, random i32, ms since the month began i32, counter u16
                                                                  upper-case hex, 32 or 56 digits
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Final

from aerobee.store.format.record_layout import HostAddress

_LENGTHS: Final = (32, 56)
_COUNTER_END: Final = 1 << 16
_HEX_BYTES: Final = tuple(f"{value:02X}" for value in range(256))


class MessageIdIllegal(ValueError):
    """Text that is not an offset message id."""


def offset_message_id(host: HostAddress, physical_offset: int) -> str:
    """The id of the record at `physical_offset` of the broker at `host`."""
    return (host.pack() + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def offset_message_ids(host: HostAddress, position: int, sizes: Iterable[int]) -> list[str]:
    """The ids of records of these sizes, one after the other from `position` on."""
    prefix, ids = host.pack().hex().upper(), []
    for size in sizes:
        ids.append(f"{prefix}{position:016X}")
        position += size
    return ids


def parse_offset_message_id(text: str) -> tuple[HostAddress, int]:
    """Host and offset in an id; the length distinguishes IPv4 from IPv6. Raises
    MessageIdIllegal."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(text) not in _LENGTHS or len(data) * 2 != len(text):
        raise MessageIdIllegal(f"{text!r:.80} is not an offset message id: 32 or 56 hex digits")
    return HostAddress.unpack(data[:-8]), int.from_bytes(data[-8:], "big", signed=True)


class UniqueIdGenerator:
    """Makes unique keys as Apache's client does: 32 digits with an IPv4 address, 56 with IPv6.

    Ids of one generator never repeat within a month, even if the clock steps back: the time in ids
    does not, and it advances by itself after 65,536 ids in one millisecond. Generators differ by a
    random number, whatever their addresses and process ids.
    """

    __slots__ = ("_counter", "_month_end_ms", "_month_start_ms", "_prefix", "_source", "_time_ms")

    def __init__(self, source: random.Random, *, ip: bytes, process_id: int) -> None:
        self._source = (
            ip
            + (process_id & 0xFFFF).to_bytes(2, "big")
            + source.getrandbits(32).to_bytes(4, "big")
        )
        self._time_ms = -1
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._counter = 0
        self._prefix = ""

    def next_id(self, now_ms: int) -> str:
        """The next unique key at `now_ms` (Unix ms)."""
        counter = self._counter
        if now_ms > self._time_ms:
            self._begin(now_ms)
            counter = 0
        elif counter == _COUNTER_END:
            self._begin(self._time_ms + 1)
            counter = 0
        self._counter = counter + 1
        return f"{self._prefix}{counter:04X}"

    def next_ids(self, now_ms: int, count: int) -> list[str]:
        """`count` ids at once: faster than `next_id` for each."""
        if count and now_ms > self._time_ms:
            self._begin(now_ms)
            self._counter = 0
        ids: list[str] = []
        while True:
            begin = self._counter
            end = min(begin + count - len(ids), _COUNTER_END)
            for high in range(begin >> 8, (end + 255) >> 8):
                prefix = f"{self._prefix}{high:02X}"
                low = max(begin - (high << 8), 0)
                ids += [prefix + digits for digits in _HEX_BYTES[low : end - (high << 8)]]
            self._counter = end
            if len(ids) == count:
                return ids
            self._begin(self._time_ms + 1)
            self._counter = 0

    def _begin(self, time_ms: int) -> None:
        """Make the part of the ids that is constant for one millisecond."""
        self._time_ms = time_ms
        if time_ms >= self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_of(time_ms)
        elapsed_ms = time_ms - self._month_start_ms
        self._prefix = (self._source + elapsed_ms.to_bytes(4, "big")).hex().upper()


def _month_of(time_ms: int) -> tuple[int, int]:
    """Begin and end of the month in Unix ms, in local time, as Apache's tools read ids."""
    local = time.localtime(time_ms // 1_000)
    following = (local.tm_year, local.tm_mon + 1) if local.tm_mon < 12 else (local.tm_year + 1, 1)
    begin = time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((*following, 1, 0, 0, 0, 0, 0, -1))
    return int(begin) * 1_000, int(end) * 1_000
