"""Topics: creation and its races, changes, deletion, routes, and how brokers hear of it all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import grpc
import pytest

from aerobee.nameserver.etcd import Etcd
from aerobee.nameserver.key_values import KeyValue, Put
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import BrokerKey, Keys
from aerobee.rpc.own_protocol import CODE_METADATA_KEY
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb
from tests.support.waiting import until


async def code_of(call: Any) -> int:
    """The Aerobee code with which a call fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return int(str(dict(caught.value.trailing_metadata() or ())[CODE_METADATA_KEY]))


async def until_known(server: Any, brokers: int) -> None:
    """Until the nameserver knows so many."""

    async def are_known() -> bool:
        cluster = await server.stub.DescribeCluster(pb.DescribeClusterRequest())
        return len(cluster.brokers) == brokers

    await until(are_known)


@pytest.fixture
async def server(shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any) -> Any:
    """A nameserver with the broker groups broker-a and broker-b."""
    server = await start_nameserver(shared_etcd.endpoint)
    server.brokers = [make_broker("broker-a"), make_broker("broker-b")]
    for broker in server.brokers:
        await running(broker, server)
    await until_known(server, 2)
    return server


async def test_a_topic_is_spread_evenly_and_its_route_names_live_brokers(server: Any) -> None:
    topic = await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=7))
    assert sorted(topic.queues_by_broker.values()) == [3, 4]
    assert (topic.perm, topic.order) == (6, False)
    answer = await server.stub.QueryRoute(pb.QueryRouteRequest(topics=["orders", "nowhere"]))
    orders, nowhere = answer.routes
    assert orders.topic == topic
    assert [b.identity.broker_name for b in orders.brokers] == ["broker-a", "broker-b"]
    assert answer.version >= topic.revision
    assert not answer.stale
    assert nowhere.status.code == common_pb2.TOPIC_NOT_FOUND
    assert "nowhere" in nowhere.status.message


async def test_retry_topics_are_in_every_replica_set_and_in_no_list(server: Any) -> None:
    """Brokers make them when they need them: nobody creates them, and no list is long by them."""
    names = ["%RETRY%billing", "%DLQ%billing", "%RETRY%a/b"]
    request = pb.QueryRouteRequest(topics=names, create_missing=True)
    answer = await server.stub.QueryRoute(request)
    for route, name in zip(answer.routes, names[:2], strict=False):
        assert route.topic.name == name
        assert dict(route.topic.queues_by_broker) == {"broker-a": 1, "broker-b": 1}
        assert [each.identity.broker_name for each in route.brokers] == ["broker-a", "broker-b"]
    assert answer.routes[2].status.code == common_pb2.ILLEGAL_NAME
    listed = await server.stub.ListTopics(pb.ListTopicsRequest())
    assert list(listed.topics) == []


async def test_the_default_is_four_queues_on_each_group(server: Any) -> None:
    topic = await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders"))
    assert dict(topic.queues_by_broker) == {"broker-a": 4, "broker-b": 4}


async def test_a_topic_can_have_queues_on_chosen_groups_only(server: Any) -> None:
    async def change(**chosen: int) -> dict[str, int]:
        request = pb.UpdateTopicRequest(name="orders")
        request.queues_by_broker.update({f"broker-{name}": n for name, n in chosen.items()})
        return dict((await server.stub.UpdateTopic(request)).queues_by_broker)

    async def is_refused(change: Awaitable[Any], why: str) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match=why):
            await change

    request = pb.CreateTopicRequest(name="orders", queues=7)
    request.queues_by_broker["broker-b"] = 3
    topic = await server.stub.CreateTopic(request)
    assert dict(topic.queues_by_broker) == {"broker-b": 3}
    assert await change(a=2) == {"broker-a": 2, "broker-b": 3}
    assert await change(a=2, b=4) == {"broker-a": 2, "broker-b": 4}
    await is_refused(change(b=3), "has 4 queues on broker group broker-b and cannot have 3")
    await is_refused(change(a=1_000_000), "a topic has 1 to")
    await is_refused(change(nowhere=1), "none that is open and has a master")
    await server.stub.SpreadTopic(pb.SpreadTopicRequest(name="orders", retire=["broker-a"]))
    await is_refused(change(a=3), "was retired from broker group broker-a")
    request = pb.CreateTopicRequest(name="others")
    request.queues_by_broker["broker-a"] = 0
    await is_refused(server.stub.CreateTopic(request), "cannot have 0")


