"""Tag expressions: what they select, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.domain.tag_expression import parse_tags
from aerobee.runtime.errors import FilterIllegal
from aerobee.store.engine.queues.reading import Int64Array
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.record import Record
from tests.support.stores import batch_of


def codes_of(*tags: str) -> Int64Array:
    """As the entries of messages with these tags have them."""
    return np.array([java_string_hash(tag) for tag in tags], np.int64)


@pytest.mark.parametrize("expression", ["", "*", "  ", " * "])
def test_no_expression_and_a_star_mean_all_messages(expression: str) -> None:
    assert parse_tags(expression) is None


def test_tags_are_trimmed_and_repeated_ones_count_once() -> None:
    assert parse_tags(" a||b ||  c c||a ") == ("a", "b", "c c")


def test_codes_are_javas_hashes_also_of_characters_beyond_16_bits() -> None:
    tags = ("TagA", "航班", "✈🐝")
    assert TagFilter(tags).may_match(codes_of(*tags, "TagB")).tolist() == [True, True, True, False]


def test_two_tags_with_the_same_hash_share_one_code() -> None:
    assert java_string_hash("Aa") == java_string_hash("BB")
    assert TagFilter(["Aa"]).may_match(codes_of("Aa", "BB", "CC")).tolist() == [True, True, False]


@pytest.mark.parametrize("expression", ["||", " || ||", "a || *", "* || *", "a\x01b", "x" * 20_000])
def test_an_expression_that_cannot_be_meant_is_refused(expression: str) -> None:
    with pytest.raises(FilterIllegal):
        parse_tags(expression)


@given(st.lists(st.text("abcXYZ_-|", min_size=1, max_size=8), min_size=1, max_size=20))
def test_every_joined_tag_is_found_again(tags: list[str]) -> None:
    wanted = [tag for tag in tags if "||" not in tag and not tag.startswith("|")]
    wanted = [tag for tag in wanted if not tag.endswith("|")]
    if wanted:
        assert parse_tags(" || ".join(wanted)) == tuple(dict.fromkeys(wanted))


def test_a_filter_of_thousands_of_tags_passes_what_each_of_them_would() -> None:
    tags = [f"tag{number}" for number in range(2_000)]
    codes = codes_of("tag0", "tag1999", "tag2000", "other")
    assert TagFilter(tags).may_match(codes).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("tag", "matches"), [("Aa", True), ("BB", False), ("", False), ("航班", True)]
)
def test_a_record_matches_by_its_tag_and_not_by_the_hash(tag: str, matches: bool) -> None:
    record = Record(batch_of("Orders", b"x", tag=tag).buffer)
    assert TagFilter(["Aa", "航班"]).verdict(record)[0] is matches
