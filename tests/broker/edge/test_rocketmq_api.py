"""Official clients' calls at one broker, over raw gRPC: answers, codes, and what is stored."""

from __future__ import annotations

import asyncio
import gzip
import time
from typing import Any

import grpc
import pytest

from aerobee.rocketmq_api.times import timestamp
from aerobee.rpc.grpc_config import Engine, GrpcConfig
from aerobee.store.engine.tables.config_tables import SubscriptionGroupConfig, TopicConfig
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.record import SYSFLAG_COMPRESSED, Record, iterate_records
from aerobee.v1 import broker_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.support.grpcio_client import build_channel
from tests.support.v2_calls import CLIENT_ID, V2, codes, sent_message
from tests.support.waiting import until


def topic_of(name: str, queues: int = 4, message_type: str = "", **changes: Any) -> TopicConfig:
    return TopicConfig(
        name=name,
        read_queue_count=queues,
        write_queue_count=queues,
        attributes={"message.type": message_type} if message_type else {},
        **changes,
    )


TOPICS = {
    topic.name: topic
    for topic in (
        topic_of("t"),
        topic_of("shop%orders"),
        topic_of("fifo", 8, "FIFO"),
        topic_of("later", 4, "DELAY"),
        topic_of("urgent", 4, "PRIORITY"),
        topic_of("mixed", 4, "MIXED"),
        topic_of("closed", perm=4),
        topic_of("hidden", perm=2),
    )
}


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    return await start_broker(topics=TOPICS)


@pytest.fixture
def client(broker: RunningBroker) -> V2:
    return V2(broker.channel)


async def stored(broker: RunningBroker, topic: str) -> list[tuple[int, Record]]:
    """Every message of a topic, with its queue."""
    found: list[tuple[int, Record]] = []
    for queue_id in range(TOPICS[topic].read_queue_count):
        result = await broker.pull.Pull(
            broker_pb2.PullRequest(topic=topic, queue_id=queue_id, offset=0)
        )
        found += [(queue_id, record) for record in iterate_records(result.records)]
    return found


# ------------------------------------------------------------------------------------ routes


async def test_a_route_names_every_queue_of_the_broker_and_where_it_is(
    broker: RunningBroker, client: V2
) -> None:
    answer = await client.route("fifo")
    assert (answer.status.code, answer.status.message) == (v2.OK, "OK")
    assert [queue.id for queue in answer.message_queues] == list(range(8))
    for queue in answer.message_queues:
        assert queue.topic == v2.Resource(name="fifo")
        assert queue.permission == v2.READ_WRITE
        assert list(queue.accept_message_types) == [v2.FIFO]
        assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)
        assert queue.broker.endpoints.scheme == v2.IPv4
        (address,) = queue.broker.endpoints.addresses
        assert (address.host, address.port) == ("127.0.0.1", broker.port)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        ("absent", v2.TOPIC_NOT_FOUND, "No topic route info in name server for the topic: absent"),
        ("a b", v2.ILLEGAL_TOPIC, "a b"),
        ("", v2.ILLEGAL_TOPIC, "no name"),
        ("rmq_sys_x", v2.ILLEGAL_TOPIC, "belongs to the brokers"),
    ],
)
async def test_a_topic_that_has_no_route_is_told_in_the_answer(
    client: V2, topic: str, code: int, words: str
) -> None:
    answer = await client.route(topic)
    assert answer.status.code == code
    assert words in answer.status.message
    assert not answer.message_queues


async def test_a_consumer_is_assigned_the_broker_or_in_order_each_queue(
    broker: RunningBroker, client: V2
) -> None:
    broker.opened.groups.put(SubscriptionGroupConfig(name="in-order", consume_orderly=True))

    async def assigned(group: str, topic: str = "t") -> Any:
        return await client.call(
            "QueryAssignment",
            service_pb2.QueryAssignmentRequest(
                topic=v2.Resource(name=topic), group=v2.Resource(name=group)
            ),
        )

    answer = await assigned("billing")
    assert [each.message_queue.id for each in answer.assignments] == [-1]
    answer = await assigned("in-order")
    assert [each.message_queue.id for each in answer.assignments] == [0, 1, 2, 3]
    assert (await assigned("a b")).status.code == v2.ILLEGAL_CONSUMER_GROUP
    assert (await assigned("billing", "hidden")).status.code == v2.FORBIDDEN
    assert (await assigned("billing", "absent")).status.code == v2.TOPIC_NOT_FOUND


