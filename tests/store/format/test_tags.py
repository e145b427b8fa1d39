"""Tags codes: hashes of tags, and times of delivery in the schedule topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.properties import decode_properties
from aerobee.store.format.tags import TagsCodes


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=40))
def test_a_code_is_the_hash_of_the_tag_however_little_is_remembered(tags: list[str]) -> None:
    codes = TagsCodes(entries_max=2)
    assert [codes.code_of(tag.encode()) for tag in tags] == [java_string_hash(t) for t in tags]


def test_a_tag_too_long_to_remember_still_has_its_code() -> None:
    codes = TagsCodes()
    assert codes.code_of(b"x" * 1000) == codes.code_of(b"x" * 1000) == java_string_hash("x" * 1000)


@given(st.data())
def test_many_codes_at_once_are_the_codes_one_by_one(
    property_bytes: st.SearchStrategy[bytes], data: st.DataObject
) -> None:
    several = data.draw(st.lists(property_bytes, max_size=12))
    buffer = b"".join(several)
    ends = [sum(map(len, several[: index + 1])) for index in range(len(several))]
    starts = [0, *ends[:-1]][: len(several)]
    expected = [
        java_string_hash(decode_properties(properties).get("TAGS", "")) for properties in several
    ]
    codes = TagsCodes()
    for _ in range(2):
        assert codes.codes_of(several) == expected
    assert [codes.code_in(buffer, *span) for span in zip(starts, ends, strict=True)] == expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"DELAY\x011\x02TAGS\x01TagA\x02", 5_001_000),
        (b"DELAY\x0118\x02", 5_000_000 + 7_200_000),
        (b"DELAY\x0119\x02", 5_000_000 + 7_200_000),
        (b"DELAY\x010\x02TAGS\x01TagA\x02", 2598919),
        (b"DELAY\x01-1\x02", 0),
        (b"DELAY\x01two\x02TAGS\x01TagA\x02", 2598919),
        (b"TAGS\x01TagA\x02", 2598919),
    ],
)
def test_in_the_schedule_topic_a_code_is_the_time_of_delivery(
    properties: bytes, expected: int
) -> None:
    assert TagsCodes().scheduled_code_in(properties, 0, len(properties), 5_000_000) == expected


def test_without_any_delay_level_a_delayed_message_waits_one_second() -> None:
    codes = TagsCodes(delays_ms=())
    assert codes.scheduled_code_in(b"DELAY\x013\x02", 0, 8, 5_000) == 6_000
