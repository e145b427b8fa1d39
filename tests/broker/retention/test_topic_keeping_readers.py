"""Every way to read a topic begins at the first message that it keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
import pytest

from aerobee.rocketmq_remoting.codes import Code
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.message_id import parse_offset_message_id
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.retention.test_topic_keeping import HOUR_MS, STORE, MovedClock, begins_at, commit
from tests.support.remoting_peer import Peer, bodies_of, peer_at
from tests.support.v2_calls import V2

OLD, KEPT = 3, 2
"""Messages sent before and within the hour that the topic keeps."""


class Scene(NamedTuple):
    broker: RunningBroker
    peer: Peer
    client: V2
    ids: list[str]
    """Offset message ids, oldest first."""


@pytest.fixture
async def scene(start_broker: StartBroker) -> AsyncIterator[Scene]:
    clock = MovedClock()
    topic = TopicConfig(
        name="t", read_queue_count=1, write_queue_count=1, attributes={"keep_ms": str(HOUR_MS)}
    )
    broker = await start_broker(store=STORE, topics={"t": topic}, clock=clock)
    client = V2(broker.channel)
    for group in ("reader", "popper"):
        assert (await commit(broker, group, 0)).code == common_pb2.OK
    ids: list[str] = []
    async with peer_at(broker.port) as peer:
        for number in range(OLD + KEPT):
            if number == OLD:
                clock.passed_ms += HOUR_MS // 2
            sent = await peer.send("t", b"%d" % number, properties="KEYS\x01k\x02")
            ids.append(sent.fields["msgId"])
        clock.passed_ms += HOUR_MS * 2 // 3
        await begins_at(broker, OLD)
        yield Scene(broker, peer, client, ids)


async def test_aerobees_protocol(scene: Scene) -> None:
    admin = scene.broker.admin
    found = await admin.QueryMessages(broker_pb2.QueryMessagesRequest(topic="t", key="k"))
    records = [each for data in found.records for each in iterate_records(data)]
    assert [bytes(each.body) for each in records] == [b"4", b"3"]
    for number, message_id in enumerate(scene.ids):
        wanted = broker_pb2.GetMessageRequest(offset_message_id=message_id)
        if number >= OLD:
            assert (await admin.GetMessage(wanted)).record
        else:
            with pytest.raises(grpc.aio.AioRpcError, match="older than topic t keeps"):
                await admin.GetMessage(wanted)


async def test_remoting(scene: Scene) -> None:
    peer = scene.peer
    moved = await peer.pull("reader", "t", 0, sysFlag=4, subscription="*")
    assert (moved.code, moved.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "3")
    kept = await peer.pull("reader", "t", OLD, sysFlag=4, subscription="*")
    assert bodies_of(kept) == [b"3", b"4"]
    first = await peer.done(31, topic="t", queueId=0)
    assert first.fields["offset"] == "3"
    earliest = await peer.done(29, topic="t", queueId=0, timestamp=0)
    assert earliest.fields["offset"] == "3"
    _, position = parse_offset_message_id(scene.ids[0])
    assert (await peer.ask(33, offset=position)).code != 0
    found = await peer.done(
        12, topic="t", key="k", maxNum=32, beginTimestamp=0, endTimestamp=1 << 50
    )
    assert sorted(bodies_of(found)) == [b"3", b"4"]


async def test_what_a_remoting_client_fails_can_be_sent_back_although_it_is_no_longer_kept(
    scene: Scene,
) -> None:
    _, position = parse_offset_message_id(scene.ids[0])
    await scene.peer.done(
        36, group="reader", originTopic="t", offset=position, delayLevel=3, maxReconsumeTimes=5
    )


async def test_official_clients(scene: Scene) -> None:
    queue = v2.MessageQueue(
        topic=v2.Resource(name="t"), id=0, broker=v2.Broker(name=scene.broker.config.broker_name)
    )
    moved = await scene.client.pull(queue, offset=0)
    assert moved.next_offset in (OLD, OLD + KEPT)
    assert {each.body for each in moved.messages} <= {b"3", b"4"}
    received = await scene.client.receive("t", "popper")
    assert [each.body for each in received.messages] == [b"3", b"4"]


async def test_a_groups_lag_counts_only_what_is_kept(scene: Scene) -> None:
    groups: Any = scene.broker.groups
    lags = await groups.ListGroupLags(broker_pb2.ListGroupLagsRequest())
    unread = dict(zip(lags.groups, lags.unread, strict=True))
    assert (unread["reader"], unread["popper"]) == (KEPT, KEPT)
    described = await groups.DescribeGroup(broker_pb2.DescribeGroupRequest(group="reader"))
    (row,) = (each for each in described.queues if each.topic == "t")
    assert (row.min_offset, row.max_offset) == (OLD, OLD + KEPT)