# ------------------------------------------------------------------------------------ sending


async def test_a_message_is_stored_as_it_was_sent_and_answered_with_its_id(
    broker: RunningBroker, client: V2
) -> None:
    message = sent_message(
        "t", gzip.compress(b"hello"), tag="new", keys=["a", "b"], trace_context="trace-7"
    )
    message.system_properties.body_encoding = v2.GZIP
    message.user_properties["carrier"] = "UA"
    before_ms = int(time.time() * 1_000)
    answer = await client.send(message)
    assert answer.status.code == v2.OK
    (entry,) = answer.entries
    assert (entry.status.code, entry.message_id, entry.transaction_id) == (v2.OK, "ID-1", "ID-1")
    assert (entry.offset, entry.recall_handle) == (0, "")
    ((_, record),) = await stored(broker, "t")
    assert gzip.decompress(record.body) == b"hello"
    assert record.sys_flag & SYSFLAG_COMPRESSED
    assert record.born_host.host == "127.0.0.1"
    assert before_ms - 2_000 <= record.born_timestamp_ms <= time.time() * 1_000
    properties = record.properties
    expected = {"UNIQ_KEY": "ID-1", "TAGS": "new", "KEYS": "a b", "carrier": "UA", "PGROUP": "t"}
    assert properties.items() >= (expected | {"TRACE_CONTEXT": "trace-7"}).items()


async def test_messages_without_a_group_go_into_all_queues_in_turn(
    broker: RunningBroker, client: V2
) -> None:
    for number in range(8):
        # What clients propose is ignored.
        await client.send(sent_message("t", message_id=f"ID-{number}", queue_id=1))
    assert sorted(queue_id for queue_id, _ in await stored(broker, "t")) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_messages_of_a_group_keep_to_one_queue_in_their_order(
    broker: RunningBroker, client: V2
) -> None:
    for number in range(30):
        await client.send(
            sent_message("fifo", b"%d" % number, f"ID-{number}", message_group=f"g{number % 10}")
        )
    queues: dict[str, set[int]] = {}
    bodies: dict[str, list[int]] = {}
    for queue_id, record in await stored(broker, "fifo"):
        group = record.properties["__SHARDINGKEY"]
        queues.setdefault(group, set()).add(queue_id)
        bodies.setdefault(group, []).append(int(record.body))
    assert all(len(ids) == 1 for ids in queues.values())
    assert bodies == {f"g{g}": [g, g + 10, g + 20] for g in range(10)}
    assert len(set.union(*queues.values())) > 3


async def test_a_batch_has_an_entry_for_each_message_which_keeps_its_own_properties(
    broker: RunningBroker, client: V2
) -> None:
    messages = [sent_message("t", b"%d" % n, f"ID-{n}", tag=f"tag-{n}") for n in range(5)]
    answer = await client.send(*messages)
    assert answer.status.code == v2.OK
    assert [entry.message_id for entry in answer.entries] == [f"ID-{n}" for n in range(5)]
    assert [entry.offset for entry in answer.entries] == [0, 1, 2, 3, 4]
    found = await stored(broker, "t")
    assert len({queue_id for queue_id, _ in found}) == 1
    tags = [record.properties["TAGS"] for _, record in found]
    assert tags == [f"tag-{n}" for n in range(5)]


async def test_priority_decides_the_queue(broker: RunningBroker, client: V2) -> None:
    for priority in (0, 2, 9):
        message = sent_message("urgent", b"%d" % priority, f"ID-{priority}", priority=priority)
        assert (await client.send(message)).status.code == v2.OK
    found = [(queue_id, record.body) for queue_id, record in await stored(broker, "urgent")]
    assert found == [(0, b"0"), (2, b"2"), (3, b"9")]


