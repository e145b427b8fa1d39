"""Messages that arrive later over real gRPC: where they wait, what is refused, what is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.delayed_records import TIMER_TOPIC, destination, timer_due_ms
from aerobee.store.format.message_content import content_of
from aerobee.store.format.recall_handle import RecallHandle
from aerobee.store.format.record import Record, iterate_records
from aerobee.store.format.record_encode import encode_batch
from aerobee.store.format.record_layout import HostAddress
from aerobee.store.format.tags import SCHEDULE_TOPIC
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.observe.test_audit_service import take

MakeBatch = Callable[..., broker_pb2.RecordBatch]
LEVEL_3 = "DELAY\x013\x02"
LATER = "TIMER_DELAY_SEC\x0160\x02"
YEARS = "TIMER_DELAY_SEC\x01999999999\x02"


def asking(
    topic: str, queue_id: int, *properties: str, sequence: int = 0
) -> broker_pb2.RecordBatch:
    """One message for each of the properties."""
    records, sizes = encode_batch(
        topic=topic.encode(),
        bodies=[b"%d of %d" % (number, sequence) for number in range(len(properties))],
        properties=[each.encode() for each in properties],
        born_timestamp_ms=1_700_000_000_000,
        born_host=HostAddress(b"\x7f\x00\x00\x01", 4242),
    )
    return broker_pb2.RecordBatch(
        sequence=sequence, topic=topic, queue_id=queue_id, records=records, record_sizes=sizes
    )


async def pulled(broker: Any, topic: str, queue_id: int) -> list[Record]:
    result = await broker.pull.Pull(broker_pb2.PullRequest(topic=topic, queue_id=queue_id))
    return list(iterate_records(result.records))


async def test_messages_wait_in_system_topics_and_their_own_topic_does_not_have_them(
    broker: Any,
) -> None:
    frame = broker_pb2.SendFrame(
        batches=[
            asking("t", 1, LEVEL_3, LEVEL_3, sequence=0),
            asking("t", 1, LATER, sequence=1),
            asking("t", 3, LEVEL_3, sequence=2),
            asking("t", 1, "", sequence=3),
        ]
    )
    acks = await broker.exchange(frame)
    assert [(ack.code, ack.sequence) for ack in acks] == [(common_pb2.OK, at) for at in range(4)]
    assert [ack.base_queue_offset for ack in acks] == [0, 0, 2, 0]
    by_level = await pulled(broker, SCHEDULE_TOPIC, 2)
    assert [destination(record) for record in by_level] == [("t", 1), ("t", 1), ("t", 3)]
    assert [record.body for record in by_level] == [b"0 of 0", b"1 of 0", b"0 of 2"]
    (by_time,) = await pulled(broker, TIMER_TOPIC, 0)
    assert destination(by_time) == ("t", 1)
    assert 59_000 < timer_due_ms(by_time) - by_time.store_timestamp_ms <= 60_000
    assert [record.body for record in await pulled(broker, "t", 1)] == [b"0 of 3"]


async def test_a_wrong_request_spoils_no_neighbour(broker: Any) -> None:
    frame = broker_pb2.SendFrame(
        batches=[
            asking("t", 0, LEVEL_3, LATER, sequence=0),
            asking("t", 0, LEVEL_3, "", sequence=1),
            asking("t", 0, YEARS, sequence=2),
            asking("t", 0, "DELAY\x01-1\x02", sequence=3),
            asking("t", 0, "TIMER_OUT_MS\x015000\x02", sequence=4),
            asking("nowhere", 0, LEVEL_3, sequence=5),
            asking("t", 9, LEVEL_3, sequence=6),
            asking("read-only", 0, LATER, sequence=7),
            asking("t", 0, LEVEL_3 + f"big\x01{'x' * 32_650}\x02", sequence=8),
            asking("t", 0, LEVEL_3, sequence=9),
        ]
    )
    acks = await broker.exchange(frame)
    illegal = common_pb2.MESSAGE_ILLEGAL
    assert [ack.code for ack in acks] == [
        *(illegal, illegal, illegal, illegal, illegal),
        *(common_pb2.TOPIC_NOT_FOUND, common_pb2.QUEUE_NOT_FOUND, common_pb2.NOT_WRITABLE_TOPIC),
        *(common_pb2.PROPERTIES_TOO_LARGE, common_pb2.OK),
    ]
    assert "in batches of their own" in acks[0].message
    assert "record 1" in acks[1].message
    assert "choose an earlier time" in acks[2].message
    assert "limit of 32511" in acks[8].message, "it must not be too large when it is moved"
    assert len(await pulled(broker, SCHEDULE_TOPIC, 2)) == 1
    assert await pulled(broker, TIMER_TOPIC, 0) == []


@pytest.fixture
async def broker(start_broker: Any) -> Any:
    topics = {
        "t": TopicConfig(name="t", read_queue_count=4, write_queue_count=4),
        "read-only": TopicConfig(name="read-only", perm=4),
    }
    return await start_broker(topics=topics)


async def test_what_waits_is_counted_where_it_waits(broker: Any) -> None:
    """The audit compares these counts with what the log has of each topic."""
    await broker.exchange(
        broker_pb2.SendFrame(batches=[asking("t", 0, LEVEL_3, LEVEL_3), asking("t", 0, LATER)])
    )
    await broker.send_bodies("t", 0, b"now")
    counted: Counter[str] = Counter()
    for (topic, _), messages in (await take(broker)).minutes.items():
        counted[topic] += messages
    assert counted == {SCHEDULE_TOPIC: 2, TIMER_TOPIC: 1, "t": 1}
    stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    assert (stats.messages_in, stats.batches_in, stats.topics) == (4, 3, 2)


async def test_the_simplest_client_asks_by_properties_and_gets_a_recall_handle(
    broker: Any,
) -> None:
    async def send(**properties: str) -> broker_pb2.SendResponse:
        response: broker_pb2.SendResponse = await broker.send.Send(
            broker_pb2.SendRequest(topic="t", queue_id=1, body=b"x", properties=properties)
        )
        return response

    timed = await send(TIMER_DELAY_MS="60500")
    (waiting,) = await pulled(broker, TIMER_TOPIC, 0)
    assert RecallHandle.decode(timed.recall_handle) == RecallHandle(
        "t", "broker-a", timer_due_ms(waiting), timed.message_id, content_of(waiting)
    )
    assert waiting.unique_key == timed.message_id
    assert timed.queue_id == 1
    assert (await send(DELAY="3")).recall_handle == ""
    assert (await send(TIMER_DELIVER_MS="1")).recall_handle == ""
    assert (await send()).recall_handle == ""
    assert len(await pulled(broker, "t", 1)) == 2
    with pytest.raises(grpc.aio.AioRpcError, match="choose an earlier time"):
        await send(TIMER_DELAY_SEC="999999999")


async def test_the_levels_are_those_of_the_configuration(start_broker: Any) -> None:
    broker = await start_broker(
        store=StoreConfig(segment_bytes=1 << 20, disk_free_bytes_min=0, delay_levels_ms=(5, 7))
    )
    await broker.exchange(broker_pb2.SendFrame(batches=[asking("t", 0, "DELAY\x0118\x02")]))
    assert len(await pulled(broker, SCHEDULE_TOPIC, 1)) == 1
    with pytest.raises(InvalidArgument, match="1 to 1000 levels"):
        StoreConfig(delay_levels_ms=())


async def test_clients_cannot_send_to_where_messages_wait(
    broker: Any, make_batch: MakeBatch
) -> None:
    topics = broker.opened.topics
    assert topics.get(SCHEDULE_TOPIC).read_queue_count == 18
    assert topics.get(TIMER_TOPIC).read_queue_count == 1
    batches = [make_batch(SCHEDULE_TOPIC, 0, b"x"), make_batch(TIMER_TOPIC, 0, b"x", sequence=1)]
    acks = await broker.exchange(broker_pb2.SendFrame(batches=batches))
    assert [ack.code for ack in acks] == [common_pb2.NOT_WRITABLE_TOPIC] * 2
