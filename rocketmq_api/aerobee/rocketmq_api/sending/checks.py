"""Checks a message as this protocol sends it, field by field, by `rules.message_checks`."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.rocketmq_api.codes import Refused
from aerobee.rocketmq_api.rules import message_checks as rules
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.times import milliseconds
from apache.rocketmq.v2 import definition_pb2 as v2


def check_request(messages: Sequence[v2.Message]) -> None:
    """Raises Refused unless they are messages of one topic."""
    if not messages:
        raise Refused(v2.MESSAGE_CORRUPTED, "the request has no message; send at least one")
    if len(messages) == 1:
        return
    topic = messages[0].topic
    if any(message.topic != topic for message in messages):
        raise Refused(
            v2.MESSAGE_CORRUPTED,
            "the messages of the request name different topics; send each topic's by themselves",
        )


def check_message(message: v2.Message, limits: SendLimits, now_ms: int) -> None:
    """Raises Refused. The topic's name is not checked."""
    system = message.system_properties
    has_time = system.HasField("delivery_timestamp")
    rules.check_body(message.body, limits)
    rules.check_tag(system.tag)
    rules.check_keys(system.keys)
    rules.check_user_properties(message.user_properties, system.tag, system.keys, limits)
    rules.check_message_group(system.message_group, limits)
    rules.check_message_id(system.message_id)
    if system.message_type == v2.TRANSACTION:
        rules.check_half(has_message_group=bool(system.message_group), has_time=has_time)
    if system.message_type == v2.LITE or system.lite_topic:
        raise Refused(
            v2.NOT_IMPLEMENTED,
            "lite topics are not supported; use a message group or a tag in an ordinary topic",
        )
    if system.HasField("priority"):
        rules.check_priority(system.priority)
    rules.check_born_time(milliseconds(system.born_timestamp))
    if has_time:
        rules.check_delivery_time(milliseconds(system.delivery_timestamp), limits, now_ms)
    recovery_ms = milliseconds(system.orphaned_transaction_recovery_duration)
    rules.check_recovery_time(recovery_ms, limits)
    rules.check_no_controls("its trace context", system.trace_context)
    rules.check_no_controls("its born host", system.born_host)
