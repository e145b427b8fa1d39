"""Extension units of consume queues and entries of batch queues: bytes, addresses, ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.batch_consume_queue_entry import (
    BATCH_ENTRY_SIZE,
    BatchEntriesCorrupt,
    BatchEntry,
    scan_batch_entries,
    unpack_batch_entries,
)
from aerobee.store.format.consume_queue_ext import (
    EXT_ADDRESS_MAX,
    ExtUnit,
    ExtUnitCorrupt,
    decode_ext_unit,
    ext_address,
    ext_position,
    is_ext_address,
)

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
POSITIVE = st.integers(0, (1 << 63) - 1)
BATCH_ENTRIES = st.builds(
    BatchEntry,
    physical_offset=POSITIVE,
    size=st.integers(1, (1 << 31) - 1),
    tags_code=I64,
    store_timestamp_ms=I64,
    base_offset=st.integers(0, (1 << 62)),
    batch_size=st.integers(1, (1 << 15) - 1),
)


def test_a_unit_looks_as_documented() -> None:
    unit = ExtUnit(tags_code=0x27A807, store_timestamp_ms=1_700_000_000_123, bitmap=b"\x01" * 8)
    data = bytes.fromhex("001c 000000000027a807 0000018bcfe5687b 0008 0101010101010101")
    assert decode_ext_unit(b"xx" + data + b"rest", 2) == unit
    assert unit.size == 28


def test_addresses_lie_below_every_tags_code() -> None:
    assert ext_address(0) == -(1 << 63)
    assert ext_position(ext_address(12_345)) == 12_345
    assert is_ext_address(ext_address(0))
    assert is_ext_address(EXT_ADDRESS_MAX)
    assert not is_ext_address(-(1 << 31)), "the smallest hash that a tag can have"
    assert not is_ext_address(0)
    assert not is_ext_address(1_700_000_000_000)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_unit_or_refused(data: bytes) -> None:
    try:
        unit = decode_ext_unit(data)
    except ExtUnitCorrupt:
        return
    assert data[unit.size - len(unit.bitmap) : unit.size] == unit.bitmap


def test_a_batch_entry_looks_as_documented() -> None:
    entry = BatchEntry(0x40000400, 197, 0x27A807, 1_700_000_000_123, base_offset=258, batch_size=3)
    data = bytes.fromhex(
        "0000000040000400 000000c5 000000000027a807 0000018bcfe5687b 0000000000000102 0003"
        "ffffffff 00000000"
    )
    assert entry.encode() == data
    assert scan_batch_entries(data) == [entry]
    assert entry.end_offset == 261


@given(st.lists(BATCH_ENTRIES, max_size=6), st.integers(0, 100))
def test_batch_entries_come_back_up_to_the_zeros_behind_them(
    entries: list[BatchEntry], rest: int
) -> None:
    data = b"".join(entry.encode() for entry in entries) + bytes(rest)
    assert scan_batch_entries(data) == entries


def test_parts_of_entries_are_refused() -> None:
    with pytest.raises(BatchEntriesCorrupt, match="47 bytes"):
        unpack_batch_entries(bytes(BATCH_ENTRY_SIZE + 1))