async def test_brokers_have_heard_of_a_topic_when_its_creation_is_answered(server: Any) -> None:
    topic = await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=2))
    for broker in server.brokers:
        assert broker.metadata_revision >= topic.revision
        assert [t.name for d in broker.directives for t in d.topics] == ["orders"]


async def test_brokers_hear_of_a_deletion_and_a_late_broker_of_everything(
    server: Any, make_broker: Any, running: Any
) -> None:
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=2))
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="kept", queues=2))
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    heard = [(t.name, t.deleted) for d in server.brokers[0].directives for t in d.topics]
    assert heard == [("orders", False), ("kept", False), ("orders", True)]
    late = make_broker("broker-c")
    await running(late, server)
    assert late.directives[0].topics_complete
    told = {t.name: t for t in late.directives[0].topics}
    assert {name: topic.deleted for name, topic in told.items()} == {"kept": False, "orders": True}
    assert told["orders"].deleted_at > 0 == told["kept"].deleted_at
    answer = await server.stub.QueryRoute(pb.QueryRouteRequest(topics=["orders"]))
    assert answer.routes[0].status.code == common_pb2.TOPIC_NOT_FOUND


async def test_whoever_hears_of_a_topic_hears_when_one_of_its_name_was_deleted(
    server: Any, make_broker: Any, running: Any
) -> None:
    """A broker that was away for deletion and creation must know that it is another topic."""
    deleted_at = []
    for _ in range(2):
        await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=2))
        await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
        told = last_told(server.brokers[0])
        assert told.deleted
        deleted_at.append(told.deleted_at)
    assert 0 < deleted_at[0] < deleted_at[1]
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=2))
    late = make_broker("broker-c")
    await running(late, server)
    for told in (last_told(late), last_told(server.brokers[0])):
        assert (told.name, told.deleted, told.deleted_at) == ("orders", False, deleted_at[1])


async def test_a_broker_that_served_another_etcd_is_told_everything_and_then_each_change(
    server: Any, make_broker: Any, running: Any
) -> None:
    """An etcd that was emptied counts from 1 again: its revisions are not those of the former."""
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="kept", queues=2))
    late = make_broker("broker-c", metadata_revision=10**9, metadata_history="former")
    await running(late, server)
    first = late.directives[0]
    assert (first.topics_complete, [t.name for t in first.topics]) == (True, ["kept"])
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    assert (last_told(late).name, last_told(late).deleted) == ("orders", True)
    assert late.metadata_history == server.brokers[0].metadata_history != ""
    assert sum(d.topics_complete for d in late.directives) == 1, "and nothing more often than once"


async def test_a_deleted_topic_is_created_again_once_every_live_master_knows_of_the_deletion(
    server: Any, shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    """One that does not, connected anywhere, would end what it acknowledged for the new topic."""
    other = await start_nameserver(shared_etcd.endpoint)
    slow = make_broker("broker-c")
    await running(slow, other)
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
    slow.stores_topics = False
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    again = pb.CreateTopicRequest(name="orders", queues=3)
    with pytest.raises(grpc.aio.AioRpcError, match="broker-c/0 has not learned of it yet"):
        await server.stub.CreateTopic(again)
    missing = pb.QueryRouteRequest(topics=["orders"], create_missing=True)
    answer = await server.stub.QueryRoute(missing)
    assert answer.routes[0].status.code == common_pb2.BUSY
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="another", queues=3))
    slow.stores_topics = True
    await server.stub.CreateTopic(again)


