"""Pulls of cold messages over real gRPC: others go on meanwhile, and nobody gets an error for what
retention took."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.access.quota import GROUP, Quota, Subject, encode_quota
from aerobee.access.quotas import DELAYED
from aerobee.access.table import Record, Records
from aerobee.broker.reading.egress import READ_BYTES_MAX
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.cold_disk import ColdDisk

KIB = 1024
MIB = 1024 * KIB
SEGMENT_BYTES = 64 * KIB
BODY = bytes(8 * KIB)
OLD = 48  # messages of topic `old`, seven to a segment
STORE = StoreConfig(
    segment_bytes=SEGMENT_BYTES,
    disk_free_bytes_min=0,
    hot_tail_bytes=SEGMENT_BYTES,
)


def is_segment(path: str) -> bool:
    return path.startswith("commitlog/")


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[ColdDisk]:
    disk = ColdDisk(tmp_path / "store", is_segment)
    yield disk
    disk.gate.set()


@pytest.fixture
async def cold_broker(start_broker: Any, disk: ColdDisk) -> Any:
    """A broker with old messages, all of them cold; new ones go to topic `t`."""
    topics = {
        name: TopicConfig(name=name, read_queue_count=4, write_queue_count=4)
        for name in ("old", "t")
    }
    broker = await start_broker(disk=disk, store=STORE, topics=topics, snapshot_interval_ms=200)
    for number in range(OLD):
        await broker.send_bodies("old", 0, b"%03d" % number + BODY)
    for _ in range(16):
        await broker.send_bodies("t", 0, BODY)
    return broker


async def pull(broker: Any, offset: int, *, topic: str = "old", **fields: Any) -> Any:
    request = broker_pb2.PullRequest(topic=topic, queue_id=0, offset=offset, **fields)
    return await asyncio.wait_for(broker.pull.Pull(request), 10)


async def test_sends_and_hot_pulls_go_on_while_a_cold_read_waits_for_the_disk(
    cold_broker: Any, disk: ColdDisk
) -> None:
    disk.gate.clear()
    waiting = [
        asyncio.create_task(pull(cold_broker, offset, group="behind")) for offset in range(8)
    ]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(5):
        ack = await cold_broker.send_bodies("t", 1, b"new")
        assert ack.code == common_pb2.OK
        got = await cold_broker.pull.Pull(
            broker_pb2.PullRequest(topic="t", queue_id=1, offset=0, group="at-the-end")
        )
        assert got.record_count == 1
        stats = await cold_broker.admin.GetStats(broker_pb2.GetStatsRequest())
    assert not any(task.done() for task in waiting)
    assert stats.cold_reads_waiting > 0
    disk.gate.set()
    results = await asyncio.gather(*waiting)
    assert [result.code for result in results] == [common_pb2.OK] * 8
    assert disk.reading_threads
    assert all(name.startswith("read") for name in disk.reading_threads)


async def test_committed_offsets_are_saved_while_every_reading_thread_waits(
    cold_broker: Any, disk: ColdDisk, tmp_path: Path
) -> None:
    disk.gate.clear()
    waiting = [
        asyncio.create_task(pull(cold_broker, offset, group=f"g{offset}")) for offset in range(8)
    ]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(5):
        await cold_broker.offsets.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group="saver",
                offsets=[broker_pb2.QueueOffset(topic="t", queue_id=0, offset=3)],
            )
        )
        path = tmp_path / "store" / "config" / "consumerOffset.json"
        while not path.exists() or "saver" not in path.read_text():
            await asyncio.sleep(0.05)
    disk.gate.set()
    await asyncio.gather(*waiting)


async def test_a_cold_queue_of_a_stream_does_not_hold_up_its_hot_ones(
    cold_broker: Any, disk: ColdDisk
) -> None:
    disk.gate.clear()
    call = cold_broker.pull.PullStream()
    for handle in range(12):
        await call.write(subscribe(handle, "old", offset=handle))
    await call.write(subscribe(99, "t", queue_id=2))
    await cold_broker.send_bodies("t", 2, b"hot")
    frame = await asyncio.wait_for(call.read(), 5)
    assert (frame.handle, frame.result.record_count) == (99, 1)
    disk.gate.set()
    seen: set[int] = set()
    while len(seen) < 12:
        frame = await asyncio.wait_for(call.read(), 5)
        assert frame.result.code == common_pb2.OK
        seen.add(frame.handle)
    call.cancel()


async def test_a_stream_of_many_queues_and_long_reads_never_has_too_much_waiting(
    cold_broker: Any, disk: ColdDisk
) -> None:
    disk.gate.clear()
    call = cold_broker.pull.PullStream()
    for handle in range(100):
        await call.write(subscribe(handle, "old", offset=handle % OLD, max_bytes=READ_BYTES_MAX))
    reading = asyncio.ensure_future(call.read())
    await asyncio.sleep(0.2)
    assert not reading.done()
    disk.gate.set()
    seen: set[int] = set()
    while len(seen) < 100:
        frame = await asyncio.wait_for(reading, 5)
        assert frame.result.code == common_pb2.OK
        seen.add(frame.handle)
        reading = asyncio.ensure_future(call.read())
    call.cancel()


async def test_all_queues_of_a_stream_catch_up_when_sends_stop_in_between(
    start_broker: Any,
) -> None:
    topics = {
        name: TopicConfig(name=name, read_queue_count=16, write_queue_count=16)
        for name in ("old", "t")
    }
    store = replace(STORE, segment_bytes=MIB)
    broker = await start_broker(store=store, topics=topics, catch_up_bytes_per_s=256 * KIB)
    messages = 400
    for queue_id in range(16):
        for _ in range(messages // 50):
            await broker.send_bodies("old", queue_id, *[bytes(1_000)] * 50)
    call = broker.pull.PullStream()
    got = dict.fromkeys(range(16), 0)
    await broker.send_bodies("t", 0, b"x")
    for handle in got:
        await call.write(
            subscribe(handle, "old", queue_id=handle, credit_bytes=1 << 40, group="behind")
        )
    frames = 0
    while min(got.values()) < messages:
        if frames < 24:
            await broker.send_bodies("t", 0, b"x")
        frame = await asyncio.wait_for(call.read(), 5)
        assert frame.result.code == common_pb2.OK
        got[frame.handle] += frame.result.record_count
        frames += 1
    assert set(got.values()) == {messages}
    call.cancel()


async def test_a_catch_up_gets_every_message_in_order_while_others_send(cold_broker: Any) -> None:
    stopped = asyncio.Event()

    async def send() -> None:
        while not stopped.is_set():
            await cold_broker.send_bodies("t", 3, b"x")

    sending = asyncio.create_task(send())
    offset, bodies = 0, []
    while offset < OLD:
        result = await pull(cold_broker, offset, group="behind", max_bytes=20 * KIB)
        assert result.code == common_pb2.OK
        bodies += [record.body[:3] for record in iterate_records(result.records)]
        offset = result.next_offset
    stopped.set()
    await sending
    assert bodies == [b"%03d" % number for number in range(OLD)]
    stats = await cold_broker.admin.GetStats(broker_pb2.GetStatsRequest())
    assert stats.cold_reads > 0
    assert stats.cold_bytes > OLD // 2 * len(BODY)


async def test_what_was_removed_is_answered_with_where_to_go_on(
    cold_broker: Any, disk: ColdDisk, tmp_path: Path
) -> None:
    segments = sorted((tmp_path / "store" / "commitlog").iterdir())
    for path in segments[:3]:
        path.unlink()
    result = await pull(cold_broker, 0, group="behind", max_bytes=10 * KIB)
    offset, bodies = 0, []
    while offset < OLD:
        result = await pull(cold_broker, offset, group="behind", max_bytes=10 * KIB)
        assert result.code in {common_pb2.OK, common_pb2.MESSAGE_REMOVED}
        assert result.next_offset > offset
        bodies += [record.body[:3] for record in iterate_records(result.records)]
        offset = result.next_offset
    assert bodies == [b"%03d" % number for number in range(21, OLD)]


async def test_a_disk_that_cannot_be_read_ends_the_handle_and_not_the_broker(
    cold_broker: Any, disk: ColdDisk
) -> None:
    disk.read_error = OSError(5, "Input/output error")
    call = cold_broker.pull.PullStream()
    await call.write(subscribe(1, "old"))
    frame = await asyncio.wait_for(call.read(), 5)
    assert frame.result.code not in {common_pb2.OK, common_pb2.MESSAGE_REMOVED}
    assert "Input/output error" in frame.result.message
    disk.read_error = None
    await call.write(subscribe(2, "old"))
    frame = await asyncio.wait_for(call.read(), 5)
    assert (frame.handle, frame.result.code) == (2, common_pb2.OK)
    call.cancel()


async def test_a_broker_stops_while_a_cold_read_waits(start_broker: Any, disk: ColdDisk) -> None:
    broker = await start_broker(disk=disk, store=STORE)
    for _ in range(20):
        await broker.send_bodies("t", 0, BODY)
    disk.gate.clear()
    waiting = asyncio.create_task(pull(broker, 0, topic="t", group="behind"))
    await asyncio.sleep(0.1)
    threading.Timer(0.5, disk.gate.set).start()
    await asyncio.wait_for(broker.stop(), 10)
    await asyncio.wait((waiting,))
    waiting.exception()


def subscribe(
    handle: int,
    topic: str,
    *,
    queue_id: int = 0,
    offset: int = 0,
    max_bytes: int = 10 * KIB,
    credit_bytes: int = 1,
    group: str = "",
) -> Any:
    request = broker_pb2.PullRequest(
        topic=topic, queue_id=queue_id, offset=offset, max_bytes=max_bytes, group=group
    )
    return broker_pb2.PullCommand(
        subscribe=broker_pb2.SubscribeQueue(
            handle=handle, request=request, credit_bytes=credit_bytes
        )
    )


async def test_cold_reads_of_a_group_keep_to_its_quota_and_hot_ones_do_not_count(
    cold_broker: Any, disk: ColdDisk
) -> None:
    quota = Quota(cold_read_bytes=100 * KIB)
    record = Record("group/behind", encode_quota(Subject(GROUP, "behind"), quota))
    cold_broker.access.book.hear(Records.of((), (), [record]))
    call = cold_broker.pull.PullStream()
    request = broker_pb2.PullRequest(topic="old", queue_id=0, group="behind")
    subscribe = broker_pb2.SubscribeQueue(handle=1, request=request, credit_bytes=1 << 30)
    began, count = time.monotonic(), 0
    await call.write(broker_pb2.PullCommand(subscribe=subscribe))
    while count < OLD:
        frame = await asyncio.wait_for(call.read(), 60)
        count += frame.result.record_count
    # 48 messages of 8 KiB, of which a second's worth may go at once.
    assert time.monotonic() - began >= 2.5
    assert cold_broker.access.quotas.met["cold_read_bytes", DELAYED] > 0
    with pytest.raises(grpc.aio.AioRpcError, match="102400 cold read bytes a second"):
        await pull(cold_broker, 0, group="behind")
    await cold_broker.send_bodies("t", 1, b"new")
    newest = broker_pb2.PullRequest(topic="t", queue_id=1, offset=0, group="behind")
    got = await cold_broker.pull.Pull(newest)
    assert got.record_count == 1, "what is read from memory was counted as cold"
    call.cancel()