async def test_a_delayed_message_comes_at_its_time_or_is_recalled(
    broker: RunningBroker, client: V2
) -> None:
    soon_ms = int(time.time() * 1_000) + 1_500
    handles = []
    for number in range(2):
        message = sent_message(
            "later", b"%d" % number, f"ID-{number}", delivery_timestamp=timestamp(soon_ms)
        )
        answer = await client.send(message)
        assert answer.status.code == v2.OK
        handles.append(answer.entries[0].recall_handle)
    assert RecallHandle.decode(handles[0]).unique_key == "ID-0"
    assert await stored(broker, "later") == []

    async def recalled(topic: str, handle: str) -> Any:
        request = service_pb2.RecallMessageRequest(
            topic=v2.Resource(name=topic), recall_handle=handle
        )
        return await client.call("RecallMessage", request)

    answer = await recalled("later", handles[1])
    assert (answer.status.code, answer.message_id) == (v2.OK, "ID-1")
    assert (await recalled("later", handles[1])).status.code == v2.OK
    unknown = RecallHandle("later", "broker-a", soon_ms, "ID-9").encode()
    assert (await recalled("later", unknown)).status.code == v2.INTERNAL_SERVER_ERROR
    assert (await recalled("mixed", handles[0])).status.code == v2.ILLEGAL_MESSAGE_ID
    assert (await recalled("later", "")).status.code == v2.ILLEGAL_MESSAGE_ID
    conflict = RecallHandle("t", "broker-a", soon_ms, "ID-9").encode()
    assert (await recalled("t", conflict)).status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    elsewhere = RecallHandle("later", "broker-x", soon_ms, "ID-9").encode()
    assert (await recalled("later", elsewhere)).status.code == v2.ILLEGAL_MESSAGE_ID

    async def bodies() -> list[bytes]:
        return [record.body for _, record in await stored(broker, "later")]

    while not (found := await bodies()):
        assert time.time() * 1_000 < soon_ms + 20_000
        await asyncio.sleep(0.05)
    assert time.time() * 1_000 >= soon_ms
    assert found == [b"0"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (sent_message("t", b""), v2.MESSAGE_BODY_EMPTY),
        (sent_message("t", bytes((4 << 20) + 1)), v2.MESSAGE_BODY_TOO_LARGE),
        # Beyond the limit of the request itself.
        (sent_message("t", bytes(9 << 20)), v2.BAD_REQUEST),
        (sent_message("t", tag="a|b"), v2.ILLEGAL_MESSAGE_TAG),
        (sent_message("t", message_id=""), v2.ILLEGAL_MESSAGE_ID),
        (sent_message("t", message_group="g"), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (sent_message("fifo"), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (sent_message("t", message_type=v2.TRANSACTION), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (sent_message("closed"), v2.FORBIDDEN),
        (sent_message("absent"), v2.TOPIC_NOT_FOUND),
    ],
    ids=lambda value: "" if isinstance(value, v2.Message) else v2.Code.Name(value),
)
async def test_what_may_not_be_sent_is_refused_with_its_code_and_not_stored(
    broker: RunningBroker, client: V2, message: v2.Message, code: int
) -> None:
    end = broker.store.appended_end
    answer = await client.send(message)
    assert v2.Code.Name(answer.status.code) == v2.Code.Name(code)
    assert answer.status.message
    assert not answer.entries
    assert broker.store.appended_end == end


async def test_the_largest_body_that_producers_are_told_is_taken(client: V2) -> None:
    assert codes((await client.send(sent_message("t", bytes(4 << 20)))).entries) == [v2.OK]


async def test_a_namespace_is_part_of_the_stored_name_and_echoed(
    broker: RunningBroker, client: V2
) -> None:
    message = sent_message("orders")
    message.topic.resource_namespace = "shop"
    assert (await client.send(message)).status.code == v2.OK
    # Some clients say it in the metadata only.
    other = V2(broker.channel, {"x-mq-namespace": "shop"})
    assert (await other.send(sent_message("orders", message_id="ID-2"))).status.code == v2.OK
    assert len(await stored(broker, "shop%orders")) == 2
    (queue, *_) = (await other.route("orders")).message_queues
    assert queue.topic == v2.Resource(name="orders")


# ------------------------------------------------------------------------------------ clients


@pytest.mark.parametrize("name", ["QueryRoute", "SendMessage", "Heartbeat", "EndTransaction"])
async def test_a_call_without_a_client_id_says_so_in_its_own_answer(
    broker: RunningBroker, name: str
) -> None:
    client = V2(broker.channel, {"x-mq-client-id": " "})
    request = getattr(service_pb2, f"{name}Request")()
    assert (await client.call(name, request)).status.code == v2.CLIENT_ID_REQUIRED


async def test_unknown_clients_live_and_end(client: V2) -> None:
    group = v2.Resource(name="billing")
    for request in (
        service_pb2.HeartbeatRequest(client_type=v2.PRODUCER),
        service_pb2.HeartbeatRequest(client_type=v2.PUSH_CONSUMER, group=group),
        service_pb2.HeartbeatRequest(client_type=v2.PUSH_CONSUMER),
    ):
        assert (await client.call("Heartbeat", request)).status.code == v2.OK
    request = service_pb2.HeartbeatRequest(
        client_type=v2.SIMPLE_CONSUMER, group=v2.Resource(name="a b")
    )
    assert (await client.call("Heartbeat", request)).status.code == v2.ILLEGAL_CONSUMER_GROUP
    for ending in (
        service_pb2.NotifyClientTerminationRequest(),
        service_pb2.NotifyClientTerminationRequest(group=group),
    ):
        assert (await client.call("NotifyClientTermination", ending)).status.code == v2.OK


async def test_what_is_not_supported_says_so(client: V2) -> None:
    answer = await client.call("SyncLiteSubscription", service_pb2.SyncLiteSubscriptionRequest())
    assert answer.status.code == v2.NOT_IMPLEMENTED


def settings(**changes: Any) -> service_pb2.TelemetryCommand:
    return service_pb2.TelemetryCommand(
        settings=v2.Settings(user_agent=v2.UA(language=v2.JAVA, version="5.0.8"), **changes)
    )


PUBLISHING = v2.Publishing(topics=[v2.Resource(name="t")])


@pytest.mark.parametrize("engine", Engine)
async def test_settings_are_answered_each_time_on_a_stream_whose_headers_come_at_once(
    start_broker: StartBroker, engine: Engine
) -> None:
    broker = await start_broker(topics=TOPICS, grpc=GrpcConfig(engine=engine))
    client = V2(broker.channel, {"x-mq-language": "JAVA"})
    broker.opened.groups.put(
        SubscriptionGroupConfig(name="billing", retry_times_max=2, consume_orderly=True)
    )
    stream = client.telemetry()
    await asyncio.wait_for(stream.initial_metadata(), 5)
    await stream.write(settings(client_type=v2.PRODUCER, publishing=PUBLISHING))
    answer = await stream.read()
    assert answer.status.code == v2.OK
    assert answer.settings.publishing.max_body_size == 4 << 20
    assert answer.settings.backoff_policy.exponential_backoff.multiplier == 2
    subscription = v2.Subscription(group=v2.Resource(name="billing"))
    await stream.write(settings(client_type=v2.PUSH_CONSUMER, subscription=subscription))
    answer = await stream.read()
    assert answer.settings.subscription.fifo
    assert answer.settings.backoff_policy.max_attempts == 3
    assert answer.settings.backoff_policy.customized_backoff.next[0].seconds == 1
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


async def test_illegal_settings_are_answered_and_end_the_stream(client: V2) -> None:
    stream = client.telemetry()
    wrong = v2.Publishing(topics=[v2.Resource(name="a b")])
    await stream.write(settings(client_type=v2.PRODUCER, publishing=wrong))
    answer = await stream.read()
    assert answer.status.code == v2.ILLEGAL_TOPIC
    assert not answer.HasField("settings")
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_client_for_node_is_told_its_settings_once_more(broker: RunningBroker) -> None:
    client = V2(broker.channel, {"x-mq-language": "HTTP", "x-mq-client-version": "1.0.8"})
    stream = client.telemetry()
    await stream.write(settings(client_type=v2.PRODUCER, publishing=PUBLISHING))
    first = await stream.read()
    began_s = time.monotonic()
    assert await asyncio.wait_for(stream.read(), 10) == first
    assert time.monotonic() - began_s > 1
    stream.cancel()


async def test_a_stop_ends_the_streams_of_clients_without_waiting(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(topics=TOPICS, stop_grace_ms=20_000)
    client = V2(broker.channel)
    stream = client.telemetry()
    await stream.write(settings(client_type=v2.PRODUCER, publishing=PUBLISHING))
    await stream.read()
    began_s = time.monotonic()
    await broker.stop()
    assert time.monotonic() - began_s < 10
    assert await stream.read() is grpc.aio.EOF


async def test_a_stream_of_a_client_that_is_gone_is_forgotten(
    broker: RunningBroker, client: V2
) -> None:
    stream = client.telemetry()
    await stream.write(settings(client_type=v2.PRODUCER, publishing=PUBLISHING))
    await stream.read()
    producers = broker.wiring.rocketmq.service.questions.clients
    assert len(producers.clients) == 1
    stream.cancel()
    await until(lambda: not producers.clients, "the stream's end")


async def described(broker: RunningBroker, group: str) -> dict[str, str]:
    """What each member is, by client id; nothing for a group that is not known."""
    if not (await broker.groups.ListGroups(broker_pb2.ListGroupsRequest())).groups:
        return {}
    request = broker_pb2.DescribeGroupRequest(group=group)
    answer = await broker.groups.DescribeGroup(request)
    return {member.client_id: member.official for member in answer.members}


async def test_operators_see_official_clients_until_they_leave(broker: RunningBroker) -> None:
    java = V2(broker.channel, {"x-mq-client-id": "j", "x-mq-language": "JAVA"})
    python = V2(broker.channel, {"x-mq-client-id": "p"})
    group = v2.Resource(name="billing")
    stream = java.telemetry()
    subscribed = v2.SubscriptionEntry(
        topic=v2.Resource(name="t"), expression=v2.FilterExpression(expression="paid || late")
    )
    subscription = v2.Subscription(group=group, subscriptions=[subscribed])
    await stream.write(settings(client_type=v2.PUSH_CONSUMER, subscription=subscription))
    await stream.read()
    beat = service_pb2.HeartbeatRequest(client_type=v2.SIMPLE_CONSUMER, group=group)
    assert (await python.call("Heartbeat", beat)).status.code == v2.OK
    assert await described(broker, "billing") == {
        "j": "push consumer, JAVA 5.1.2",
        "p": "simple consumer, PYTHON 5.1.2",
    }
    answer = await broker.groups.ListGroups(broker_pb2.ListGroupsRequest())
    assert list(answer.groups) == ["billing"]
    request = broker_pb2.DescribeGroupRequest(group="billing")
    member = (await broker.groups.DescribeGroup(request)).members[0]
    (shown,) = member.subscriptions
    assert (shown.topic, shown.filter.expression) == ("t", "paid || late")

    await stream.done_writing()
    await until(lambda: len(broker.clients.members("billing")) == 1)
    ending = service_pb2.NotifyClientTerminationRequest(group=group)
    assert (await python.call("NotifyClientTermination", ending)).status.code == v2.OK
    assert await described(broker, "billing") == {}


@pytest.mark.parametrize("engine", Engine)
async def test_a_client_that_is_killed_is_known_to_be_gone(
    start_broker: StartBroker, engine: Engine
) -> None:
    broker = await start_broker(topics=TOPICS, grpc=GrpcConfig(engine=engine))
    gone: list[str] = []
    broker.clients.on_gone = gone.append
    async with build_channel(f"127.0.0.1:{broker.port}") as channel:
        stream = V2(channel).telemetry()
        await stream.write(settings(client_type=v2.PRODUCER, publishing=PUBLISHING))
        await stream.read()
        assert gone == []
    await until(lambda: gone == [CLIENT_ID])


async def test_a_client_whose_settings_are_refused_is_not_gone(
    broker: RunningBroker, client: V2
) -> None:
    gone: list[str] = []
    broker.clients.on_gone = gone.append
    stream = client.telemetry()
    await stream.write(settings(client_type=v2.PRODUCER, publishing=PUBLISHING))
    await stream.read()
    wrong = v2.Publishing(topics=[v2.Resource(name="a b")])
    await stream.write(settings(client_type=v2.PRODUCER, publishing=wrong))
    assert (await stream.read()).status.code == v2.ILLEGAL_TOPIC
    assert await stream.read() is grpc.aio.EOF
    await broker.stop()
    assert gone == []
