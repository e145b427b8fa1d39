"""Tag expressions: what they select, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.reading.tag_filter import parse_tags, tags_codes
from aerobee.runtime.errors import FilterIllegal
from aerobee.store_format.java_hash import java_string_hash


@pytest.mark.parametrize("expression", ["", "*", "  ", " * "])
def test_no_expression_and_a_star_mean_all_messages(expression: str) -> None:
    assert parse_tags(expression) is None
    assert tags_codes(expression) is None


def test_tags_are_trimmed_and_repeated_ones_count_once() -> None:
    assert parse_tags(" a||b ||  c c||a ") == ("a", "b", "c c")


def test_codes_are_javas_hashes_also_of_characters_beyond_16_bits() -> None:
    tags = ("TagA", "航班", "✈🐝")
    assert tags_codes(" || ".join(tags)) == frozenset(java_string_hash(tag) for tag in tags)


def test_two_tags_with_the_same_hash_share_one_code() -> None:
    assert java_string_hash("Aa") == java_string_hash("BB")
    assert tags_codes("Aa || BB") == frozenset({java_string_hash("Aa")})


@pytest.mark.parametrize("expression", ["||", " || ||", "a || *", "* || *", "a\x01b", "x" * 20_000])
def test_an_expression_that_cannot_be_meant_is_refused(expression: str) -> None:
    with pytest.raises(FilterIllegal):
        tags_codes(expression)


@given(st.lists(st.text("abcXYZ_-|", min_size=1, max_size=8), min_size=1, max_size=20))
def test_every_joined_tag_is_found_again(tags: list[str]) -> None:
    wanted = [tag for tag in tags if "||" not in tag and not tag.startswith("|")]
    wanted = [tag for tag in wanted if not tag.endswith("|")]
    if wanted:
        assert parse_tags(" || ".join(wanted)) == tuple(dict.fromkeys(wanted))
