"""Scans over logs: every whole record, and the exact place and reason where they end.

The oracle walks record by record with the lazy view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.format.java_hash import index_key_hash
from aerobee.store.format.record import Record, RecordCorrupt, blank_record
from aerobee.store.format.record_layout import SYSFLAG_TRANSACTION_ROLLBACK, is_topic_storable
from aerobee.store.format.scan import ScanEnd, ScanResult, scan_records
from aerobee.store.format.tags import TagsCodes
from tests.support.property_runs import examples


def scan(buffer: bytes | bytearray | memoryview, *, check_crc: bool = True) -> ScanResult:
    return scan_records(buffer, check_crc=check_crc, tags=TagsCodes())


def walk(buffer: bytes, *, check_crc: bool) -> list[Record]:
    """The records before the first one that is corrupt."""
    records: list[Record] = []
    position = 0
    while position < len(buffer):
        try:
            record = Record(buffer, position)
            if check_crc:
                record.check()
            elif not is_topic_storable(record.topic_bytes):
                break
        except RecordCorrupt:
            break
        records.append(record)
        position = record.end
    return records


def assert_columns_match(result: ScanResult, records: list[Record]) -> None:
    """The columns say what the records say."""
    codes = TagsCodes()
    assert result.count == len(records)
    assert result.positions.tolist() == [record.start for record in records]
    assert result.sizes.tolist() == [record.size for record in records]
    assert result.sys_flags.tolist() == [record.sys_flag for record in records]
    assert result.queue_ids.tolist() == [record.queue_id for record in records]
    assert result.queue_offsets.tolist() == [record.queue_offset for record in records]
    assert result.physical_offsets.tolist() == [record.physical_offset for record in records]
    assert result.store_timestamps.tolist() == [record.store_timestamp_ms for record in records]
    assert result.topics == [record.topic for record in records]
    assert len(set(result.topic_codes.tolist())) == len(result.topic_table)
    assert result.valid_end == (records[-1].end if records else 0)
    assert_keys_match(result, records)
    for record, tags_code in zip(records, result.tags_codes.tolist(), strict=True):
        properties = record.properties_bytes
        if record.topic == "SCHEDULE_TOPIC_XXXX":
            assert tags_code == codes.scheduled_code_in(
                properties, 0, len(properties), record.store_timestamp_ms
            )
        else:
            assert tags_code == codes.code_of((record.tag or "").encode())


def assert_keys_match(result: ScanResult, records: list[Record]) -> None:
    """The key index gets what the records say, in their order."""
    buffer = records[0].buffer if records else b""
    found = result.index_keys(buffer, 1000, np.arange(result.count))
    expected = [
        (index_key_hash(f"{record.topic}#{key}"), 1000 + record.start, record.store_timestamp_ms)
        for record in records
        if record.transaction_type != SYSFLAG_TRANSACTION_ROLLBACK
        for key in ([record.unique_key] if record.unique_key else []) + list(record.keys)
    ]
    columns = (found.hashes, found.physical_offsets, found.store_timestamps_ms)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


@pytest.fixture(scope="session")
def logs(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes]
) -> st.SearchStrategy[list[bytes]]:
    """Whole records, some of them in the schedule topic."""

    def written(message: Any, scheduled: bool, number: int) -> bytes:
        if scheduled:
            message = replace(message, topic=b"SCHEDULE_TOPIC_XXXX")
        return reference(
            message,
            queue_id=number % 7,
            queue_offset=number,
            physical_offset=1 << 33,
            store_timestamp=1_700_000_000_000 + number,
        )

    one = st.builds(written, messages, st.booleans(), st.integers(0, 1 << 40))
    return st.lists(one, max_size=10)


@pytest.mark.thorough
@given(st.data())
def test_whole_records_are_found_whatever_follows_them(
    logs: st.SearchStrategy[list[bytes]], data: st.DataObject
) -> None:
    records = data.draw(logs)
    log = b"".join(records)
    tails = {
        b"": (ScanEnd.BUFFER_END, 0),
        bytes(8): (ScanEnd.ZERO, 0),
        bytes(200): (ScanEnd.ZERO, 0),
        bytes(7): (ScanEnd.TRUNCATED, 0),
        b"\x00\x00\x00\x5c\xda\xa3\x20": (ScanEnd.TRUNCATED, 0),
        blank_record(8): (ScanEnd.BLANK, 8),
        blank_record(300) + bytes(292): (ScanEnd.BLANK, 300),
        b"garbage " * 20: (ScanEnd.BAD_MAGIC, int.from_bytes(b"garb", "big")),
        b"\x00\x00\x01\x00" + bytes(252): (ScanEnd.BAD_MAGIC, 256),
        b"\x00\x00\x00\x5a\xda\xa3\x20\xa7" + bytes(200): (ScanEnd.BAD_LENGTHS, 90),
        b"\xff\xff\xff\xff\xda\xa3\x20\xa7" + bytes(200): (ScanEnd.BAD_LENGTHS, -1),
        b"\x00\x00\xff\xff\xda\xa3\x20\xab" + bytes(200): (ScanEnd.TRUNCATED, 65_535),
    }
    expected = walk(log, check_crc=True)
    assert len(expected) == len(records)
    for tail, (end, end_size) in tails.items():
        for buffer in (log + tail, bytearray(log + tail), memoryview(log + tail)):
            result = scan(buffer)
            assert_columns_match(result, expected)
            assert result.valid_end == len(log)
            assert (result.end, result.end_size) == (end, end_size)


# Each example tries every byte, so few examples are many cases.
@settings(max_examples=examples(15))
@given(st.data())
def test_a_tail_torn_at_any_byte_costs_exactly_the_last_record(
    messages: st.SearchStrategy[Any], reference: Callable[..., bytes], data: st.DataObject
) -> None:
    first = reference(data.draw(messages))
    last = reference(data.draw(messages))
    for cut in range(1, len(last)):
        torn = scan(first + last[:cut])
        assert (torn.count, torn.valid_end, torn.end) == (1, len(first), ScanEnd.TRUNCATED)
        zeroed = scan(first + last[:cut] + bytes(len(last) - cut))
        assert zeroed.valid_end in (len(first), len(first) + len(last))
        if zeroed.count == 1:
            assert zeroed.valid_end == len(first)
        else:
            # Zeros that read as a whole record: only its properties, which have no checksum, may
            # have been lost; or what was lost was zero.
            survivor = Record(first + last[:cut] + bytes(len(last) - cut), len(first))
            assert survivor.body == Record(last).body
            assert survivor.topic == Record(last).topic


@given(st.data())
def test_a_scan_of_damaged_bytes_finds_what_a_careful_walk_finds(
    logs: st.SearchStrategy[list[bytes]], data: st.DataObject
) -> None:
    damaged = bytearray(b"".join(data.draw(logs)))
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    log = bytes(damaged)
    for check_crc in (False, True):
        expected = walk(log, check_crc=check_crc)
        for buffer in (log, memoryview(log)):
            result = scan(buffer, check_crc=check_crc)
            assert_columns_match(result, expected)
            if result.valid_end == len(log):
                assert result.end is ScanEnd.BUFFER_END
            if check_crc is False:
                assert result.end is not ScanEnd.BAD_CRC


def test_a_changed_body_ends_the_scan_only_if_checksums_are_asked_for(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    record = reference(message_type())
    log = record + record[:88] + b"x" + record[89:] + record
    assert (scan(log).count, scan(log).end) == (1, ScanEnd.BAD_CRC)
    assert scan(log).end_size == len(record)
    unchecked = scan(log, check_crc=False)
    assert (unchecked.count, unchecked.end) == (3, ScanEnd.BUFFER_END)


def test_an_empty_body_needs_no_checksum(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    record = reference(message_type(body=b""))
    assert scan(record[:8] + b"\x01\x02\x03\x04" + record[12:]).count == 1


def test_inner_lengths_that_contradict_the_size_end_the_scan(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    record = reference(message_type())
    for at, value in ((84, b"\xff\xff\xff\xff"), (92, b"\xff"), (102, b"\x00\x01")):
        bad = record[:at] + value + record[at + len(value) :]
        for check_crc in (True, False):
            result = scan(record + bad + record, check_crc=check_crc)
            assert (result.count, result.end) == (1, ScanEnd.BAD_LENGTHS)
            assert (result.valid_end, result.end_size) == (len(record), len(record))


@pytest.mark.parametrize("topic", [b"\0", b"Topic\0\0\0\0", b"", b".", b"..", b"../etc"])
def test_a_topic_that_can_be_no_folder_ends_the_scan(
    topic: bytes, message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    good = reference(message_type())
    bad = reference(message_type(topic=topic))
    later = good[:88] + b"x" + good[89:]
    for check_crc in (True, False):
        result = scan(good + bad + later, check_crc=check_crc)
        assert (result.count, result.valid_end, result.end) == (1, len(good), ScanEnd.BAD_TOPIC)
        assert result.topic_table == ("TopicTest",)
    assert scan(later + bad).end is ScanEnd.BAD_CRC
    with pytest.raises(RecordCorrupt, match="topic"):
        Record(bad).check()


def test_keys_come_from_the_chosen_records_and_not_from_rollbacks(
    message_type: type[Any], reference: Callable[..., bytes]
) -> None:
    properties = b"KEYS\x01a  b\x02UNIQ_KEY\x01u\x02"
    none, prepared, commit, rollback = (
        reference(message_type(properties=properties, sys_flag=sys_flag))
        for sys_flag in (0x0, 0x4, 0x8, 0xC)
    )
    buffer = none + prepared + rollback + commit
    result = scan(buffer)
    hashes = [index_key_hash(f"TopicTest#{key}") for key in ("u", "a", "b")]
    found = result.index_keys(buffer, 500, np.arange(1, 4))
    assert found.hashes.tolist() == hashes * 2
    starts = result.positions.tolist()
    assert found.physical_offsets.tolist() == [500 + starts[1]] * 3 + [500 + starts[3]] * 3
    assert len(result.index_keys(buffer, 0, np.arange(2, 3))) == 0


def test_an_empty_buffer_is_the_end() -> None:
    result = scan(b"")
    assert (result.count, result.valid_end, result.end) == (0, 0, ScanEnd.BUFFER_END)
    assert result.topics == []
