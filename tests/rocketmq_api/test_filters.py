"""Filters by tag, judged on messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.domain.sql_filter.expression import CompiledExpressions, SqlExpression
from aerobee.domain.sql_filter.wish import Wish
from aerobee.domain.tag_expression import parse_tags
from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.receiving.filters import passes, wish_of
from aerobee.rocketmq_api.rules.refusals import Refused
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.support.v2_messages import TOPIC, Delivery, message_of, record_with

TAGS = ["a", "b", "Aa", "BB", "订单", "a b"]


def wanted(expression: v2.FilterExpression) -> Wish:
    return wish_of(expression, CompiledExpressions())


def tag_filter(expression: str, kind: v2.FilterType = v2.TAG) -> v2.FilterExpression:
    return v2.FilterExpression(type=kind, expression=expression)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("", None),
        ("*", None),
        (" * ", None),
        ("a", ("a",)),
        ("a || b||c", ("a", "b", "c")),
        ("a||||a", ("a",)),
    ],
)
@pytest.mark.parametrize("kind", [v2.TAG, v2.FILTER_TYPE_UNSPECIFIED])
def test_an_expression_names_tags(
    expression: str, tags: tuple[str, ...] | None, kind: v2.FilterType
) -> None:
    assert wanted(tag_filter(expression, kind)) == tags


def test_without_an_expression_everything_is_wanted() -> None:
    assert wanted(v2.FilterExpression()) is None


@pytest.mark.parametrize("expression", ["||", " || ", "a || *", "a\x00", "x" * 20_000])
def test_an_expression_that_names_none_is_refused(expression: str) -> None:
    with pytest.raises(Refused) as refused:
        wanted(tag_filter(expression))
    assert status_of(refused.value).code == v2.ILLEGAL_FILTER_EXPRESSION


def test_an_sql_expression_is_compiled_once() -> None:
    expressions = CompiledExpressions()
    wish = wish_of(tag_filter("a = 1", v2.SQL), expressions)
    assert wish == SqlExpression("a = 1")
    assert wish_of(tag_filter("a = 1", v2.SQL), expressions) is wish


def test_sql_that_is_not_of_the_language_is_refused_with_the_place() -> None:
    with pytest.raises(Refused, match="at character 3") as refused:
        wanted(tag_filter("a LIKE 'x%'", v2.SQL))
    assert status_of(refused.value).code == v2.ILLEGAL_FILTER_EXPRESSION


@given(st.none() | st.sampled_from(TAGS), st.lists(st.sampled_from(TAGS), max_size=3))
def test_a_message_passes_exactly_if_its_record_does(tag: str | None, wished: list[str]) -> None:
    record = record_with({} if tag is None else {"TAGS": tag})
    message = message_of(record, Delivery(topic=TOPIC, attempt=1))
    tags = parse_tags("||".join(wished))
    assert passes(message, tags) == (tags is None or TagFilter(tags).verdict(record)[0])
