"""A client's settings: what it says about itself, checked, and what it is told in return.

The answer is the client's own message with some fields overwritten, because clients compare the
rest with what they sent. The backoff must never be left out: most clients hang or fail without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.domain.sql_filter.wish import Wish
from aerobee.rocketmq_api.clients.backoff import policy_of
from aerobee.rocketmq_api.clients.languages import Traits
from aerobee.rocketmq_api.codes import OK, Refused
from aerobee.rocketmq_api.receiving.filters import wish_of
from aerobee.rocketmq_api.resources import stored_group, stored_topic
from aerobee.rocketmq_api.rules import refusals
from aerobee.rocketmq_api.rules.group_rules import GroupRules
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.times import duration
from aerobee.store.format.retry_delays import Exponential
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_PRODUCER_ATTEMPTS_MAX: Final = 3
_PRODUCER_DELAYS: Final = Exponential(initial_ms=10, max_ms=1_000)
_CONSUMERS: Final = frozenset((v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER, v2.PULL_CONSUMER))
_LITE: Final = frozenset((v2.LITE_PUSH_CONSUMER, v2.LITE_SIMPLE_CONSUMER))

PROPERTIES_MAX: Final = 32
PROPERTIES_BYTES_MAX: Final = 4 << 10
_PROPERTY_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_PROPERTY_VALUE_LENGTH_MAX: Final = 256
_RESERVED_PREFIX: Final = "rocketmq."


@dataclass(frozen=True, slots=True)
class Registration:
    """What a client says it is in its settings. Names are as in the store."""

    client_type: v2.ClientType
    topics: tuple[str, ...] = ()
    """A producer's topics; it may send to others too."""
    group: str = ""
    """A consumer's; empty for producers."""
    subscriptions: Mapping[str, Wish] = field(default_factory=dict)
    """A consumer's topics, and its filters as far as they can be read. Polls repeat them."""


def registration_of(
    settings: v2.Settings, expressions: CompiledExpressions, caller_namespace: str = ""
) -> Registration:
    """What the settings say, checked.

    Raises Refused; its code decides how the stream ends: with INVALID_ARGUMENT below 50000.
    """
    _check_client_properties(settings.client_properties)
    kind = settings.client_type
    if kind in _LITE:
        raise Refused(
            v2.NOT_IMPLEMENTED, "lite topics are not supported; use a push or simple consumer"
        )
    has = settings.WhichOneof("pub_sub")
    fits = {"publishing": kind == v2.PRODUCER, "subscription": kind in _CONSUMERS}
    if has is None or not (fits[has] or kind == v2.CLIENT_TYPE_UNSPECIFIED):
        raise Refused(
            v2.UNRECOGNIZED_CLIENT_TYPE,
            f"a client of type {kind} sent settings for {has or 'neither sending nor receiving'}; "
            "producers have `publishing` and consumers `subscription`",
        )
    if has == "publishing":
        topics = (stored_topic(each, caller_namespace) for each in settings.publishing.topics)
        return Registration(v2.PRODUCER, topics=tuple(dict.fromkeys(topics)))
    subscription = settings.subscription
    return Registration(
        kind or v2.SIMPLE_CONSUMER,
        group=stored_group(subscription.group, caller_namespace),
        subscriptions=dict(_wishes_of(subscription, expressions, caller_namespace)),
    )


def _wishes_of(
    subscription: v2.Subscription, expressions: CompiledExpressions, caller_namespace: str
) -> Iterator[tuple[str, Wish]]:
    for each in subscription.subscriptions:
        topic = stored_topic(each.topic, caller_namespace)
        # A client that is refused here tells its application nothing but that it did not start. Its
        # polls are refused with the code.
        with suppress(refusals.Refused):
            yield topic, wish_of(each.expression, expressions)


def answered(
    settings: v2.Settings,
    group: GroupRules,
    traits: Traits,
    *,
    sending: SendLimits,
    polling: PollLimits,
) -> v2.Settings:
    """What the client is told. `settings` have passed `registration_of`; `group` is the consumer's,
    with its defaults if it does not exist yet."""
    answer = v2.Settings()
    answer.CopyFrom(settings)
    answer.metric.CopyFrom(v2.Metric(on=False))
    if answer.WhichOneof("pub_sub") == "publishing":
        answer.backoff_policy.CopyFrom(_producer_policy())
        answer.publishing.max_body_size = sending.body_bytes_max
        answer.publishing.validate_message_type = True
        return answer
    answer.backoff_policy.CopyFrom(policy_of(group.delays, group.attempts_max, traits.delays))
    subscription = answer.subscription
    subscription.fifo = group.is_ordered
    subscription.receive_batch_size = polling.batch_max
    subscription.long_polling_timeout.CopyFrom(duration(polling.polling_ms_max))
    return answer


def settings_command(settings: v2.Settings) -> service_pb2.TelemetryCommand:
    """What is written to the client's stream: some clients ignore settings without a status."""
    return service_pb2.TelemetryCommand(status=OK, settings=settings)


def _producer_policy() -> v2.RetryPolicy:
    policy = v2.RetryPolicy(max_attempts=_PRODUCER_ATTEMPTS_MAX)
    backoff = policy.exponential_backoff
    backoff.initial.CopyFrom(duration(_PRODUCER_DELAYS.initial_ms))
    backoff.max.CopyFrom(duration(_PRODUCER_DELAYS.max_ms))
    backoff.multiplier = _PRODUCER_DELAYS.multiplier
    return policy


def _check_client_properties(properties: Mapping[str, str]) -> None:
    if len(properties) > PROPERTIES_MAX:
        raise _properties_invalid(f"{len(properties)} of them, at most {PROPERTIES_MAX} can be")
    size = 0
    for name, value in properties.items():
        size += len(name.encode()) + len(value.encode())
        if _PROPERTY_NAME.fullmatch(name) is None:
            raise _properties_invalid(
                f"{name[:40]!r} must begin with a letter and have at most 64 letters, digits, "
                "'_', '.' and '-'"
            )
        if name.startswith(_RESERVED_PREFIX):
            raise _properties_invalid(f"names that begin with {_RESERVED_PREFIX} are reserved")
        if len(value) > _PROPERTY_VALUE_LENGTH_MAX:
            raise _properties_invalid(
                f"the value of {name} has {len(value)} characters, at most "
                f"{_PROPERTY_VALUE_LENGTH_MAX} are allowed"
            )
    if size > PROPERTIES_BYTES_MAX:
        raise _properties_invalid(f"{size} bytes in all, at most {PROPERTIES_BYTES_MAX} can be")


def _properties_invalid(reason: str) -> Refused:
    return Refused(v2.INVALID_CLIENT_PROPERTIES, f"the client's properties are illegal: {reason}")
