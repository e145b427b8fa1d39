"""What SQL filters say of messages: the tables of the language, line by line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.domain.sql_filter.errors import SqlIllegal
from aerobee.domain.sql_filter.expression import CompiledExpressions, SqlExpression
from aerobee.domain.sql_filter.parser import DEPTH_MAX, LENGTH_MAX, NAMES_MAX, TERMS_MAX, parse
from aerobee.domain.sql_filter.tree import Condition
from aerobee.runtime.errors import FilterIllegal
from tests.domain.sql_filter.reference import is_match
from tests.domain.sql_filter.texts import CONDITIONS, PROPERTIES, written
from tests.support.property_runs import examples

PAID = {"a": "6", "b": "x", "TAGS": "paid", "price": "5.5", "ok": "TRUE", "big": "3000000000"}


@pytest.mark.parametrize(
    "text",
    [
        "a > 5 AND b IN ('x', 'y')",
        "a = 6 OR missing = 1",
        "missing = 1 OR a = 6",
        "NOT (a > 6)",
        "a BETWEEN 6 AND 6",
        "a NOT BETWEEN 7 AND 9",
        "a > -7 AND a < + 7",
        "a = 6.0 OR price > 5",
        "price > 5.0 AND price = 5.50",
        "big > 5",
        "missing IS NULL AND a IS NOT NULL",
        "TAGS = 'paid'",
        "b <> 'z' AND b not in ('z')",
        "ok = TRUE AND b = false",
        "b CONTAINS 'x' AND TAGS startswith 'pa' AND TAGS EndsWith 'id'",
        "TAGS NOT CONTAINS 'z'",
        "(a > 5) = TRUE",
        "price < a",
        "missing = missing",
        "NOT b",
        "a = 6 -- the rest of the line\n AND /* and ** this */ b = 'x'",
        "a >= 1e0 AND a < .7E1",
        "a=6L",
    ],
)
def test_these_match(text: str) -> None:
    assert SqlExpression(text).matches(PAID)


@pytest.mark.parametrize(
    "text",
    [
        "missing > 5",
        "NOT (missing > 5)",
        "missing <> 'x'",
        "missing NOT IN ('x')",
        "missing NOT CONTAINS 'x'",
        "a = missing",
        "A = 6",
        "b",
        "NULL",
        "FALSE",
        "b > 5",
        "price = 5",
        "price > 5 OR a = 6",
        "TRUE = ok",
        "b CONTAINS ''",
        "NOT a = 6",
        "a = TRUE",
        "b > a",
    ],
)
def test_these_do_not_match(text: str) -> None:
    assert not SqlExpression(text).matches(PAID)


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("", 0, "empty"),
        ("  -- nothing", 12, "empty"),
        ("a >", 3, "expected"),
        ("a = 1 nonsense", 6, "complete"),
        ("a LIKE 'x%'", 2, "LIKE"),
        ("a + 1 = 2", 2, "arithmetic"),
        ("a != 1", 2, "<>"),
        ("a == 1", 3, "expected"),
        ("a = NULL", 2, "IS NULL"),
        ("a > 'x'", 2, "properties and numbers"),
        ("TRUE < a", 5, "properties and numbers"),
        ("a BETWEEN 5 AND 1", 2, "above"),
        ("a BETWEEN 5", 11, "AND"),
        ("5 IN ('x')", 2, "property"),
        ("a IN (1)", 6, "string"),
        ("a IN ('x'", 9, "ends with"),
        ("a IS 5", 5, "NOT NULL"),
        ("a STARTSWITH b", 13, "string"),
        ("(a = 1", 6, "open"),
        ("a = 'x", 4, "closing quote"),
        ("a = 1 /* x", 6, "no end"),
        ("a.b = 1", 1, "begins so"),
        ("a = 01", 5, "complete"),
        ("'x'", 0, "no condition"),
        ("a = 1 AND 5", 10, "no condition"),
        ("-a", 0, "no condition"),
        ("contains = 'x'", 0, "keyword"),
        ("a = 9223372036854775808", 4, "at most"),
        ("a > 1e400", 4, "double"),
        ("a > 5 > 3", 6, "properties and numbers"),
        ("a = \x00", 4, "begins so"),
    ],
)
def test_an_error_says_where_and_why(text: str, position: int, why: str) -> None:
    with pytest.raises(SqlIllegal, match=why) as illegal:
        SqlExpression(text)
    assert illegal.value.position == position
    assert isinstance(illegal.value, FilterIllegal)


@pytest.mark.parametrize(
    ("longest", "beyond"),
    [
        ("a = '" + "x" * (LENGTH_MAX - 6) + "'", "a = '" + "x" * (LENGTH_MAX - 5) + "'"),
        ("(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX, "(" * (DEPTH_MAX + 1) + "a" + ")" * 51),
        ("NOT " * DEPTH_MAX + "a", "NOT " * (DEPTH_MAX + 1) + "a"),
        ("a = 1" + " = TRUE" * DEPTH_MAX, "a = 1" + " = TRUE" * (DEPTH_MAX + 1)),
        (" OR ".join(["a"] * TERMS_MAX), " OR ".join(["a"] * (TERMS_MAX + 1))),
        (
            " OR ".join(f"n{number}" for number in range(NAMES_MAX)),
            " OR ".join(f"n{number}" for number in range(NAMES_MAX + 1)),
        ),
    ],
    ids=["length", "depth", "not", "chain", "terms", "names"],
)
def test_size_and_depth_are_bounded(longest: str, beyond: str) -> None:
    SqlExpression(longest).matches({"a": "1"})
    with pytest.raises(SqlIllegal):
        SqlExpression(beyond)


@settings(max_examples=examples(1_000))
@given(CONDITIONS, st.lists(PROPERTIES, min_size=1, max_size=5))
def test_the_compiled_form_judges_as_the_plain_one(
    tree: Condition, messages: list[dict[str, str]]
) -> None:
    expression = SqlExpression(written(tree))
    for properties in messages:
        assert expression.matches(properties) is is_match(tree, properties)


@settings(max_examples=examples(1_000))
@given(CONDITIONS)
def test_a_written_tree_is_parsed_to_itself(tree: Condition) -> None:
    assert repr(parse(written(tree))) == repr(tree)


_PIECES = st.sampled_from(
    [
        "a",
        "b",
        "=",
        "<>",
        "<",
        ">=",
        "(",
        ")",
        ",",
        "+",
        "-",
        "'",
        "''",
        "'x'",
        "5",
        "5.",
        ".5e",
        "0x1",
        "9l",
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "BETWEEN",
        "CONTAINS",
        "TRUE",
        "--",
        "/*",
        "*/",
        "\n",
        ".",
        "!",
        "\x00",
        "中",
        "😀",
    ]
)


@settings(max_examples=examples(1_000))
@given(st.lists(_PIECES, max_size=40).map(" ".join) | st.text())
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    position = 0
    try:
        SqlExpression(text).matches({"a": "5", "b": "x"})
    except SqlIllegal as illegal:
        position = illegal.position
    assert 0 <= position <= len(text)


@pytest.mark.parametrize(
    "piece", ["(", "'", "/*", "--", "NOT ", "-", "1", "a=", "' '", "a AND ", "*"]
)
def test_long_texts_are_refused(piece: str) -> None:
    """Where time grew with the square of a text, this would be seen to hang."""
    for text in ((piece * LENGTH_MAX)[:LENGTH_MAX], piece * 1_000_000):
        with pytest.raises(SqlIllegal):
            SqlExpression(text)


@pytest.mark.parametrize("value", ["1" * 32_000, "1" * 32_000 + "x", " " * 32_000, "0" * 32_000])
def test_long_values_are_judged(value: str) -> None:
    for text in ("a > 5", "a > 5.5", "a = 5", "a = 5.5"):
        assert SqlExpression(text).matches({"a": value}) is (value[-1] == "1" and text == "a > 5.5")


def test_what_is_asked_for_again_is_compiled_once() -> None:
    kept = CompiledExpressions(kept_max=2)
    first = kept.of("a = 1")
    assert kept.of("a = 1") is first
    kept.of("a = 2")
    kept.of("a = 1")
    kept.of("a = 3")
    assert kept.of("a = 1") is first
    with pytest.raises(SqlIllegal):
        kept.of("a = ")


def test_only_the_named_properties_are_asked_for() -> None:
    assert SqlExpression("a > 5 AND (b = 'x' OR a = 9)").names == ("a", "b")