async def test_a_creation_is_one_call_of_etcd_also_of_a_name_that_was_deleted(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = Etcd.get

    async def noted(etcd: Etcd, key: str) -> KeyValue | None:
        asked.append(key)
        return await get(etcd, key)

    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    monkeypatch.setattr(Etcd, "get", noted)
    for name in ("orders", "bills"):
        await server.stub.CreateTopic(pb.CreateTopicRequest(name=name, queues=3))
    assert asked == []


async def test_a_deletion_that_the_routes_do_not_show_yet_is_read_from_etcd(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    deletions = property(lambda table: {}, lambda table, value: None)
    with monkeypatch.context() as late:
        late.setattr(RouteTable, "deletions", deletions)
        await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
        again = server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
        assert await code_of(again) == common_pb2.TOPIC_EXISTS


async def test_a_broker_of_an_earlier_nameserver_holds_up_no_creation(
    server: Any, etcd: Etcd, cluster: str
) -> None:
    """It is not known what such a one knows."""
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
    value = b'{"instance":"i","address":"127.0.0.1:9"}'
    await etcd.transaction({}, [Put(Keys(cluster).broker(BrokerKey("broker-c", 0)), value)])
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))


def last_told(broker: Any) -> common_pb2.TopicConfig:
    """What a broker was told last of any topic."""
    told: list[common_pb2.TopicConfig] = [t for d in broker.directives for t in d.topics]
    return told[-1]


async def test_of_many_creators_at_two_nameservers_one_wins(
    server: Any, shared_etcd: Any, start_nameserver: Any
) -> None:
    other = await start_nameserver(shared_etcd.endpoint)

    async def create(at: Any, queues: int) -> str:
        try:
            topic = await at.stub.CreateTopic(pb.CreateTopicRequest(name="raced", queues=queues))
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return f"won with {sum(topic.queues_by_broker.values())}"

    creators = [create(at, queues) for queues in range(1, 6) for at in (server, other)]
    outcomes = Counter(await asyncio.gather(*creators))
    winners = [outcome for outcome in outcomes if outcome.startswith("won")]
    assert len(winners) == 1
    assert outcomes == {"ALREADY_EXISTS": 9, winners[0]: 1}
    for at in (server, other):
        # The nameserver that lost the race may hear of the topic a moment later.
        while True:
            answer = await at.stub.QueryRoute(pb.QueryRouteRequest(topics=["raced"]))
            if answer.routes[0].status.code == common_pb2.OK:
                break
            await asyncio.sleep(0.01)
        held = sum(answer.routes[0].topic.queues_by_broker.values())
        assert f"won with {held}" == winners[0]


async def test_updates_at_two_nameservers_at_once_are_all_kept(
    server: Any, shared_etcd: Any, start_nameserver: Any
) -> None:
    other = await start_nameserver(shared_etcd.endpoint)
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=2))
    await asyncio.gather(
        *(
            at.stub.UpdateTopic(
                pb.UpdateTopicRequest(name="orders", attributes={f"{letter}{n}": "x"})
            )
            for n in range(3)
            for letter, at in (("a", server), ("b", other))
        )
    )
    wanted = {f"{letter}{n}" for letter in "ab" for n in range(3)}
    async with asyncio.timeout(10):
        while True:  # each nameserver hears of the other's changes a moment later
            topics = (await server.stub.ListTopics(pb.ListTopicsRequest())).topics
            if set(topics[0].attributes) == wanted:
                return
            await asyncio.sleep(0.02)


async def test_a_topic_grows_but_never_shrinks(server: Any) -> None:
    before = await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=3))
    grown = await server.stub.UpdateTopic(pb.UpdateTopicRequest(name="orders", queues=6, perm=4))
    assert dict(grown.queues_by_broker) == {"broker-a": 3, "broker-b": 3}
    assert grown.perm == 4
    assert grown.revision > before.revision
    shrink = server.stub.UpdateTopic(pb.UpdateTopicRequest(name="orders", queues=5))
    assert await code_of(shrink) == common_pb2.INVALID_ARGUMENT


