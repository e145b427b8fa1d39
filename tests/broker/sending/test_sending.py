"""Sending over real gRPC: receipts, refusals, and what lies in the log afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from aerobee.domain.names import SYSTEM_TOPICS
from aerobee.rpc.own_protocol import code_of
from aerobee.runtime.errors import AerobeeError
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.message_id import parse_offset_message_id
from aerobee.store.format.record import Record, iterate_records
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.record_layout import HostAddress
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.grpcio_client import error_from_rpc

MakeBatch = Callable[..., broker_pb2.RecordBatch]


async def pulled(broker: Any, queue_id: int = 0, topic: str = "t") -> list[Record]:
    """Everything in a queue."""
    result = await broker.pull.Pull(
        broker_pb2.PullRequest(topic=topic, queue_id=queue_id, offset=0)
    )
    return list(iterate_records(result.records))


async def test_a_batch_is_stored_and_its_receipt_says_where(broker: Any) -> None:
    first = await broker.send_bodies("t", 1, b"one", b"two")
    second = await broker.send_bodies("t", 1, b"three")
    assert (first.code, first.durability) == (common_pb2.OK, broker_pb2.PAGE_CACHE), first.message
    assert (first.base_queue_offset, second.base_queue_offset) == (0, 2)
    assert second.base_physical_offset > first.base_physical_offset
    records = await pulled(broker, 1)
    assert [record.body for record in records] == [b"one", b"two", b"three"]
    assert [record.queue_offset for record in records] == [0, 1, 2]
    assert records[2].physical_offset == second.base_physical_offset
    assert records[0].store_timestamp_ms == first.store_timestamp_ms
    assert {record.queue_id for record in records} == {1}


async def test_batches_of_a_frame_are_answered_in_their_order_with_gapless_offsets(
    broker: Any, make_batch: MakeBatch
) -> None:
    frame = broker_pb2.SendFrame(
        batches=[
            make_batch(
                "t", sequence % 3, *([b"x%d" % sequence] * (1 + sequence % 2)), sequence=sequence
            )
            for sequence in range(12)
        ]
    )
    acks = await broker.exchange(frame)
    assert [ack.sequence for ack in acks] == list(range(12))
    for queue_id in range(3):
        records = await pulled(broker, queue_id)
        mine = [ack for ack in acks if ack.sequence % 3 == queue_id]
        expected = 0
        for ack in mine:
            assert ack.base_queue_offset == expected
            record = records[expected]
            assert record.physical_offset == ack.base_physical_offset
            assert record.body == b"x%d" % ack.sequence
            expected += 1 + ack.sequence % 2
        assert len(records) == expected


async def test_a_wrong_batch_does_not_spoil_its_neighbours(
    broker: Any, make_batch: MakeBatch
) -> None:
    good = [make_batch("t", 0, b"good", sequence=sequence) for sequence in (0, 2, 4)]
    corrupt = make_batch("t", 0, b"corrupt", sequence=1)
    corrupt.records = corrupt.records.replace(b"corrupt", b"Corrupt")
    unknown = make_batch("unknown", 0, b"x", sequence=3)
    acks = await broker.exchange(
        broker_pb2.SendFrame(batches=[good[0], corrupt, good[1], unknown, good[2]])
    )
    assert [ack.code for ack in acks] == [
        common_pb2.OK,
        common_pb2.CORRUPT_BODY,
        common_pb2.OK,
        common_pb2.TOPIC_NOT_FOUND,
        common_pb2.OK,
    ]
    assert [record.body for record in await pulled(broker)] == [b"good"] * 3


async def test_sizes_that_only_add_up_across_batches_are_refused(
    broker: Any, make_batch: MakeBatch
) -> None:
    first, second = (
        make_batch("t", 0, b"a" * 50, sequence=0),
        make_batch("t", 0, b"b" * 50, sequence=1),
    )
    first.record_sizes[0] += 10
    second.record_sizes[0] -= 10
    acks = await broker.exchange(broker_pb2.SendFrame(batches=[first, second]))
    assert [ack.code for ack in acks] == [common_pb2.MESSAGE_ILLEGAL] * 2
    assert await pulled(broker) == []


def _flipped(batch: broker_pb2.RecordBatch, at: int) -> broker_pb2.RecordBatch:
    data = bytearray(batch.records)
    data[at] ^= 0xFF
    batch.records = bytes(data)
    return batch


def _sized(batch: broker_pb2.RecordBatch, *sizes: int) -> broker_pb2.RecordBatch:
    batch.ClearField("record_sizes")
    batch.record_sizes.extend(sizes)
    return batch


def _moved(batch: broker_pb2.RecordBatch, topic: str, queue_id: int) -> broker_pb2.RecordBatch:
    batch.topic, batch.queue_id = topic, queue_id
    return batch


REFUSED: dict[str, tuple[Callable[[MakeBatch], broker_pb2.RecordBatch], int]] = {
    "unknown topic": (lambda make: make("nowhere", 0, b"x"), common_pb2.TOPIC_NOT_FOUND),
    "empty topic": (lambda make: _moved(make("t", 0, b"x"), "", 0), common_pb2.ILLEGAL_NAME),
    "topic with a slash": (
        lambda make: _moved(make("t", 0, b"x"), "../t", 0),
        common_pb2.ILLEGAL_NAME,
    ),
    "overlong topic": (lambda make: make("t" * 200, 0, b"x"), common_pb2.ILLEGAL_NAME),
    "queue id above the range": (lambda make: make("t", 4, b"x"), common_pb2.QUEUE_NOT_FOUND),
    "queue id below 0": (lambda make: make("t", -1, b"x"), common_pb2.QUEUE_NOT_FOUND),
    "the broker's own topic": (
        lambda make: make("SCHEDULE_TOPIC_XXXX", 0, b"x"),
        common_pb2.NOT_WRITABLE_TOPIC,
    ),
    "topic of batch queues": (
        lambda make: make("of-batches", 0, b"x"),
        common_pb2.NOT_WRITABLE_TOPIC,
    ),
    "topic that may not be written": (
        lambda make: make("read-only", 0, b"x"),
        common_pb2.NOT_WRITABLE_TOPIC,
    ),
    "no records": (
        lambda make: _sized(broker_pb2.RecordBatch(topic="t")),
        common_pb2.MESSAGE_ILLEGAL,
    ),
    "records without sizes": (lambda make: _sized(make("t", 0, b"x")), common_pb2.MESSAGE_ILLEGAL),
    "sizes too short": (lambda make: _sized(make("t", 0, b"x"), 20), common_pb2.MESSAGE_ILLEGAL),
    "sizes too long": (lambda make: _sized(make("t", 0, b"x"), 5_000), common_pb2.MESSAGE_ILLEGAL),
    "wrong magic": (lambda make: _flipped(make("t", 0, b"x"), 4), common_pb2.MESSAGE_ILLEGAL),
    "wrong total size": (lambda make: _flipped(make("t", 0, b"x"), 3), common_pb2.MESSAGE_ILLEGAL),
    "records of another topic": (
        lambda make: _moved(make("u", 0, b"x"), "t", 0),
        common_pb2.MESSAGE_ILLEGAL,
    ),
    "corrupt body": (
        lambda make: _flipped(make("t", 0, b"x" * 100), 120),
        common_pb2.CORRUPT_BODY,
    ),
    "garbage": (
        lambda make: broker_pb2.RecordBatch(
            topic="t", records=bytes(range(256)) * 2, record_sizes=[512]
        ),
        common_pb2.MESSAGE_ILLEGAL,
    ),
    "body above 4 MiB": (
        lambda make: make("t", 0, bytes(4 * 1024 * 1024 + 1)),
        common_pb2.MESSAGE_TOO_LARGE,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_wrong_is_refused_before_it_is_stored(
    start_broker: Any, make_batch: MakeBatch, what: str
) -> None:
    topics = {
        name: TopicConfig(name=name, read_queue_count=4, write_queue_count=4, perm=perm)
        for name, perm in (("t", 6), ("u", 6), ("read-only", 4), ("SCHEDULE_TOPIC_XXXX", 6))
    }
    topics["of-batches"] = TopicConfig(name="of-batches", attributes={"queue.type": "BatchCQ"})
    broker = await start_broker(topics=topics)
    make, code = REFUSED[what]
    (ack,) = await broker.exchange(broker_pb2.SendFrame(batches=[make(make_batch)]))
    assert ack.code == code, ack
    assert ack.message
    stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    assert (stats.log_appended_end, stats.refused) == (0, 1)
    # The broker is as good as before.
    assert (await broker.send_bodies("t", 0, b"fine")).code == common_pb2.OK


async def test_no_client_sends_to_a_topic_of_the_system(
    start_broker: Any, make_batch: MakeBatch
) -> None:
    """A folder that was taken over from Apache's broker has some of them."""
    names = sorted({*SYSTEM_TOPICS, "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c"})
    broker = await start_broker(topics={name: TopicConfig(name=name) for name in ["t", *names]})
    for name in names:
        (ack,) = await broker.exchange(broker_pb2.SendFrame(batches=[make_batch(name, 0, b"x")]))
        assert ack.code == common_pb2.NOT_WRITABLE_TOPIC, name
        assert f"topic {name} is reserved for the system" in ack.message
    stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
    assert stats.messages_in == 0


