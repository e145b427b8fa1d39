"""Entries that lead to something else are found out by what lies there, few records or many."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from aerobee.store.engine.queues.reading import GetStatus, Located
from aerobee.store.engine.queues.record_match import RecordCheck, find_mismatch
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import (
    BODY_LENGTH_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    HostAddress,
)

V4 = HostAddress(b"\x7f\x00\x00\x01", 4242)
V6 = HostAddress(bytes(15) + b"\x01", 4242)
COUNTS = (1, 7, 8, 40)
LOG_OFFSET = 1 << 33


@dataclass
class Records:
    """Records end to end, as the log has them."""

    data: bytearray = field(default_factory=bytearray)
    positions: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def add(
        self,
        topic: bytes = b"orders",
        *,
        body: bytes = b"body",
        born_host: HostAddress = V4,
        store_host_ipv6: bool = False,
        version: int | None = None,
        queue_id: int = 3,
    ) -> None:
        record = bytearray(
            encode_record(
                topic=topic,
                body=body,
                properties=b"a\x01b\x02",
                born_timestamp_ms=1,
                born_host=born_host,
                store_host_ipv6=store_host_ipv6,
                version=version,
            )
        )
        position = LOG_OFFSET + len(self.data)
        record[QUEUE_ID_AT : QUEUE_ID_AT + 4] = queue_id.to_bytes(4, "big")
        record[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = position.to_bytes(8, "big")
        self.positions.append(position)
        self.sizes.append(len(record))
        self.data += record

    def mismatch(self, topic: bytes | None = b"orders", queue_id: int | None = 3) -> int | None:
        return find_mismatch(
            bytes(self.data),
            np.array(self.positions, np.int64),
            np.array(self.sizes, np.int64),
            queue_id=queue_id,
            topic=topic,
        )


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("version", [1, 2, None])
@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("store_host_ipv6", [False, True])
def test_another_topics_record_is_found_wherever_it_stands(
    count: int, version: int | None, born_host: HostAddress, store_host_ipv6: bool
) -> None:
    def add(topic: bytes, number: int) -> None:
        records.add(
            topic,
            body=bytes(number * 7 % 50),
            born_host=born_host,
            store_host_ipv6=store_host_ipv6,
            version=version or 1 + number % 2,
        )

    for wrong in (*range(count), None):
        for other in (b"orderz", b"zrders", b"order", b"orders2", b"o", b"r" * 100):
            records = Records()
            for number in range(count):
                add(other if number == wrong else b"orders", number)
            assert records.mismatch() == wrong


@pytest.mark.parametrize("count", COUNTS)
def test_records_of_all_kinds_of_hosts_and_versions_may_lie_side_by_side(count: int) -> None:
    records = Records()
    for number in range(count):
        records.add(
            body=b"orders" * (number % 5),
            born_host=V6 if number % 2 else V4,
            store_host_ipv6=number % 3 == 0,
            version=1 + number % 2,
        )
    assert records.mismatch() is None
    assert records.mismatch(topic=b"others") is not None
    assert records.mismatch(topic=None) is None


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("length", [127, 128, 255, 256, 300])
def test_long_topics_are_compared_whole(count: int, length: int) -> None:
    records = Records()
    for _ in range(count):
        records.add(b"x" * length)
    assert records.mismatch(b"x" * length) is None
    assert records.mismatch(b"x" * (length - 1) + b"y") is not None
    assert records.mismatch(b"x" * (length - 1)) is not None
    assert records.mismatch(b"x" * 20_000) == 0
    assert records.mismatch(b"x" * (length & 0xFF or 1)) == (None if length < 256 else 0)


@pytest.mark.parametrize("count", COUNTS)
def test_sizes_positions_queues_and_magics_are_compared(count: int) -> None:
    for at, wrong in ((0, 0), (4, 0), (PHYSICAL_OFFSET_AT + 7, count - 1), (QUEUE_ID_AT, 0)):
        records = Records()
        for _ in range(count):
            records.add()
        records.data[wrong * records.sizes[0] + at] ^= 0x10
        assert records.mismatch() == wrong
        assert records.mismatch(queue_id=None) == (None if at == QUEUE_ID_AT else wrong)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("length", [-1, -(1 << 31), 5, 12, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("born_host", [V4, V6])
def test_a_body_length_that_leads_astray_is_a_mismatch_and_no_crash(
    count: int, length: int, born_host: HostAddress
) -> None:
    at = BODY_LENGTH_AT + (12 if born_host is V6 else 0)
    for wrong in range(count):
        records = Records()
        for _ in range(count):
            records.add(born_host=born_host)
        start = sum(records.sizes[:wrong]) + at
        records.data[start : start + 4] = length.to_bytes(4, "big", signed=True)
        assert records.mismatch() == wrong


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", [-5, 0, 3, 40, 90])
def test_an_entry_with_an_impossible_size_is_a_mismatch_and_no_crash(count: int, size: int) -> None:
    records = Records()
    for _ in range(count - 1):
        records.add()
    records.positions.append(LOG_OFFSET + len(records.data))
    records.sizes.append(size)
    records.data += bytes(max(0, size))
    assert records.mismatch() == count - 1


@pytest.mark.parametrize("count", COUNTS)
def test_a_record_too_short_for_its_hosts_is_a_mismatch_and_no_crash(count: int) -> None:
    records = Records()
    for _ in range(count):
        records.add(b"o", body=b"")
    records.data[-records.sizes[-1] + 39] |= 0x30  # both hosts IPv6, it says
    assert records.mismatch(b"o") == count - 1


@pytest.mark.parametrize("count", COUNTS)
def test_queues_that_share_records_with_others_are_not_asked_for_topic_and_queue(
    count: int,
) -> None:
    records = Records()
    for number in range(count):
        records.add(b"parent%d" % number, queue_id=number)
    positions, sizes = (np.array(one, np.int64) for one in (records.positions, records.sizes))
    located = Located(GetStatus.FOUND, count, 0, count, [], count, positions, sizes)
    RecordCheck("%LMQ%device", 0).check(located, bytes(records.data))
