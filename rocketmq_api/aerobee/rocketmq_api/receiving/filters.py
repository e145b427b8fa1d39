"""Which messages a client asks for, evaluated on the message itself as brokers do on records."""

from __future__ import annotations

from collections.abc import Iterable

from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.domain.sql_filter.wish import Wish
from aerobee.domain.tag_expression import parse_tags
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.runtime.errors import FilterIllegal
from apache.rocketmq.v2 import definition_pb2 as v2


def wish_of(expression: v2.FilterExpression, expressions: CompiledExpressions) -> Wish:
    """What a filter wants: by default everything, including messages without a tag.

    Raises Refused with ILLEGAL_FILTER for an unreadable filter.
    """
    if expression.type not in (v2.FILTER_TYPE_UNSPECIFIED, v2.TAG, v2.SQL):
        raise Refused(
            Reason.ILLEGAL_FILTER,
            f"the filter has type {expression.type}; it must be TAG or SQL",
        )
    try:
        if expression.type == v2.SQL:
            return expressions.of(expression.expression)
        return parse_tags(expression.expression)
    except FilterIllegal as error:
        raise Refused(Reason.ILLEGAL_FILTER, str(error)) from None


async def prepared(
    wanted: Iterable[v2.FilterExpression], expressions: CompiledExpressions, asker: str
) -> CompiledExpressions:
    """For `wish_of` of these, which is then quick."""
    texts = (each.expression for each in wanted if each.type == v2.SQL)
    return await expressions.prepared(texts, asker)


def passes(message: v2.Message, tags: tuple[str, ...] | None) -> bool:
    """Whether a message has one of the wanted tags."""
    system = message.system_properties
    return tags is None or (system.HasField("tag") and system.tag in tags)
