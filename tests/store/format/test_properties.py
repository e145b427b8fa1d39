"""Properties as bytes: what writers may write, what readers see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.properties import (
    PropertyIllegal,
    decode_properties,
    encode_properties,
    encode_usual_properties,
    find_property,
    find_values,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)


def test_properties_are_written_in_order_with_a_trailing_separator() -> None:
    assert encode_properties({"KEYS": "a b", "TAGS": "订"}) == (
        b"KEYS\x01a b\x02TAGS\x01\xe8\xae\xa2\x02"
    )
    assert encode_properties({}) == b""


@given(st.dictionaries(TEXT, TEXT))
def test_what_is_written_is_read_with_and_without_the_trailing_separator(
    properties: dict[str, str],
) -> None:
    data = encode_properties(properties)
    assert decode_properties(data) == properties
    assert decode_properties(memoryview(data.removesuffix(b"\x02"))) == properties


@pytest.mark.parametrize(
    ("name", "value"),
    [("", "v"), ("a\x01", "v"), ("a\x02", "v"), ("a", "\x01"), ("a", "v\x02"), ("a", "\ud800")],
)
def test_what_would_corrupt_the_string_is_refused(name: str, value: str) -> None:
    with pytest.raises(PropertyIllegal):
        encode_properties({"fine": "fine", name: value})


def test_readers_drop_what_has_no_separator_no_name_or_no_value() -> None:
    data = b"none\x02\x01value\x02name\x01\x02a\x01b\x01c\x02a\x02last\x01z"
    assert decode_properties(data) == {"a": "b\x01c", "last": "z"}


def test_of_a_name_that_occurs_twice_readers_see_the_last() -> None:
    data = b"UNIQ_KEY\x01own\x02UNIQ_KEY\x01batch\x02UNIQ_KEY\x01\x02"
    assert decode_properties(data) == {"UNIQ_KEY": "batch"}
    assert find_property(data, 0, len(data), b"UNIQ_KEY") == b"batch"


@pytest.mark.thorough
@given(st.data())
def test_finding_one_property_answers_like_decoding_all(data: st.DataObject) -> None:
    pieces = [b"TAGS", b"KEYS", b"\x01", b"\x02", b"x", b"XTAGS\x01", b"TAGS\x01v", b"\xff"]
    before, properties, after = (
        b"".join(data.draw(st.lists(st.sampled_from(pieces), max_size=12))) for _ in range(3)
    )
    buffer = before + properties + after
    decoded = decode_properties(properties)
    for name in ("TAGS", "KEYS", "x", "absent"):
        for container in (buffer, bytearray(buffer)):
            found = find_property(
                container, len(before), len(before) + len(properties), name.encode()
            )
            value = None if found is None else found.decode("utf-8", "replace")
            assert value == decoded.get(name)
            values = find_values(
                container,
                len(before),
                len(before) + len(properties),
                [b"TAGS\x01", name.encode() + b"\x01"],
            )
            assert values == [decoded.get("TAGS"), value]


@given(TEXT, st.none() | TEXT, st.none() | TEXT)
def test_the_fast_way_for_the_usual_properties_writes_the_same(
    unique_key: str, tag: str | None, keys: str | None
) -> None:
    usual = (
        {"UNIQ_KEY": unique_key} | ({"TAGS": tag} if tag else {}) | ({"KEYS": keys} if keys else {})
    )
    assert encode_usual_properties(unique_key, tag or "", keys or "") == encode_properties(usual)


@pytest.mark.parametrize("bad", ["a\x01b", "a\x02b", "\ud800"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_fast_way_refuses_separators_too(bad: str, place: int) -> None:
    arguments = ["key", "tag", "keys"]
    arguments[place] = bad
    with pytest.raises(PropertyIllegal):
        encode_usual_properties(*arguments)
