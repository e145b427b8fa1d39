"""The same producer against a real broker with a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.client_core import ClusterConnection, MessageQueue, Offsets
from aerobee.cluster_view.methods import PULL
from aerobee.producer_client import Durability, Message, Producer, ProducerConfig
from aerobee.runtime import errors
from aerobee.store.engine.config import FlushMode
from aerobee.store.format.record import Record, iterate_records
from aerobee.v1 import broker_pb2
from tests.support.fake_cluster import BrokerAt, FakeNameserver, FakeTopic
from tests.support.real_brokers import RealBroker


@pytest_asyncio.fixture(params=list(FlushMode))
async def nameserver(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[FakeNameserver]:
    """Routes to a real broker with `orders` on four queues."""
    broker = await RealBroker(
        "broker-a", tmp_path / "a", {"orders": 4}, flush_mode=request.param
    ).start()
    nameserver = await FakeNameserver(
        brokers={"broker-a": BrokerAt(broker.address)},
        topics={"orders": FakeTopic({"broker-a": 4}), "unknown": FakeTopic({"broker-a": 1})},
    ).start()
    yield nameserver
    await nameserver.stop()
    await broker.stop()


async def read_queue(connection: ClusterConnection, queue: MessageQueue) -> list[Record]:
    route = await connection.routes.route(queue.topic)
    result = await connection.channels.call(
        route.master_address(queue.broker_name),
        PULL,
        broker_pb2.PullRequest(
            topic=queue.topic,
            queue_id=queue.queue_id,
            group="readers",
            max_bytes=1 << 24,
            max_messages=10_000,
        ),
    )
    return list(iterate_records(result.records))


async def test_what_has_a_receipt_is_read_back(nameserver: FakeNameserver) -> None:
    async with (
        ClusterConnection(nameserver.address) as connection,
        Producer(connection=connection, config=ProducerConfig(batch_bytes_max=8_192)) as producer,
    ):
        messages = [
            Message("orders", b"body-%d" % n, tag=f"t{n % 3}", keys=[f"k{n}"], flag=n % 2)
            for n in range(500)
        ]
        receipts = [*await producer.send_batch(messages[:300])]
        receipts += await asyncio.gather(*(producer.send(each) for each in messages[300:]))
        bounds = await Offsets(connection).bounds({receipt.queue for receipt in receipts})
        assert sum(each.count for each in bounds.values()) == 500
        stored = {
            (queue, record.queue_offset): record
            for queue in bounds
            for record in await read_queue(connection, queue)
        }
        for message, receipt in zip(messages, receipts, strict=True):
            record = stored[receipt.queue, receipt.queue_offset]
            assert record.body == message.body
            assert record.unique_key == receipt.message_id
            assert (record.tag, record.keys) == (message.tag, message.keys)
            assert record.flag == message.flag
            assert record.store_timestamp_ms == receipt.store_timestamp_ms
            place = receipt.offset_message_id
            assert place.endswith(f"{record.physical_offset:016X}")
            assert place.startswith(record.store_host.ip.hex().upper())


async def test_the_receipt_names_the_brokers_promise(
    nameserver: FakeNameserver, request: pytest.FixtureRequest
) -> None:
    mode = request.node.callspec.params["nameserver"]
    promised = Durability.FSYNCED if mode is FlushMode.SYNC else Durability.PAGE_CACHE
    async with Producer(nameserver.address) as producer:
        receipt = await producer.send(Message("orders", b"1"))
        assert receipt.durability is promised
        quick = await producer.send(Message("orders", b"2"), skip_wait=True)
        assert quick.durability is Durability.PAGE_CACHE


async def test_a_topic_that_the_broker_never_hears_of_is_named(
    nameserver: FakeNameserver,
) -> None:
    async with Producer(nameserver.address) as producer:
        with pytest.raises(errors.TopicNotFound, match="unknown"):
            await producer.send(Message("unknown", b"1"), timeout=1.5)
