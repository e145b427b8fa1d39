"""Java's String.hashCode and the key index's hash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.java_hash import index_key_hash, java_string_hash


@pytest.mark.parametrize(
    ("text", "expected", "index_hash"),
    [
        ("", 0, 0),
        ("a", 97, 97),
        ("TagA", 2598919, 2598919),
        ("TagB", 2598920, 2598920),
        ("Aa", 2112, 2112),
        ("BB", 2112, 2112),
        ("订单", 1129459, 1129459),
        ("order-1", -1207111310, 1207111310),
        ("%RETRY%GroupA", -105794748, 105794748),
        ("TopicTest#order-1", -1829193424, 1829193424),
        ("polygenelubricants", -2147483648, 0),
    ],
)
def test_the_known_hashes_come_out(text: str, expected: int, index_hash: int) -> None:
    assert java_string_hash(text) == expected
    assert index_key_hash(text) == index_hash


@given(st.text(st.characters(codec=None)))
def test_any_text_hashes_as_the_definition_says(text: str) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = 31 * value + units[at] + 256 * units[at + 1]
    value %= 1 << 32
    assert java_string_hash(text) == (value - (1 << 32) if value >= 1 << 31 else value)
    assert 0 <= index_key_hash(text) < 1 << 31
