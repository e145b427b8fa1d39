"""Large messages wait, move on and come like others, and are not in memory together."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from aerobee.broker.delayed.feature import Delays
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.format.record_encode import encode_record
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import BORN_HOST, MIB
from tests.support.delayed import SetClock, delivered, send_later, settled, until_delivered
from tests.support.retention import write_times
from tests.support.waiting import until

DAY_MS = 86_400_000
LARGEST = 100_000
LONG_AGO_MS = 1_700_000_000_000


def store_of(batch_bytes_max: int) -> StoreConfig:
    return StoreConfig(
        segment_bytes=16 * MIB,
        disk_free_bytes_min=0,
        batch_bytes_max=batch_bytes_max,
        retention=RetentionConfig(enabled=False, delete_pause_ms=0),
    )


def largest_batch(properties: bytes) -> broker_pb2.RecordBatch:
    """A message of as many bytes as the broker takes."""

    def encoded(body: bytes) -> bytes:
        return encode_record(
            topic=b"t",
            body=body,
            properties=properties,
            born_timestamp_ms=LONG_AGO_MS,
            born_host=BORN_HOST,
            store_host_ipv6=False,
        )

    data = encoded(bytes(LARGEST - len(encoded(b""))))
    assert len(data) == LARGEST
    return broker_pb2.RecordBatch(topic="t", records=data, record_sizes=[LARGEST])


async def test_the_largest_message_comes_at_its_time(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock, store=store_of(LARGEST))
    deliver_ms = clock.now_ms() + DAY_MS
    batch = largest_batch(b"TIMER_DELIVER_MS\x01%d\x02" % deliver_ms)
    (ack,) = await broker.exchange(broker_pb2.SendFrame(batches=[batch]))
    assert ack.code == common_pb2.OK
    clock.ahead_ms += DAY_MS
    assert len(await until_delivered(broker, "t", 1)) == 1


async def test_a_limit_that_is_lowered_does_not_count_for_what_waits(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock, store=store_of(4 * MIB))
    send_later(broker, "t", [b"x" * MIB], deliver_ms=clock.now_ms() + DAY_MS)
    await broker.stop()
    again = await start_broker(clock=clock, store=store_of(LARGEST))
    clock.ahead_ms += DAY_MS
    assert len(await until_delivered(again, "t", 1)) == 1


async def test_the_largest_message_comes_again(start_broker: Any) -> None:
    broker = await start_broker(store=store_of(LARGEST))
    (ack,) = await broker.exchange(broker_pb2.SendFrame(batches=[largest_batch(b"")]))
    assert ack.code == common_pb2.OK
    response = await broker.offsets.SendBack(
        broker_pb2.SendBackRequest(
            group="g",
            client_id="member",
            topic="t",
            messages=[broker_pb2.FailedMessage(offset=0, level=1)],
        )
    )
    assert response.results[0].status.code == common_pb2.OK
    assert len(await until_delivered(broker, "%RETRY%g", 1)) == 1


async def test_a_list_of_large_messages_is_short(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock, store=store_of(4 * MIB))
    for number in range(60):
        send_later(broker, "t", [b"%02d" % number + b"x" * MIB], deliver_ms=clock.now_ms() + DAY_MS)
    await settled(broker)
    tracemalloc.start()
    try:
        page = await broker.feature(Delays).schedule.search("t", limit=1_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    found = len(page.messages)
    while page.after:
        page = await broker.feature(Delays).schedule.search("t", limit=1_000, after=page.after)
        found += len(page.messages)
    assert found == 60
    assert peak < 30 * MIB


@pytest.mark.thorough
async def test_large_messages_move_on_a_few_at_a_time(start_broker: Any) -> None:
    clock = SetClock()
    broker = await start_broker(clock=clock, store=store_of(4 * MIB))
    due_ms = clock.now_ms() + DAY_MS
    for number in range(60):
        send_later(broker, "t", [b"%02d" % number + b"x" * MIB], deliver_ms=due_ms)
    await settled(broker)
    first = broker.store.log.segments()[-1].base
    tracemalloc.start()
    try:

        async def has_cleaned() -> bool:
            write_times(broker.config.store_root, LONG_AGO_MS)
            await broker.admin.CleanStore(broker_pb2.CleanStoreRequest(force=True))
            return bool(broker.store.min_offset >= first)

        await until(has_cleaned, "everything old is removed")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    clock.ahead_ms += DAY_MS
    await until_delivered(broker, "t", 60)
    await settled(broker)
    assert len(delivered(broker, "t")) == 60
    assert peak < 30 * MIB