async def test_overlong_properties_are_refused(broker: Any) -> None:
    properties = b"a\x01" + b"v" * 32_766
    record = bytearray(
        encode_record(
            topic=b"t",
            body=b"x",
            properties=properties[:100],
            born_timestamp_ms=1,
            born_host=HostAddress(bytes(4), 1),
        )
    )
    record[-102:-100] = (32_768).to_bytes(2, "big")
    grown = bytes(record) + bytes(32_668)
    grown = len(grown).to_bytes(4, "big") + grown[4:]
    batch = broker_pb2.RecordBatch(topic="t", records=grown, record_sizes=[len(grown)])
    (ack,) = await broker.exchange(broker_pb2.SendFrame(batches=[batch]))
    assert ack.code in (common_pb2.PROPERTIES_TOO_LARGE, common_pb2.MESSAGE_ILLEGAL)


async def test_an_empty_frame_gets_an_empty_answer(broker: Any) -> None:
    call = broker.send.SendStream()
    await call.write(broker_pb2.SendFrame())
    answer = await call.read()
    assert len(answer.acks) == 0
    await call.done_writing()


async def test_garbage_on_the_port_harms_nobody(broker: Any) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(bytes(range(256)) * 64)
    await writer.drain()
    await reader.read(1_000)
    writer.close()
    call = broker.channel.stream_stream("/aerobee.v1.SendService/SendStream")()
    await call.write(b"\xff\xff\xff not a protobuf")
    with pytest.raises(grpc.aio.AioRpcError):
        await call.read()
    assert (await broker.send_bodies("t", 0, b"fine")).code == common_pb2.OK


