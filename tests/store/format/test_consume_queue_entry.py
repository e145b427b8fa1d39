"""Consume queue entries, one by one and as columns."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.consume_queue_entry import (
    ENTRY_SIZE,
    PRE_BLANK_ENTRY,
    EntriesCorrupt,
    pack_entries,
    pack_entry,
    unpack_entries,
    unpack_entry,
)

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(st.tuples(I64, st.integers(-(1 << 31), (1 << 31) - 1), I64))


def test_the_known_entry_and_the_blank_one_come_out() -> None:
    entry = pack_entry(0x40000400, 197, 2598919)
    assert entry == bytes.fromhex("0000000040000400000000c5000000000027a807")
    assert unpack_entry(b"??" + entry, 2) == (0x40000400, 197, 2598919)
    assert bytes.fromhex("00000000000000007fffffff0000000000000000") == PRE_BLANK_ENTRY


@given(ROWS)
def test_columns_and_rows_are_the_same_entries(rows: list[tuple[int, int, int]]) -> None:
    data = b"".join(struct.pack(">qiq", *row) for row in rows)
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    assert pack_entries(*columns) == data
    assert b"".join(pack_entry(*row) for row in rows) == data
    unpacked = unpack_entries(memoryview(data))
    assert list(zip(*[column.tolist() for column in unpacked], strict=True)) == rows


@pytest.mark.parametrize("size", [1, ENTRY_SIZE - 1, ENTRY_SIZE + 1])
def test_a_part_of_an_entry_is_refused(size: int) -> None:
    with pytest.raises(EntriesCorrupt):
        unpack_entries(bytes(size))
    with pytest.raises(EntriesCorrupt):
        unpack_entry(bytes(size), 2)