async def test_a_group_below_its_minimum_gets_no_queues_of_a_topic_that_grows(
    server: Any, make_broker: Any, running: Any
) -> None:
    """Queues never move, so another group does not get them instead: the operator hears why."""
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=4))
    await running(make_broker("broker-c", in_sync_min=2), server)
    await until_known(server, 3)
    grow = pb.UpdateTopicRequest(name="orders", queues=6)
    with pytest.raises(grpc.aio.AioRpcError, match=r"broker-c \(1 in sync, 2 needed\)") as caught:
        await server.stub.UpdateTopic(grow)
    told = dict(caught.value.trailing_metadata() or ())
    assert int(str(told[CODE_METADATA_KEY])) == common_pb2.NO_BROKER_AVAILABLE
    # Its other settings can be changed meanwhile, and the group can be left out on purpose.
    changed = await server.stub.UpdateTopic(pb.UpdateTopicRequest(name="orders", perm=4))
    assert dict(changed.queues_by_broker) == {"broker-a": 2, "broker-b": 2}
    await server.stub.CloseBrokerGroup(pb.CloseBrokerGroupRequest(broker_name="broker-c"))
    assert dict((await server.stub.UpdateTopic(grow)).queues_by_broker) == {
        "broker-a": 3,
        "broker-b": 3,
    }


async def test_a_new_topic_goes_to_groups_that_take_messages_if_there_are_any(
    shared_etcd: Any, start_nameserver: Any, make_broker: Any, running: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    create = server.stub.CreateTopic
    await running(make_broker("broker-b", in_sync_min=2), server)
    await until_known(server, 1)
    only = await create(pb.CreateTopicRequest(name="first", queues=2))
    assert dict(only.queues_by_broker) == {"broker-b": 2}
    await running(make_broker("broker-a"), server)
    await until_known(server, 2)
    topic = await create(pb.CreateTopicRequest(name="orders", queues=2))
    assert dict(topic.queues_by_broker) == {"broker-a": 2}


async def test_an_empty_attribute_is_removed(server: Any) -> None:
    await server.stub.CreateTopic(
        pb.CreateTopicRequest(name="orders", attributes={"a": "1", "b": "2"})
    )
    changed = await server.stub.UpdateTopic(
        pb.UpdateTopicRequest(name="orders", attributes={"a": "", "c": "3"})
    )
    assert dict(changed.attributes) == {"b": "2", "c": "3"}
    nonsense = pb.UpdateTopicRequest(name="orders", attributes={"keep_unread_max_bytes": "-1"})
    assert await code_of(server.stub.UpdateTopic(nonsense)) == common_pb2.INVALID_ARGUMENT


async def test_a_topic_cannot_keep_its_messages_for_longer_than_any_brokers_log(
    server: Any, make_broker: Any, running: Any
) -> None:
    day, week = ({"keep_ms": str(days * 86_400_000)} for days in (1, 7))
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="early", attributes=week))
    await running(make_broker("broker-c", log_kept_hours=72), server)
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", attributes=day))
    for refused in (
        server.stub.CreateTopic(pb.CreateTopicRequest(name="long", attributes=week)),
        server.stub.UpdateTopic(pb.UpdateTopicRequest(name="orders", attributes=week)),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=r"168 h.*broker-c keeps them for 72 h"):
            await refused


@pytest.mark.parametrize(
    ("request_fields", "code"),
    [
        ({"name": ""}, common_pb2.ILLEGAL_NAME),
        ({"name": "with space"}, common_pb2.ILLEGAL_NAME),
        ({"name": "a/b"}, common_pb2.ILLEGAL_NAME),
        ({"name": "x" * 128}, common_pb2.ILLEGAL_NAME),
        ({"name": "TBW102"}, common_pb2.ILLEGAL_NAME),
        ({"name": "rmq_sys_mine"}, common_pb2.ILLEGAL_NAME),
        ({"name": "orders", "queues": 4_097}, common_pb2.INVALID_ARGUMENT),
        ({"name": "orders", "perm": 8}, common_pb2.INVALID_ARGUMENT),
        ({"name": "orders", "attributes": {"k": "v" * 70_000}}, common_pb2.INVALID_ARGUMENT),
        (
            {"name": "orders", "attributes": {"k": "v" * 600, "l": "v" * 600}},
            common_pb2.INVALID_ARGUMENT,
        ),
        (
            {"name": "orders", "attributes": {"keep_unread_max_bytes": "1 GB"}},
            common_pb2.INVALID_ARGUMENT,
        ),
        ({"name": "orders", "cluster": "another"}, common_pb2.INVALID_ARGUMENT),
    ],
)
async def test_a_topic_that_can_never_be_is_refused(
    server: Any, request_fields: dict[str, Any], code: int
) -> None:
    create = server.stub.CreateTopic(pb.CreateTopicRequest(**request_fields))
    assert await code_of(create) == code