async def test_a_client_that_vanishes_leaves_nothing_behind(
    broker: Any, make_batch: MakeBatch
) -> None:
    call = broker.send.SendStream()
    await call.write(broker_pb2.SendFrame(batches=[make_batch("t", 0, b"x")]))
    await call.read()
    call.cancel()
    for _ in range(100):
        stats = await broker.admin.GetStats(broker_pb2.GetStatsRequest())
        if stats.send_streams == 0:
            break
        await asyncio.sleep(0.02)
    assert stats.send_streams == 0
    assert stats.messages_in == 1


# ---------------------------------------------------------------------------- unary


async def test_the_simplest_client_hands_over_a_body_and_gets_ids(broker: Any) -> None:
    response = await broker.send.Send(
        broker_pb2.SendRequest(
            topic="t",
            queue_id=2,
            body=b"hello",
            tag="greeting",
            keys=["k1", "k2"],
            properties={"colour": "blue"},
            flag=7,
        )
    )
    assert response.ack.code == common_pb2.OK
    (record,) = await pulled(broker, 2)
    assert (record.body, record.tag, record.keys, record.flag) == (
        b"hello",
        "greeting",
        ("k1", "k2"),
        7,
    )
    assert record.properties["colour"] == "blue"
    assert record.unique_key == response.message_id
    host, offset = parse_offset_message_id(response.offset_message_id)
    assert (host.ip, offset) == (b"\x7f\x00\x00\x01", record.physical_offset)
    assert record.born_host.ip == b"\x7f\x00\x00\x01"


