"""What clients say of themselves, and what each is told: without it most of them hang or fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aerobee.domain.sql_filter.expression import CompiledExpressions, SqlExpression
from aerobee.rocketmq_api.clients.languages import Traits, language_of, traits_of
from aerobee.rocketmq_api.clients.settings import (
    Registration,
    answered,
    registration_of,
    settings_command,
)
from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.receiving.filters import wish_of
from aerobee.rocketmq_api.rules.group_rules import GroupRules
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.rules.refusals import Refused
from aerobee.rocketmq_api.times import duration, milliseconds
from aerobee.store.format.retry_delays import Exponential
from apache.rocketmq.v2 import definition_pb2 as v2

ORDERS = v2.Resource(resource_namespace="shop", name="orders")
BILLING = v2.Resource(resource_namespace="shop", name="billing")


def registered(settings: v2.Settings, namespace: str = "") -> Registration:
    return registration_of(settings, CompiledExpressions(), namespace)


def producer(*topics: v2.Resource) -> v2.Settings:
    return v2.Settings(
        client_type=v2.PRODUCER,
        access_point=v2.Endpoints(
            scheme=v2.IPv4, addresses=[v2.Address(host="10.0.0.1", port=8081)]
        ),
        request_timeout=duration(3_000),
        user_agent=v2.UA(language=v2.JAVA, version="5.0.8"),
        publishing=v2.Publishing(topics=topics or [ORDERS]),
    )


def consumer(
    kind: v2.ClientType = v2.PUSH_CONSUMER,
    expression: str = "a||b",
    filter_type: v2.FilterType = v2.TAG,
) -> v2.Settings:
    return v2.Settings(
        client_type=kind,
        request_timeout=duration(3_000),
        user_agent=v2.UA(language=v2.PYTHON, version="5.1.2"),
        subscription=v2.Subscription(
            group=BILLING,
            subscriptions=[
                v2.SubscriptionEntry(
                    topic=ORDERS,
                    expression=v2.FilterExpression(type=filter_type, expression=expression),
                )
            ],
        ),
    )


def answer(
    settings: v2.Settings, *, group: GroupRules | None = None, traits: Traits | None = None
) -> v2.Settings:
    return answered(
        settings,
        group or GroupRules(),
        traits or Traits(),
        sending=SendLimits(),
        polling=PollLimits(),
    )


def test_a_producer_is_told_what_it_cannot_live_without() -> None:
    told = answer(producer())
    assert told.publishing.max_body_size == 4_194_304
    assert told.publishing.validate_message_type
    assert told.backoff_policy == v2.RetryPolicy(
        max_attempts=3,
        exponential_backoff=v2.ExponentialBackoff(
            initial=duration(10), max=duration(1_000), multiplier=2
        ),
    )
    assert told.HasField("metric")
    assert not told.metric.on


@pytest.mark.parametrize("kind", [v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER, v2.PULL_CONSUMER])
def test_a_consumer_is_told_what_it_cannot_live_without(kind: v2.ClientType) -> None:
    told = answer(consumer(kind))
    assert not told.subscription.fifo
    assert told.subscription.receive_batch_size == 32
    assert milliseconds(told.subscription.long_polling_timeout) == 20_000
    assert told.backoff_policy.max_attempts == 17
    assert len(told.backoff_policy.customized_backoff.next) == 18


def test_the_groups_rules_win_over_what_the_client_believes() -> None:
    sent = consumer()
    sent.subscription.fifo = False
    sent.backoff_policy.exponential_backoff.multiplier = 9
    told = answer(sent, group=GroupRules(is_ordered=True, retries_max=1))
    assert told.subscription.fifo
    assert told.backoff_policy.max_attempts == 2
    assert told.backoff_policy.WhichOneof("strategy") == "customized_backoff"


@pytest.mark.parametrize("sent", [producer(), consumer()])
def test_everything_else_is_echoed(sent: v2.Settings) -> None:
    """Namespaces, too: the client for C++ takes on one that differs."""
    told = answer(sent)
    assert told is not sent
    for name in ("backoff_policy", "metric"):
        told.ClearField(name)
    if told.HasField("publishing"):
        told.publishing.ClearField("max_body_size")
        told.publishing.ClearField("validate_message_type")
    else:
        for name in ("fifo", "receive_batch_size", "long_polling_timeout"):
            told.subscription.ClearField(name)
    assert told == sent


def test_settings_are_written_together_with_a_status() -> None:
    command = settings_command(answer(producer()))
    assert (command.status.code, command.status.message) == (v2.OK, "OK")
    assert command.WhichOneof("command") == "settings"
    assert command.settings == answer(producer())


def test_python_gets_a_list_of_whole_seconds_whatever_the_group_has() -> None:
    traits = traits_of(v2.PYTHON, "5.1.2")
    group = GroupRules(delays=Exponential(initial_ms=2_500), retries_max=2)
    policy = answer(consumer(), group=group, traits=traits).backoff_policy
    assert [each.seconds for each in policy.customized_backoff.next] == [3, 5, 10]


@pytest.mark.parametrize(
    ("version", "seconds"),
    [
        ("1.0.8", 1_000),
        ("1.0.7", 1_000),
        ("", 1_000),
        ("1.0.9", 1),
        ("1.1.0-beta", 1),
        ("2.0.0", 1),
    ],
)
def test_node_gets_growing_delays_in_the_unit_that_it_takes_them_for(
    version: str, seconds: int
) -> None:
    traits = traits_of(v2.NODE_JS, version)
    backoff = answer(consumer(), traits=traits).backoff_policy.exponential_backoff
    assert backoff.initial.seconds == seconds
    assert traits.settings_again_ms == 1_500


def test_only_cpp_needs_plain_bodies() -> None:
    others = (v2.JAVA, v2.DOT_NET, v2.GOLANG, v2.RUST, v2.PYTHON, v2.PHP, v2.NODE_JS)
    assert not any(traits_of(each, "").needs_plain_body for each in others)
    assert traits_of(v2.CPP, "").needs_plain_body


def test_rust_is_told_no_code_that_ends_it() -> None:
    assert traits_of(v2.RUST, "5.0.0").lacks_body_empty
    assert not traits_of(v2.RUST, "5.0.1").lacks_body_empty
    assert not traits_of(v2.JAVA, "5.0.0").lacks_body_empty


@pytest.mark.parametrize(
    ("header", "language"),
    [
        *(("JAVA", v2.JAVA), ("GO", v2.GOLANG), ("PYTHON", v2.PYTHON), ("CPP", v2.CPP)),
        *(("DOTNET", v2.DOT_NET), ("RUST", v2.RUST), ("HTTP", v2.NODE_JS), ("php", v2.PHP)),
        *(("", v2.LANGUAGE_UNSPECIFIED), ("COBOL", v2.LANGUAGE_UNSPECIFIED)),
    ],
)
def test_the_metadata_tell_the_language(header: str, language: v2.Language) -> None:
    assert language_of(header) == language


def test_without_metadata_the_settings_tell_the_language() -> None:
    assert language_of("", v2.UA(language=v2.NODE_JS)) == v2.NODE_JS


def test_a_producer_is_registered_for_its_topics() -> None:
    payments = v2.Resource(name="payments")
    registration = registered(producer(ORDERS, payments, ORDERS))
    assert registration.client_type == v2.PRODUCER
    assert registration.topics == ("shop%orders", "payments")
    assert registered(v2.Settings(publishing=v2.Publishing())).topics == ()


def test_a_consumer_is_registered_with_its_group_and_tags() -> None:
    registration = registered(consumer(v2.SIMPLE_CONSUMER))
    assert registration.client_type == v2.SIMPLE_CONSUMER
    assert registration.group == "shop%billing"
    assert registration.subscriptions == {"shop%orders": ("a", "b")}
    by_sql = registered(consumer(expression="a > 5", filter_type=v2.SQL))
    assert by_sql.subscriptions == {"shop%orders": SqlExpression("a > 5")}


def test_a_client_whose_resources_have_no_namespace_has_the_one_of_its_metadata() -> None:
    sent = producer(v2.Resource(name="orders"))
    assert registered(sent, "shop").topics == ("shop%orders",)


def changed(change: Callable[[v2.Settings], object], sent: v2.Settings) -> v2.Settings:
    change(sent)
    return sent


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (v2.Settings(), v2.UNRECOGNIZED_CLIENT_TYPE),
        (v2.Settings(client_type=v2.PRODUCER), v2.UNRECOGNIZED_CLIENT_TYPE),
        (consumer(v2.PRODUCER), v2.UNRECOGNIZED_CLIENT_TYPE),
        (
            v2.Settings(client_type=v2.PUSH_CONSUMER, publishing=v2.Publishing()),
            v2.UNRECOGNIZED_CLIENT_TYPE,
        ),
        (consumer(v2.LITE_PUSH_CONSUMER), v2.NOT_IMPLEMENTED),
        (consumer(v2.LITE_SIMPLE_CONSUMER), v2.NOT_IMPLEMENTED),
        (producer(v2.Resource(name="a b")), v2.ILLEGAL_TOPIC),
        (
            changed(lambda sent: sent.subscription.group.Clear(), consumer()),
            v2.ILLEGAL_CONSUMER_GROUP,
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_code(
    sent: v2.Settings, code: v2.Code
) -> None:
    with pytest.raises(Refused) as refused:
        registered(sent)
    assert status_of(refused.value).code == code


@pytest.mark.parametrize(
    "sent", [consumer(expression="||"), consumer(expression="a >", filter_type=v2.SQL)]
)
def test_a_consumer_with_an_unreadable_filter_starts_and_hears_the_code_when_it_polls(
    sent: v2.Settings,
) -> None:
    registration = registered(sent)
    assert registration.group == "shop%billing"
    assert registration.subscriptions == {}
    with pytest.raises(Refused) as refused:
        wish_of(sent.subscription.subscriptions[0].expression, CompiledExpressions())
    assert status_of(refused.value).code == v2.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.parametrize(
    ("properties", "is_legal"),
    [
        ({}, True),
        ({"a": ""}, True),
        ({"A" + "x" * 63: "v" * 256}, True),
        ({"a_b.c-9": "订单"}, True),
        ({f"k{number}": "" for number in range(32)}, True),
        ({f"k{number}": "" for number in range(33)}, False),
        ({"A" + "x" * 64: ""}, False),
        ({"9": ""}, False),
        ({"": ""}, False),
        ({"a": "v" * 257}, False),
        ({"rocketmq.x": "1"}, False),
        ({f"k{number:02}": "v" * 253 for number in range(16)}, True),
        ({f"k{number:02}": "v" * (253 + (number == 0)) for number in range(16)}, False),
    ],
)
def test_a_clients_properties_have_limits(properties: dict[str, str], is_legal: bool) -> None:
    sent = producer()
    sent.client_properties.update(properties)
    if is_legal:
        registered(sent)
        return
    with pytest.raises(Refused) as refused:
        registered(sent)
    assert status_of(refused.value).code == v2.INVALID_CLIENT_PROPERTIES