async def test_what_is_not_there_cannot_be_changed_or_deleted(server: Any) -> None:
    update = server.stub.UpdateTopic(pb.UpdateTopicRequest(name="nowhere", perm=4))
    delete = server.stub.DeleteTopic(pb.DeleteTopicRequest(name="nowhere"))
    assert await code_of(update) == common_pb2.TOPIC_NOT_FOUND
    assert await code_of(delete) == common_pb2.TOPIC_NOT_FOUND


async def test_a_topic_without_a_broker_cannot_be_placed(
    shared_etcd: Any, start_nameserver: Any
) -> None:
    lonely = await start_nameserver(shared_etcd.endpoint)
    create = lonely.stub.CreateTopic(pb.CreateTopicRequest(name="orders"))
    assert await code_of(create) == common_pb2.NO_BROKER_AVAILABLE
    query = pb.QueryRouteRequest(topics=["orders"], create_missing=True)
    status = (await lonely.stub.QueryRoute(query)).routes[0].status
    assert status.code == common_pb2.NO_BROKER_AVAILABLE


async def test_a_missing_topic_is_created_only_when_asked_for(server: Any) -> None:
    for create_missing, code in (
        (False, common_pb2.TOPIC_NOT_FOUND),
        (True, common_pb2.OK),
        (False, common_pb2.OK),
    ):
        query = pb.QueryRouteRequest(topics=["fresh"], create_missing=create_missing)
        answer = await server.stub.QueryRoute(query)
        assert answer.routes[0].status.code == code
    illegal = pb.QueryRouteRequest(topics=["not legal", "TBW102"], create_missing=True)
    for route in (await server.stub.QueryRoute(illegal)).routes:
        assert route.status.code == common_pb2.ILLEGAL_NAME


async def test_the_route_a_missing_topic_would_get_is_answered_without_creating_it(
    server: Any, shared_etcd: Any, start_nameserver: Any
) -> None:
    names = ["fresh", "not legal"]
    plan = pb.QueryRouteRequest(topics=names, plan_missing=True)
    planned, illegal = (await server.stub.QueryRoute(plan)).routes
    assert (planned.status.code, illegal.status.code) == (common_pb2.OK, common_pb2.ILLEGAL_NAME)
    assert not list((await server.stub.ListTopics(pb.ListTopicsRequest())).topics)
    create = pb.QueryRouteRequest(topics=["fresh"], create_missing=True)
    created = (await server.stub.QueryRoute(create)).routes[0]
    assert planned.topic.queues_by_broker == created.topic.queues_by_broker
    assert [each.address for each in planned.brokers] == [each.address for each in created.brokers]
    strict = await start_nameserver(shared_etcd.endpoint, auto_create=False)
    plan = pb.QueryRouteRequest(topics=["other"], plan_missing=True)
    [other] = (await strict.stub.QueryRoute(plan)).routes
    assert other.status.code == common_pb2.TOPIC_NOT_FOUND


async def test_many_producers_that_ask_at_once_create_one_topic(
    server: Any, shared_etcd: Any, start_nameserver: Any
) -> None:
    other = await start_nameserver(shared_etcd.endpoint)
    query = pb.QueryRouteRequest(topics=["fresh"], create_missing=True)
    answers = await asyncio.gather(*(at.stub.QueryRoute(query) for at in (server, other) * 4))
    assert {answer.routes[0].status.code for answer in answers} == {common_pb2.OK}
    assert len({answer.routes[0].topic.revision for answer in answers}) == 1


async def test_creation_on_request_can_be_switched_off(
    server: Any, shared_etcd: Any, start_nameserver: Any
) -> None:
    strict = await start_nameserver(shared_etcd.endpoint, auto_create=False)
    query = pb.QueryRouteRequest(topics=["fresh"], create_missing=True)
    answer = await strict.stub.QueryRoute(query)
    assert answer.routes[0].status.code == common_pb2.TOPIC_NOT_FOUND
    await strict.stub.CreateTopic(pb.CreateTopicRequest(name="fresh"))
    assert (await strict.stub.QueryRoute(query)).routes[0].status.code == common_pb2.OK