async def test_without_a_queue_the_broker_takes_them_in_turn(broker: Any) -> None:
    queues = [
        (await broker.send.Send(broker_pb2.SendRequest(topic="t", queue_id=-1, body=b"x"))).queue_id
        for _ in range(8)
    ]
    assert sorted(queues) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_properties_that_apaches_users_set_are_stored_as_they_are(broker: Any) -> None:
    given = {
        "WAIT": "false",
        "BUYER_ID": "b-1",
        "CLUSTER": "DefaultCluster",
        "INSTANCE_ID": "MQ_INST_1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "TRACE_CONTEXT": "00-1-2",
        "__SHARDINGKEY": "customer-2",
        "UNIQ_KEY": "01" + "0123456789abcdef" * 2,
        "CORRELATION_ID": "c",
        "DELAYED": "no",
    }
    await broker.send.Send(
        broker_pb2.SendRequest(topic="t", queue_id=0, body=b"x", properties=given)
    )
    (record,) = await pulled(broker)
    assert record.properties == given


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (broker_pb2.SendRequest(topic="t"), common_pb2.MESSAGE_ILLEGAL),
        (broker_pb2.SendRequest(topic="t", body=b"x", queue_id=9), common_pb2.QUEUE_NOT_FOUND),
        (broker_pb2.SendRequest(topic="nope", body=b"x"), common_pb2.TOPIC_NOT_FOUND),
        (broker_pb2.SendRequest(topic="no pe", body=b"x"), common_pb2.ILLEGAL_NAME),
        (broker_pb2.SendRequest(topic="t", body=b"x", keys=["a b"]), common_pb2.INVALID_ARGUMENT),
        (
            broker_pb2.SendRequest(topic="t", body=b"x", properties={"a": "\x01"}),
            common_pb2.MESSAGE_ILLEGAL,
        ),
        (
            broker_pb2.SendRequest(topic="t", body=b"x", properties={"DELAY": "soon"}),
            common_pb2.MESSAGE_ILLEGAL,
        ),
        (
            broker_pb2.SendRequest(topic="t", body=b"x", properties={"UNIQ_KEY": "order 7"}),
            common_pb2.MESSAGE_ILLEGAL,
        ),
        (
            broker_pb2.SendRequest(topic="t", body=b"x", properties={"a": "v" * 32_767}),
            common_pb2.PROPERTIES_TOO_LARGE,
        ),
        (
            broker_pb2.SendRequest(topic="t", body=bytes(4 * 1024 * 1024 + 1)),
            common_pb2.MESSAGE_TOO_LARGE,
        ),
    ],
)
async def test_a_wrong_request_fails_with_its_typed_error(
    broker: Any, request_: broker_pb2.SendRequest, code: int
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await broker.send.Send(request_)
    error = error_from_rpc(failure.value, "the broker")
    assert isinstance(error, AerobeeError)
    assert code_of(error) == code, error
