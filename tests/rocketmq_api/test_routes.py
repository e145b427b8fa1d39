"""A topic's queues as clients are told them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aerobee.cluster_view.route import PERM_READ, PERM_WRITE, Endpoint, MessageQueue, TopicRoute
from aerobee.rocketmq_api.codes import status_of
from aerobee.rocketmq_api.routes.endpoints import endpoints_of
from aerobee.rocketmq_api.routes.message_queues import assignments, message_queues
from aerobee.rocketmq_api.services import placing
from aerobee.runtime.errors import AerobeeError, NoBrokerAvailable, NotReadableTopic
from apache.rocketmq.v2 import definition_pb2 as v2

TOPIC = v2.Resource(resource_namespace="shop", name="orders")
A0 = Endpoint("broker-a", 0, "10.0.0.1:10911", is_master=False, epoch=2)
A1 = Endpoint("broker-a", 1, "10.0.0.2:10911", is_master=True, epoch=2)
B0 = Endpoint("broker-b", 0, "10.0.0.3:10911", is_master=True, writable=False)


def route(
    *endpoints: Endpoint,
    perm: int = PERM_READ | PERM_WRITE,
    queues: dict[str, int] | None = None,
    kind: str = "",
) -> TopicRoute:
    return TopicRoute(
        topic="shop%orders",
        perm=perm,
        is_ordered=False,
        attributes={"message.type": kind} if kind else {},
        queues_by_broker=queues or {"broker-a": 2, "broker-b": 1},
        endpoints=endpoints or (A0, A1, B0),
    )


def places(queues: list[v2.MessageQueue]) -> list[tuple[str, int, str]]:
    return [
        (queue.broker.name, queue.id, queue.broker.endpoints.addresses[0].host) for queue in queues
    ]


def test_every_queue_is_told_with_the_master_that_serves_it() -> None:
    queues = message_queues(route(), TOPIC)
    assert places(queues) == [
        ("broker-a", 0, "10.0.0.2"),
        ("broker-a", 1, "10.0.0.2"),
        ("broker-b", 0, "10.0.0.3"),
    ]
    for queue in queues:
        # Whatever replica the master is: clients take another id for a slave's.
        assert queue.broker.id == 0
        assert queue.topic == TOPIC
        assert queue.permission == v2.READ_WRITE
        assert queue.accept_message_types == [v2.NORMAL]
        assert len(queue.broker.endpoints.addresses) == 1


def test_every_broker_has_a_queue_0_to_read_and_write() -> None:
    """The client for Node knows no other, and a broker that takes no writes now keeps its own."""
    queues = [queue for queue in message_queues(route(), TOPIC) if queue.id == 0]
    assert [queue.broker.name for queue in queues] == ["broker-a", "broker-b"]
    assert {queue.permission for queue in queues} == {v2.READ_WRITE}


def test_queues_of_a_closed_broker_group_are_there_to_read_only() -> None:
    closed = replace(route(), closed=frozenset({"broker-a"}))
    told = {each.broker.name: each.permission for each in message_queues(closed, TOPIC)}
    assert told == {"broker-a": v2.READ, "broker-b": v2.READ_WRITE}
    only_written = replace(route(perm=PERM_WRITE), closed=frozenset({"broker-a"}))
    assert {each.broker.name for each in message_queues(only_written, TOPIC)} == {"broker-b"}
    assert len(assignments(closed, TOPIC, is_ordered=True)) == 3


def test_an_ordered_group_does_not_poll_a_queue_whose_predecessor_it_has_not_finished() -> None:
    waiting = {MessageQueue("shop%orders", "broker-b", 0)}
    polled = assignments(route(), TOPIC, is_ordered=True, waiting=waiting)
    everything = assignments(route(), TOPIC, is_ordered=True)
    assert [each for each in everything if each not in polled] == [
        each
        for each in everything
        if (each.message_queue.broker.name, each.message_queue.id) == ("broker-b", 0)
    ]
    assert len(polled) == len(everything) - 1


def test_messages_go_to_open_broker_groups() -> None:
    b0 = replace(B0, writable=True)
    closed = replace(route(A1, b0), closed=frozenset({"broker-a"}))
    grouped = v2.Message(system_properties=v2.SystemProperties(message_group="g"))
    for turn in range(3):
        placed = placing.places([v2.Message(), grouped], closed, here="broker-a", turn=turn)
        assert placed == {"broker-b": [(0, 0), (1, 0)]}


def test_the_order_does_not_depend_on_the_node_that_answers() -> None:
    other = route(B0, A1, A0, queues={"broker-b": 1, "broker-a": 2})
    assert message_queues(other, TOPIC) == message_queues(route(), TOPIC)


@pytest.mark.parametrize(
    ("perm", "permission"), [(PERM_READ, v2.READ), (PERM_WRITE, v2.WRITE), (7, v2.READ_WRITE)]
)
def test_the_permission_is_the_topics(perm: int, permission: v2.Permission) -> None:
    assert {queue.permission for queue in message_queues(route(perm=perm), TOPIC)} == {permission}


def test_a_topic_that_allows_nothing_has_no_queues() -> None:
    assert message_queues(route(perm=0), TOPIC) == []


def test_the_topics_type_says_what_it_takes() -> None:
    for queue in message_queues(route(kind="MIXED"), TOPIC):
        assert queue.accept_message_types == [v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION]


def test_a_broker_without_a_master_has_no_queues_to_tell() -> None:
    assert places(message_queues(route(A0, B0), TOPIC)) == [("broker-b", 0, "10.0.0.3")]


def test_without_any_master_the_client_is_to_keep_what_it_knows() -> None:
    for ask in (
        lambda: message_queues(route(A0), TOPIC),
        lambda: assignments(route(A0), TOPIC, is_ordered=False),
    ):
        with pytest.raises(NoBrokerAvailable) as refused:
            ask()
        assert status_of(refused.value).code == v2.INTERNAL_SERVER_ERROR


def test_a_consumer_polls_each_broker_once() -> None:
    told = [each.message_queue for each in assignments(route(), TOPIC, is_ordered=False)]
    assert places(told) == [("broker-a", -1, "10.0.0.2"), ("broker-b", -1, "10.0.0.3")]
    assert not any(queue.accept_message_types for queue in told)
    assert {queue.permission for queue in told} == {v2.READ_WRITE}


def test_a_consumer_of_a_group_in_order_polls_each_queue() -> None:
    told = [each.message_queue for each in assignments(route(), TOPIC, is_ordered=True)]
    assert places(told) == places(message_queues(route(), TOPIC))


def test_a_topic_that_nobody_may_read_is_assigned_to_nobody() -> None:
    for perm in (0, PERM_WRITE):
        with pytest.raises(NotReadableTopic, match="no readable queue") as refused:
            assignments(route(perm=perm), TOPIC, is_ordered=False)
        error: AerobeeError = refused.value
        assert status_of(error).code == v2.FORBIDDEN


@pytest.mark.parametrize(
    ("address", "scheme", "host", "port"),
    [
        ("10.0.0.1:10911", v2.IPv4, "10.0.0.1", 10911),
        ("[::1]:8081", v2.IPv6, "::1", 8081),
        ("mq-1.example:1", v2.DOMAIN_NAME, "mq-1.example", 1),
        ("localhost:65535", v2.DOMAIN_NAME, "localhost", 65535),
    ],
)
def test_an_address_says_of_which_kind_it_is(
    address: str, scheme: v2.AddressScheme, host: str, port: int
) -> None:
    assert endpoints_of(address) == v2.Endpoints(
        scheme=scheme, addresses=[v2.Address(host=host, port=port)]
    )
