"""Offsets over real gRPC: commits without leases, bounds, search by time, and restarts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.rpc.own_protocol import code_of
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.config_tables import ConsumerOffsetTable, TopicConfig
from aerobee.v1 import broker_pb2, common_pb2
from tests.broker.conftest import write_topics
from tests.support.fault_disk import FaultDisk
from tests.support.grpcio_client import error_from_rpc


async def commit(broker: Any, *offsets: tuple[str, int, int, int]) -> list[int]:
    response = await broker.offsets.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(
            group="g",
            client_id="c",
            offsets=[
                broker_pb2.QueueOffset(
                    topic=topic, queue_id=queue_id, offset=offset, lease_epoch=epoch
                )
                for topic, queue_id, offset, epoch in offsets
            ],
        )
    )
    return [result.code for result in response.results]


async def reset(broker: Any, *offsets: tuple[str, int, int]) -> None:
    response = await broker.offsets.ResetOffsets(
        broker_pb2.ResetOffsetsRequest(
            group="g",
            offsets=[
                broker_pb2.QueueOffset(topic=topic, queue_id=queue_id, offset=offset)
                for topic, queue_id, offset in offsets
            ],
        )
    )
    assert [result.code for result in response.results] == [common_pb2.OK] * len(offsets)


async def committed(broker: Any, *queue_ids: int) -> dict[int, tuple[int, int]]:
    response = await broker.offsets.QueryOffsets(
        broker_pb2.QueryOffsetsRequest(
            group="g",
            queues=[broker_pb2.TopicQueue(topic="t", queue_id=queue_id) for queue_id in queue_ids],
        )
    )
    return {one.queue_id: (one.code, one.offset) for one in response.offsets}


async def test_each_entry_of_a_commit_has_its_own_result(broker: Any) -> None:
    await broker.send_bodies("t", 0, *[b"x"] * 5)
    codes = await commit(
        broker,
        ("t", 0, 3, 0),
        ("t", 0, 6, 0),
        ("t", 0, -1, 0),
        ("t", 9, 0, 0),
        ("u", 0, 0, 0),
        ("t", 1, 0, 77),
        ("t", 1, 0, 0),
    )
    assert codes == [
        common_pb2.OK,
        common_pb2.INVALID_ARGUMENT,
        common_pb2.INVALID_ARGUMENT,
        common_pb2.QUEUE_NOT_FOUND,
        common_pb2.TOPIC_NOT_FOUND,
        common_pb2.LEASE_EXPIRED,
        common_pb2.OK,
    ]
    assert await committed(broker, 0, 1, 2) == {
        0: (common_pb2.OK, 3),
        1: (common_pb2.OK, 0),
        2: (common_pb2.OFFSET_NOT_FOUND, -1),
    }
    assert await committed(broker) == {0: (common_pb2.OK, 3), 1: (common_pb2.OK, 0)}


async def test_an_illegal_group_is_refused(broker: Any) -> None:
    for call, request in (
        (broker.offsets.CommitOffsets, broker_pb2.CommitOffsetsRequest(group="")),
        (broker.offsets.QueryOffsets, broker_pb2.QueryOffsetsRequest(group="a/b")),
        (broker.offsets.ResetOffsets, broker_pb2.ResetOffsetsRequest(group="g" * 121)),
        (broker.groups.DescribeGroup, broker_pb2.DescribeGroupRequest(group="")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await call(request)
        assert code_of(error_from_rpc(failure.value, "the broker")) == common_pb2.ILLEGAL_NAME


async def test_bounds_are_told_per_queue(broker: Any) -> None:
    await broker.send_bodies("t", 2, b"a")
    ack = await broker.send_bodies("t", 2, b"b")
    response = await broker.offsets.QueryBounds(
        broker_pb2.QueryBoundsRequest(
            queues=[
                broker_pb2.TopicQueue(topic=topic, queue_id=queue_id)
                for topic, queue_id in (("t", 2), ("t", 0), ("t", 4), ("u", 0))
            ]
        )
    )
    assert [bounds.status.code for bounds in response.bounds] == [
        common_pb2.OK,
        common_pb2.OK,
        common_pb2.QUEUE_NOT_FOUND,
        common_pb2.TOPIC_NOT_FOUND,
    ]
    filled, empty = response.bounds[:2]
    assert (filled.min_offset, filled.max_offset) == (0, 2)
    assert filled.last_store_timestamp_ms == ack.store_timestamp_ms
    assert (empty.min_offset, empty.max_offset, empty.last_store_timestamp_ms) == (0, 0, 0)


async def test_offsets_are_found_by_time(broker: Any) -> None:
    first = await broker.send_bodies("t", 0, b"a", b"b")
    await asyncio.sleep(0.02)
    second = await broker.send_bodies("t", 0, b"c")

    async def found(timestamp_ms: int, boundary: broker_pb2.Boundary) -> list[int]:
        response = await broker.offsets.SearchByTimestamp(
            broker_pb2.SearchByTimestampRequest(
                queues=[
                    broker_pb2.TopicQueue(topic=topic, queue_id=queue_id)
                    for topic, queue_id in (("t", 0), ("t", 1), ("t", 7), ("u", 0))
                ],
                timestamp_ms=timestamp_ms,
                boundary=boundary,
            )
        )
        return list(response.offsets)

    early, late = first.store_timestamp_ms, second.store_timestamp_ms
    assert await found(early, broker_pb2.LOWER) == [0, 0, -1, -1]
    assert await found(early + 1, broker_pb2.LOWER) == [2, 0, -1, -1]
    assert await found(late + 1, broker_pb2.LOWER) == [3, 0, -1, -1]
    assert await found(late - 1, broker_pb2.UPPER) == [1, 0, -1, -1]
    assert await found(late, broker_pb2.UPPER) == [2, 0, -1, -1]


async def test_committed_offsets_survive_a_restart_and_lie_in_apaches_file(
    start_broker: Any, broker: Any, tmp_path: Any
) -> None:
    await broker.send_bodies("t", 0, *[b"x"] * 5)
    assert await commit(broker, ("t", 0, 4, 0)) == [common_pb2.OK]
    await broker.stop()
    data = (tmp_path / "store" / "config" / "consumerOffset.json").read_bytes()
    assert ConsumerOffsetTable.load(data).query("g", "t", 0) == 4
    broker = await start_broker()
    assert await committed(broker) == {0: (common_pb2.OK, 4)}
    listed = await broker.groups.ListGroups(broker_pb2.ListGroupsRequest())
    assert list(listed.groups) == ["g"]


async def test_snapshots_are_written_while_the_broker_runs(
    start_broker: Any, tmp_path: Any
) -> None:
    broker = await start_broker(snapshot_interval_ms=50)
    await broker.send_bodies("t", 0, *[b"x"] * 5)
    await commit(broker, ("t", 0, 2, 0))
    path = tmp_path / "store" / "config" / "consumerOffset.json"
    for _ in range(100):
        if path.exists():
            break
        await asyncio.sleep(0.02)
    assert ConsumerOffsetTable.load(path.read_bytes()).query("g", "t", 0) == 2


@pytest.mark.parametrize("seed", range(4))
async def test_the_first_commit_and_a_reset_are_on_disk_before_they_are_acknowledged(
    start_broker: Any, tmp_path: Path, seed: int
) -> None:
    """Forgotten, the next member would begin where new groups begin: after unseen messages."""
    (tmp_path / "store").mkdir()
    write_topics(tmp_path / "store", {"t": TopicConfig(name="t", write_queue_count=4)})
    disk = FaultDisk(tmp_path / "store")
    never = {"snapshot_interval_ms": 3_600_000}
    config = StoreConfig(
        segment_bytes=1 << 20,
        disk_free_bytes_min=0,
        flush_interval_ms=3_600_000,
        retention=RetentionConfig(enabled=False),
    )
    broker = await start_broker(disk=disk, store=config, **never)
    await broker.send_bodies("t", 0, b"x", b"y")
    assert await commit(broker, ("t", 0, 1, 0)) == [common_pb2.OK]
    disk.cut_power(tmp_path / "first", random.Random(seed))
    await reset(broker, ("t", 0, 0))
    disk.cut_power(tmp_path / "reset", random.Random(seed))
    for folder, offset in (("first", 1), ("reset", 0)):
        after = await start_broker(root=tmp_path / folder, store=config, **never)
        assert await committed(after) == {0: (common_pb2.OK, offset)}
