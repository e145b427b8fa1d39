"""What neighbouring records share is looked at once: with the same answers as one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.like_pieces import group_properties, number_pieces
from aerobee.store.format.properties import encode_properties, find_property
from aerobee.store.format.record import HostAddress, Record, encode_record
from aerobee.store.format.record_hops import hop
from aerobee.store.format.scan import ScanEnd, scan_records
from aerobee.store.format.tags import TagsCodes

_HOST = HostAddress.parse("127.0.0.1:10911")


def _joined(pieces: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    return b"".join(pieces), np.concatenate(([0], ends[:-1])).astype(np.int64), ends


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=12), st.integers(0, 1 << 32))
def test_pieces_are_numbered_by_first_appearance(values: list[bytes], seed: int) -> None:
    chance = random.Random(seed)
    # Single ones and runs; few of them and many are numbered in different ways.
    chosen = chance.choices(values, k=chance.choice((1, 20, 500)))
    pieces = [piece for piece in chosen for _ in range(chance.choice((1, 1, 4)))]
    buffer, starts, ends = _joined(pieces)
    different = list(dict.fromkeys(pieces))
    for view in (buffer, bytearray(buffer), memoryview(buffer)):
        codes, found = number_pieces(view, starts, ends)
        assert found == different
        assert [found[code] for code in codes] == pieces


def test_of_nothing_nothing_is_numbered() -> None:
    nothing = np.empty(0, np.int64)
    codes, found = number_pieces(b"", nothing, nothing)
    assert (len(codes), found) == (0, [])


# Little else than separators and names, so that layouts differ in every way.
_properties = st.lists(
    st.sampled_from([b"TAGS", b"K", b"\x01", b"\x02", b"a", b"b", b"\x00", b"TAGS\x01", b"xTAGS"]),
    max_size=8,
).map(b"".join)


@given(st.lists(_properties, min_size=1, max_size=6), st.integers(0, 1 << 32))
def test_properties_in_a_group_have_each_property_at_the_same_place(
    several: list[bytes], seed: int
) -> None:
    chance = random.Random(seed)
    pieces = [chance.choice(several) for _ in range(chance.randint(1, 60))]
    buffer, starts, ends = _joined(pieces)
    groups, others = group_properties(buffer, starts, ends)
    seen = sorted([*others.tolist(), *(index for group in groups for index in group.records)])
    assert seen == list(range(len(pieces)))
    for group in groups:
        for name in (b"TAGS", b"K", b"a", b"xTAGS"):
            span = group.span_of(name)
            for index in group.records:
                found = find_property(pieces[index], 0, len(pieces[index]), name)
                assert found == (None if span is None else pieces[index][slice(*span)])


def test_properties_that_differ_in_their_values_are_one_group() -> None:
    pieces = [b"UNIQ_KEY\x01%08d\x02TAGS\x01%02d\x02" % (n, n % 7) for n in range(100)]
    groups, others = group_properties(*_joined(pieces))
    assert ([len(group.records) for group in groups], len(others)) == ([100], 0)


@given(st.integers(0, 1 << 32))
def test_a_scan_of_many_like_records_finds_what_a_walk_finds(seed: int) -> None:
    chance = random.Random(seed)
    records: list[bytes] = []
    for _ in range(chance.randint(1, 6)):
        topic = chance.choice([b"Orders", b"Bills", b"SCHEDULE_TOPIC_XXXX", b"x" * 200])
        body = chance.randbytes(chance.choice([0, 1, 40]))
        names = chance.sample(
            ["TAGS", "KEYS", "DELAY", "INNER_MULTI_DISPATCH"], chance.randint(0, 3)
        )
        for number in range(chance.choice([1, 15, 16, 17, 90, 400])):
            values = {name: f"{number % chance.choice([1, 2, 50]):02d}" for name in names}
            records.append(
                encode_record(
                    topic=topic,
                    body=body,
                    properties=encode_properties(values),
                    born_timestamp_ms=number,
                    born_host=_HOST,
                )
            )
    log = bytearray().join(records)
    if chance.random() < 0.5:
        log[chance.randrange(len(log))] ^= 1 << chance.randrange(8)
    expected = _walk(bytes(log))
    codes = TagsCodes()
    for buffer in (bytes(log), memoryview(log)):
        result = scan_records(buffer, check_crc=True, tags=TagsCodes())
        assert result.positions.tolist() == [record.start for record in expected]
        assert result.sizes.tolist() == [record.size for record in expected]
        assert result.topics == [record.topic for record in expected]
        assert result.may_name_queues or not any(
            b"INNER_MULTI_DISPATCH\x01" in record.properties_bytes for record in expected
        )
        for record, tags_code in zip(expected, result.tags_codes.tolist(), strict=True):
            properties = record.properties_bytes
            span = 0, len(properties)
            if record.topic == "SCHEDULE_TOPIC_XXXX":
                time_ms = record.store_timestamp_ms
                assert tags_code == codes.scheduled_code_in(properties, *span, time_ms)
            else:
                assert tags_code == codes.code_in(properties, *span)


def _walk(log: bytes) -> list[Record]:
    records: list[Record] = []
    position = 0
    while position < len(log):
        try:
            record = Record(log, position)
            record.check()
        except ValueError:
            break
        records.append(record)
        position = record.end
    return records


@pytest.mark.parametrize("missing", [0, 1, 91, 200])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 80, 81, 400])
def test_hops_end_with_the_last_record_that_fits(count: int, missing: int) -> None:
    record = encode_record(
        topic=b"Orders",
        body=b"b",
        properties=b"",
        born_timestamp_ms=1,
        born_host=_HOST,
    )
    log = record * count
    starts, ends = hop(log[: len(log) - missing])
    whole = (len(log) - missing) // len(record) if missing < len(log) else 0
    assert starts.tolist() == [len(record) * number for number in range(whole)]
    assert ends.tolist() == [len(record) * (number + 1) for number in range(whole)]


def test_a_record_of_another_size_among_many_ends_no_hop() -> None:
    def sized(size: int) -> bytes:
        return encode_record(
            topic=b"T", body=bytes(size), properties=b"", born_timestamp_ms=1, born_host=_HOST
        )

    records = [sized(5)] * 200 + [sized(6)] + [sized(5)] * 300 + [sized(7)] * 90
    starts, ends = hop(b"".join(records))
    assert (ends - starts).tolist() == [len(record) for record in records]
    assert scan_records(b"".join(records), check_crc=True, tags=TagsCodes()).end is (
        ScanEnd.BUFFER_END
    )
