"""Names of topics and groups, with and without a namespace."""

from __future__ import annotations

import pytest

from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.resources import stored_group, stored_topic
from aerobee.rocketmq_api.rules.refusals import Refused
from apache.rocketmq.v2 import definition_pb2 as v2


def resource(name: str, namespace: str = "") -> v2.Resource:
    return v2.Resource(resource_namespace=namespace, name=name)


def test_without_a_namespace_the_name_is_stored() -> None:
    assert stored_topic(resource("orders")) == "orders"
    assert stored_group(resource("billing")) == "billing"


def test_a_namespace_keeps_equal_names_apart() -> None:
    assert stored_topic(resource("orders", "shop")) == "shop%orders"
    assert stored_group(resource("billing", "shop")) == "shop%billing"


def test_a_namespaces_dead_letters_are_those_of_its_group() -> None:
    group = stored_group(resource("billing", "shop"))
    assert stored_topic(resource("%DLQ%billing", "shop")) == f"%DLQ%{group}"
    assert stored_topic(resource("%RETRY%billing", "shop")) == f"%RETRY%{group}"
    assert stored_topic(resource("%DLQ%billing")) == "%DLQ%billing"


def test_a_namespace_that_is_only_in_the_metadata_counts_where_the_resource_has_none() -> None:
    assert stored_topic(resource("orders"), "shop") == "shop%orders"
    assert stored_group(resource("billing", "own"), "shop") == "own%billing"


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "a b", "a/b", "a.b", "订单", "a\n", "x" * 128),
        *("TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"),
        *("AEROBEE_OFFSET_JOURNAL", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ],
)
@pytest.mark.parametrize("namespace", ["", "shop"])
def test_an_illegal_topic_is_refused(name: str, namespace: str) -> None:
    with pytest.raises(Refused) as refused:
        stored_topic(resource(name, namespace))
    assert status_of(refused.value).code == v2.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["", " ", "a b", "a.b", "x" * 121, "CID_RMQ_SYS_TRANS"])
@pytest.mark.parametrize("namespace", ["", "shop"])
def test_an_illegal_group_is_refused(name: str, namespace: str) -> None:
    with pytest.raises(Refused) as refused:
        stored_group(resource(name, namespace))
    assert status_of(refused.value).code == v2.ILLEGAL_CONSUMER_GROUP


def test_the_longest_names_are_taken() -> None:
    assert len(stored_topic(resource("x" * 127))) == 127
    assert len(stored_group(resource("x" * 120))) == 120


@pytest.mark.parametrize("namespace", ["a%b", " ", "a|b", "x" * 65, "\n"])
def test_an_illegal_namespace_is_refused_by_the_code_of_what_it_belongs_to(namespace: str) -> None:
    """With a `%` in it, one stored name could belong to two namespaces."""
    with pytest.raises(Refused) as refused:
        stored_topic(resource("orders", namespace))
    assert status_of(refused.value).code == v2.ILLEGAL_TOPIC
    with pytest.raises(Refused) as refused:
        stored_group(resource("billing", namespace))
    assert status_of(refused.value).code == v2.ILLEGAL_CONSUMER_GROUP
