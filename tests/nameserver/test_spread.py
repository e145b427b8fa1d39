"""Topics get queues on new broker groups and are retired from old ones; other keys do not move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.cluster_view.route import MessageQueue, TopicRoute
from aerobee.nameserver.convert import topic_config
from aerobee.nameserver.key_values import KeyValue
from aerobee.nameserver.placement import leveled, with_queues, without_keys_on
from aerobee.nameserver.stored import Keys, Topic, encode_topic
from aerobee.v1 import nameserver_pb2 as pb

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


def seen(topic: Topic) -> TopicRoute:
    """As a client sees it."""
    closed = sorted(topic.retired.keys() & topic.queues_by_broker.keys())
    return TopicRoute.from_proto(pb.TopicRoute(topic=topic_config(topic), closed=closed))


@given(
    st.dictionaries(NAMES, st.integers(1, 5), min_size=1),
    st.lists(NAMES, min_size=1, max_size=3, unique=True),
)
def test_a_retired_queues_keys_move_together_to_a_new_queue_and_others_stay(
    counts: Mapping[str, int], retired: list[str]
) -> None:
    topic = Topic("t", queues_by_broker=counts)
    for name in retired:
        if name not in topic.queues_by_broker:
            continue
        left = [each for each in ["a", "b", "c", "d", "e", "f"] if each not in topic.retired]
        before = seen(topic)
        topic = without_keys_on(topic, [name], [each for each in left if each != name])
        after = seen(topic)
        assert len(after.open_queues) == len(before.open_queues)
        for old, new in zip(before.open_queues, after.open_queues, strict=True):
            if old.broker_name == name:
                assert after.successors[old] == new
                assert new not in before.queues
                assert new in after.queues
            else:
                assert new == old
        assert len(set(after.open_queues)) == len(after.open_queues)
        restored = Keys("c").decode(KeyValue(Keys("c").topic("t"), encode_topic(topic), 0))
        assert restored == topic


def test_queues_that_are_added_later_come_last() -> None:
    topic = without_keys_on(Topic("t", queues_by_broker={"a": 2, "b": 1}), ["a"], ["b", "c"])
    before = seen(topic).open_queues
    grown = with_queues(topic, {**topic.queues_by_broker, "b": 5})
    assert seen(grown).open_queues[: len(before)] == before
    assert set(seen(grown).open_queues) == {q for q in seen(grown).queues if q.broker_name != "a"}


def test_a_topic_is_leveled_up_to_the_group_that_has_most_and_not_beyond_the_maximum() -> None:
    topic = Topic("t", queues_by_broker={"a": 4, "b": 2})
    assert leveled(topic, ["a", "b", "c"], queues_max=100) == {"a": 4, "b": 4, "c": 4}
    assert leveled(topic, ["a", "b", "c"], queues_max=9) == {"a": 4, "b": 2, "c": 3}
    assert leveled(topic, ["a", "b"], queues_max=3) == {"a": 4, "b": 2}
    retired = without_keys_on(topic, ["a"], ["c"])
    assert leveled(retired, ["b", "c"], queues_max=100) == {"a": 4, "b": 4, "c": 4}


@pytest.fixture
async def two(shared_etcd: Any, start_nameserver: Any, make_replica: Any) -> tuple[Any, Any, Any]:
    """A nameserver, a broker group with topic `t` of two queues, and a second one without."""
    server = await start_nameserver(shared_etcd.endpoint)
    a = make_replica(0, "a1", lease_ms=30_000)
    b = make_replica(0, "b1", name="broker-b", address="127.0.0.1:7", lease_ms=30_000)
    await a.connect(server)
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="t", queues=2))
    await b.connect(server)
    return server, a, b


async def spread(server: Any, *retire: str, preview: bool = False) -> pb.SpreadTopicResponse:
    return await server.stub.SpreadTopic(  # type: ignore[no-any-return]
        pb.SpreadTopicRequest(name="t", retire=retire, preview=preview)
    )


async def route(server: Any) -> TopicRoute:
    answer = await server.stub.QueryRoute(pb.QueryRouteRequest(topics=["t"]))
    return TopicRoute.from_proto(answer.routes[0])


async def test_a_preview_changes_nothing(two: tuple[Any, Any, Any]) -> None:
    server, _, _ = two
    planned = await spread(server, preview=True)
    assert dict(planned.before.queues_by_broker) == {"broker-a": 2}
    assert dict(planned.after.queues_by_broker) == {"broker-a": 2, "broker-b": 2}
    assert (await route(server)).queues_by_broker == {"broker-a": 2}
    await spread(server)
    assert (await route(server)).queues_by_broker == {"broker-a": 2, "broker-b": 2}
    again = await spread(server)
    assert again.before == again.after


async def test_a_topic_leaves_a_group_and_gets_no_queues_there_again(
    two: tuple[Any, Any, Any],
) -> None:
    server, a, _ = two
    done = await spread(server, "broker-a")
    assert dict(done.after.queues_by_broker) == {"broker-a": 2, "broker-b": 2}
    shown = await route(server)
    assert shown.closed == {"broker-a"}
    assert shown.open_queues == (MessageQueue("t", "broker-b", 0), MessageQueue("t", "broker-b", 1))
    assert (await spread(server, "broker-a")).after == done.after  # repeated
    # Its broker was told, which refuses new messages from then on.
    told = [topic.retired for directive in a.directives for topic in directive.topics]
    assert [each.broker_name for each in told[-1]] == ["broker-a"]

    with pytest.raises(grpc.aio.AioRpcError, match="not retired from broker-b"):
        await server.stub.RemoveRetired(pb.RemoveRetiredRequest(name="t", broker_name="broker-b"))
    await server.stub.RemoveRetired(pb.RemoveRetiredRequest(name="t", broker_name="broker-a"))
    left = await route(server)
    assert left.queues_by_broker == {"broker-b": 2}
    assert left.open_queues == shown.open_queues
    assert not left.successors
    grown = await server.stub.UpdateTopic(pb.UpdateTopicRequest(name="t", queues=5))
    assert dict(grown.queues_by_broker) == {"broker-b": 5}
    assert (await route(server)).open_queues[:2] == shown.open_queues


async def test_a_topic_does_not_leave_where_it_has_no_queues_or_every_group(
    two: tuple[Any, Any, Any],
) -> None:
    server, _, _ = two
    with pytest.raises(grpc.aio.AioRpcError, match="has no queues on broker-b"):
        await spread(server, "broker-b")
    await spread(server)
    with pytest.raises(grpc.aio.AioRpcError, match="no open broker group other than those"):
        await spread(server, "broker-a", "broker-b")


async def test_a_group_is_not_closed_if_a_topic_was_retired_from_all_others(
    two: tuple[Any, Any, Any],
) -> None:
    server, _, _ = two
    await spread(server, "broker-a")
    with pytest.raises(grpc.aio.AioRpcError, match="t would have no queue that takes messages"):
        await server.stub.CloseBrokerGroup(pb.CloseBrokerGroupRequest(broker_name="broker-b"))
