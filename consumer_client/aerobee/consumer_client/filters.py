"""What a consumer wants from a topic: tags, as text, or what an SQL expression is true for.

Brokers filter by the tag's hash, which two tags may share, so tags are compared again here. The
results of an SQL expression are exact.
"""

from __future__ import annotations

from aerobee.client_core.message import ReceivedMessage
from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.domain.tag_expression import sendable_tags
from aerobee.runtime.errors import FilterIllegal
from aerobee.v1 import broker_pb2

Expression = str | SqlExpression

ALL_TAGS = "*"


def sql(text: str) -> SqlExpression:
    """A filter over the properties of messages, such as `price > 5 AND region IN ('eu', 'us')`, for
    `subscribe` in place of tags (docs/filters.md). TAGS and KEYS are properties too.

    Raises:
        FilterIllegal: it is not valid; the message says where and why.
    """
    if not isinstance(text, str):
        raise FilterIllegal(f"an SQL filter is text, not {type(text).__name__}")
    return SqlExpression(text)


def compared_tags(expression: Expression) -> frozenset[str] | None:
    """The tags with which received messages are compared; None: none.

    Raises:
        FilterIllegal: it contains no tag, `*` beside other tags, or an impossible tag.
    """
    if isinstance(expression, SqlExpression):
        return None
    if not isinstance(expression, str):
        raise FilterIllegal(
            f"a tag expression is text, not {type(expression).__name__}; write 'a || b', '*', or "
            "sql('price > 5')"
        )
    tags = sendable_tags(expression)
    return None if tags is None else frozenset(tags)


def is_wanted(message: ReceivedMessage, expression: Expression) -> bool:
    """For a message that no broker has evaluated against the expression."""
    if isinstance(expression, SqlExpression):
        return expression.matches(message.record.properties)
    tags = compared_tags(expression)
    return tags is None or message.tag in tags


def wire_filter(expression: Expression) -> broker_pb2.Filter:
    if isinstance(expression, SqlExpression):
        return broker_pb2.Filter(type=broker_pb2.SQL92, expression=expression.text)
    return broker_pb2.Filter(expression=expression)
