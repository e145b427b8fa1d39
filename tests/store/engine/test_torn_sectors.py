"""A record that lost a sector of its properties is no record, wherever the sector lies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.engine.log.torn_records import before_torn
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import encode_record
from aerobee.store.format.scan import ScanEnd, scan_records
from aerobee.store.format.tags import TagsCodes
from tests.support.stores import BORN_HOST

SECTOR = 512


def _record(body: bytes, properties: dict[str, str]) -> bytes:
    return encode_record(
        topic=b"Orders",
        body=body,
        properties=encode_properties(properties),
        born_timestamp_ms=1,
        born_host=BORN_HOST,
    )


def _count(data: bytes, *, position: int = 0, torn_from: int = 0) -> tuple[int, ScanEnd]:
    result = scan_records(data, check_crc=True, tags=TagsCodes())
    kept = before_torn(data, result, position=position, torn_from=torn_from)
    assert kept.count == len(kept.topics)
    return kept.count, kept.end


def _without(data: bytes, start: int, end: int) -> bytes:
    return data[:start] + bytes(end - start) + data[end:]


@pytest.mark.parametrize("position", [0, 100, SECTOR])
def test_each_lost_sector_is_noticed(position: int) -> None:
    record = _record(b"body", {"A": "a" * 700, "KEYS": "k" * 700})
    data = record * 3
    for start in range(-position % SECTOR, len(data), SECTOR):
        end = min(start + SECTOR, len(data))
        # Of a record of which nothing but a part of a sector is missing, the first stays whole.
        whole = start // len(record)
        assert _count(_without(data, start, end), position=position)[0] == whole


def test_a_lost_end_is_noticed_down_to_the_last_byte() -> None:
    for missing in range(1, 60):
        record = _record(b"b" * 400, {"A": "a" * 100, "KEYS": "k" * 300})
        position = SECTOR - (len(record) - missing) % SECTOR
        data = _without(record, len(record) - missing, len(record))
        assert _count(data, position=position) == (0, ScanEnd.TORN)


def test_whole_records_are_left_alone() -> None:
    records = [
        _record(bytes(3_000), {}),
        _record(bytes(3_000), {"TAGS": "t"}),
        _record(b"", {}),
        _record(b"b" * 511, {"KEYS": "k" * 2_000}),
    ]
    data = b"".join(records)
    for position in range(0, SECTOR, 37):
        assert _count(data, position=position) == (4, ScanEnd.BUFFER_END)


def test_a_torn_record_that_was_flushed_is_not_cut_here() -> None:
    record = _record(b"body", {"KEYS": "k" * 600})
    data = _without(record, SECTOR, len(record)) + record
    assert _count(data, torn_from=1)[0] == 2
    assert _count(data, torn_from=0) == (0, ScanEnd.TORN)


def _is_torn(record: bytes, properties_start: int, position: int) -> bool:
    """The rule in plain words: all bytes of one sector are zeros, some of them of properties."""
    sectors = {at // SECTOR for at in range(position + properties_start, position + len(record))}
    for sector in sectors:
        start = max(sector * SECTOR - position, 0)
        if not any(record[start : (sector + 1) * SECTOR - position]):
            return True
    return False


@given(st.data())
def test_many_records_are_judged_like_one(data: st.DataObject) -> None:
    chance = data.draw(st.randoms(use_true_random=False))
    records = []
    for _ in range(chance.randint(1, 8)):
        keys = {"KEYS": "k" * chance.choice([1, 30, 600, 1_500])} if chance.random() < 0.8 else {}
        record = bytearray(_record(bytes(chance.choice([0, 40, 600])), keys))
        if chance.random() < 0.5:
            properties = len(encode_properties(keys))
            start = len(record) - chance.randint(0, properties)
            end = chance.randint(start, len(record))
            record[start:end] = bytes(end - start)
        records.append(bytes(record))
    log = b"".join(records)
    position = chance.randint(0, 2_000)
    result = scan_records(log, check_crc=True, tags=TagsCodes())
    expected = len(records)
    for index, whole in enumerate(records):
        at = int(result.positions[index])
        if _is_torn(whole, int(result.properties_starts[index]) - at, position + at):
            expected = index
            break
    assert _count(log, position=position)[0] == expected
