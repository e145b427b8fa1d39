"""Which messages a client asks for, judged on the message itself as brokers judge records."""

from __future__ import annotations

from aerobee.rocketmq_api.codes import Refused
from aerobee.runtime.errors import FilterIllegal
from aerobee.runtime.tag_expression import parse_tags
from apache.rocketmq.v2 import definition_pb2 as v2


def wanted_tags(expression: v2.FilterExpression) -> tuple[str, ...] | None:
    """The tags that a filter names, each once; None means every message, also those without a tag.

    Raises Refused: ILLEGAL_FILTER_EXPRESSION for what cannot be read, NOT_IMPLEMENTED for SQL.
    """
    if expression.type == v2.SQL:
        raise Refused(
            v2.NOT_IMPLEMENTED,
            "filters in SQL are not supported yet; filter by tags, such as 'a || b'",
        )
    if expression.type not in (v2.FILTER_TYPE_UNSPECIFIED, v2.TAG):
        raise Refused(
            v2.ILLEGAL_FILTER_EXPRESSION,
            f"the filter has type {expression.type}; it must be TAG",
        )
    try:
        return parse_tags(expression.expression)
    except FilterIllegal as error:
        raise Refused(v2.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


def passes(message: v2.Message, tags: tuple[str, ...] | None) -> bool:
    """Whether a message has one of the wanted tags."""
    system = message.system_properties
    return tags is None or (system.HasField("tag") and system.tag in tags)
