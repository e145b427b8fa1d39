"""The index file's bytes: the worked example, and many keys at once against one by one."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.index_file import (
    IndexFileIllegal,
    IndexGeometry,
    IndexHeader,
    IndexKeys,
    insert,
    share_out,
)
from aerobee.store.format.index_geometry import geometry_of
from aerobee.store.format.index_unhashed import LooseRecord, hash_loose_records
from tests.support.plain_index import PlainFile

DEFAULT = IndexGeometry(5_000_000, 20_000_000)
A_OFFSET, A_MS = 0x40000400, 1_700_000_000_123
B_OFFSET, B_MS = 0x400004C5, 1_700_000_005_678
A = LooseRecord(
    "TopicTest",
    b"KEYS\x01order-1 order-2\x02UNIQ_KEY\x01C0A8000B30393764D8BE2A139A000007\x02WAIT\x01true\x02",
    A_OFFSET,
    A_MS,
)
B = LooseRecord("TopicTest", b"KEYS\x01order-1\x02", B_OFFSET, B_MS)


def keys_of(rows: Sequence[tuple[int, int, int]]) -> IndexKeys:
    hashes, offsets, timestamps = zip(*rows, strict=True) if rows else ((), (), ())
    return IndexKeys(
        np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(timestamps, np.int64)
    )


def test_two_records_give_the_bytes_of_the_worked_example() -> None:
    slots = np.zeros(5_000_000, ">i4")
    insertion = insert(IndexHeader(), slots, hash_loose_records([A, B]))
    assert insertion.header.encode() == bytes.fromhex(
        "0000018bcfe5687b 0000018bcfe57e2e 0000000040000400 00000000400004c5 00000003 00000005"
    )
    assert insertion.first_number == 1
    assert insertion.entries.tobytes() == bytes.fromhex(
        "6816ea8c 0000000040000400 00000000 00000000"
        "6d0746d0 0000000040000400 00000000 00000000"
        "6d0746cf 0000000040000400 00000000 00000000"
        "6d0746d0 00000000400004c5 00000005 00000002"
    )
    changed = dict(zip(insertion.slots.tolist(), insertion.slot_values.tolist(), strict=True))
    assert changed == {1_332_300: 1, 4_193_424: 4, 4_193_423: 3}
    assert [DEFAULT.slot_at(slot) for slot in (1_332_300, 4_193_424, 4_193_423)] == [
        5_329_240,
        16_773_736,
        16_773_732,
    ]
    assert [DEFAULT.entry_at(number) for number in range(5)] == list(
        range(20_000_040, 20_000_121, 20)
    )
    assert DEFAULT.file_bytes == 420_000_040


def test_a_rolled_file_counts_its_first_entry_from_the_end_of_the_last_file() -> None:
    full = insert(IndexHeader(), np.zeros(7, ">i4"), hash_loose_records([A, B])).header
    record = LooseRecord("TopicTest", b"KEYS\x01x y\x02", 0x40000600, 1_700_000_009_999)
    rolled = full.rolled()
    assert (rolled.begin_timestamp_ms, rolled.end_timestamp_ms) == (B_MS, B_MS)
    assert (rolled.begin_physical_offset, rolled.end_physical_offset) == (B_OFFSET, B_OFFSET)
    assert (rolled.used_slots, rolled.count) == (0, 1)
    insertion = insert(rolled, np.zeros(7, ">i4"), hash_loose_records([record]))
    assert insertion.entries["seconds"].tolist() == [4, 0]
    assert insertion.header.begin_timestamp_ms == 1_700_000_009_999
    assert insertion.header.begin_physical_offset == 0x40000600


def test_seconds_are_clamped() -> None:
    header = IndexHeader(10_000, 10_000, 0, 0, 0, 2)
    rows = [(1, 0, 9_999), (1, 1, -5_000), (1, 2, 10_000 + 2**31 * 1_000), (1, 3, 11_999)]
    insertion = insert(header, np.zeros(3, ">i4"), keys_of(rows))
    assert insertion.entries["seconds"].tolist() == [0, 0, 2**31 - 1, 1]


def test_a_slot_that_leads_nowhere_counts_as_empty() -> None:
    slots = np.array([5, -1, 1], ">i4")
    header = IndexHeader(1_000, 1_000, 0, 0, 1, 2)
    insertion = insert(header, slots, keys_of([(0, 1, 2_000), (1, 2, 2_000), (2, 3, 2_000)]))
    assert insertion.entries["previous"].tolist() == [0, 0, 1]
    assert insertion.header.used_slots == 3


ROWS = st.lists(
    st.tuples(st.integers(0, 2**31 - 1) | st.integers(0, 4), st.integers(0, 5_000)), max_size=40
)


@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(1, 9), st.integers(2, 30), st.booleans())
def test_many_keys_at_once_give_the_bytes_of_one_by_one(
    batches: list[list[tuple[int, int]]], slots: int, entries_max: int, late: bool
) -> None:
    """In any division into batches, over any number of files."""
    geometry = IndexGeometry(slots, entries_max)
    plain: list[PlainFile] = []
    files: list[tuple[IndexHeader, np.ndarray, bytearray]] = []
    offset, now_ms = 0, 1_700_000_000_000 if late else 0
    for batch in batches:
        rows = []
        for key_hash, pause_ms in batch:
            offset += 100
            now_ms += pause_ms
            rows.append((key_hash, offset, now_ms))
            if not plain:
                plain.append(PlainFile([0] * slots, entries_max))
            elif plain[-1].count >= entries_max:
                last = plain[-1]
                plain.append(
                    PlainFile(
                        [0] * slots, entries_max, last.end_ms, last.end_ms, last.end, last.end
                    )
                )
            plain[-1].put(key_hash, offset, now_ms)
        keys = keys_of(rows)
        for share in share_out(files[-1][0] if files else None, keys, entries_max):
            if share.is_new:
                files.append((share.header, np.zeros(slots, ">i4"), bytearray(geometry.file_bytes)))
            header, table, content = files[-1]
            insertion = insert(header, table, keys.part(share.start, share.end))
            table[insertion.slots] = insertion.slot_values
            at = geometry.entry_at(insertion.first_number)
            data = insertion.entries.tobytes()
            content[at : at + len(data)] = data
            content[:40] = insertion.header.encode()
            content[40 : geometry.entries_at] = table.tobytes()
            files[-1] = insertion.header, table, content
    assert [bytes(content) for _, _, content in files] == [file.encode() for file in plain]
    for header, _, content in files:
        assert IndexHeader.decode(content) == header


@pytest.mark.parametrize("keys", [1, 7])
def test_the_sizes_of_a_file_that_is_hardly_used_are_found_with_few_reads(keys: int) -> None:
    """Its first record lies at 0, as nearly all bytes of the file do."""
    plain = PlainFile([0] * 250_000, 300_000)
    for number in range(keys):
        plain.put(1_234_567 + number, 100 * number, 1_700_000_000_000)
    content = plain.encode()
    reads: list[int] = []

    def read(begin: int, end: int) -> bytes:
        reads.append(begin)
        return content[begin:end]

    assert geometry_of(read, len(content)) == IndexGeometry(250_000, 300_000)
    assert len(reads) < 10


def test_a_header_without_a_count_is_that_of_an_empty_file() -> None:
    assert IndexHeader.decode(bytes(40)) == IndexHeader()
    assert IndexHeader.decode(struct.pack(">qqqqii", 1, 2, 3, 4, 5, -6)).count == 1


def test_impossible_files_are_refused() -> None:
    with pytest.raises(IndexFileIllegal, match="40 bytes"):
        IndexHeader.decode(bytes(39))
    for slots, entries in ((0, 10), (10, 1)):
        with pytest.raises(IndexFileIllegal, match="at least"):
            IndexGeometry(slots, entries)