async def test_a_watch_gives_the_routes_at_once_and_then_each_change_of_them(
    server: Any, make_broker: Any, running: Any
) -> None:
    watch = server.stub.WatchRoutes(pb.WatchRoutesRequest(topics=["orders"]))
    first = await watch.read()
    assert first.routes[0].status.code == common_pb2.TOPIC_NOT_FOUND
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="unrelated"))
    created = await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders", queues=2))
    second = await watch.read()
    assert second.routes[0].topic == created, "a change of another topic is not told"
    assert second.version == created.revision > first.version
    await running(make_broker("broker-a", broker_id=1), server)
    third = await watch.read()
    assert [b.identity.broker_id for b in third.routes[0].brokers] == [0, 1, 0]
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    assert (await watch.read()).routes[0].status.code == common_pb2.TOPIC_NOT_FOUND
    watch.cancel()


async def test_two_nameservers_give_equal_answers(
    server: Any, shared_etcd: Any, start_nameserver: Any
) -> None:
    other = await start_nameserver(shared_etcd.endpoint)
    for n in range(10):
        at = (server, other)[n % 2]
        await at.stub.CreateTopic(pb.CreateTopicRequest(name=f"topic-{n}", queues=n + 1))
    await other.stub.DeleteTopic(pb.DeleteTopicRequest(name="topic-4"))
    query = pb.QueryRouteRequest(topics=[f"topic-{n}" for n in range(10)])

    async def answers(at: Any) -> tuple[Any, Any]:
        listed = await at.stub.ListTopics(pb.ListTopicsRequest())
        return await at.stub.QueryRoute(query), listed

    async def equal() -> bool:
        # Once the brokers know of the deletion it is forgotten, which is one more version.
        return await answers(server) == await answers(other)

    await until(equal)
    _, listed = await answers(server)
    assert len(listed.topics) == 9


async def test_a_damaged_key_is_passed_over_and_can_be_deleted(
    server: Any, etcd: Etcd, cluster: str
) -> None:
    await etcd.transaction({}, [Put(Keys(cluster).topic("broken"), b"{not json")])
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="orders"))
    assert [t.name for t in (await server.stub.ListTopics(pb.ListTopicsRequest())).topics] == [
        "orders"
    ]
    update = server.stub.UpdateTopic(pb.UpdateTopicRequest(name="broken", perm=4))
    assert await code_of(update) == common_pb2.INVALID_ARGUMENT
    await server.stub.DeleteTopic(pb.DeleteTopicRequest(name="broken"))
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="broken"))


async def test_one_request_cannot_ask_for_endless_topics(server: Any) -> None:
    query = server.stub.QueryRoute(pb.QueryRouteRequest(topics=["t"] * 1_001))
    assert await code_of(query) == common_pb2.INVALID_ARGUMENT


async def test_attributes_that_cannot_be_shown_are_refused(server: Any) -> None:
    odd = pb.CreateTopicRequest(name="odd", queues=1, attributes={"owner": "\x1b[2J"})
    assert await code_of(server.stub.CreateTopic(odd)) == common_pb2.INVALID_ARGUMENT
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="fine", queues=1))
    update = pb.UpdateTopicRequest(name="fine", attributes={"a\nb": "x"})
    assert await code_of(server.stub.UpdateTopic(update)) == common_pb2.INVALID_ARGUMENT


async def test_updates_add_no_more_attributes_than_all_topics_can_have_in_one_answer(
    server: Any,
) -> None:
    await server.stub.CreateTopic(pb.CreateTopicRequest(name="fat", queues=1))
    await server.stub.UpdateTopic(pb.UpdateTopicRequest(name="fat", attributes={"a": "v" * 900}))
    more = pb.UpdateTopicRequest(name="fat", attributes={"b": "v" * 200})
    assert await code_of(server.stub.UpdateTopic(more)) == common_pb2.INVALID_ARGUMENT
    await server.stub.UpdateTopic(pb.UpdateTopicRequest(name="fat", attributes={"a": ""}))
    await server.stub.UpdateTopic(more)
