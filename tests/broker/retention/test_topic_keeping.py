"""A topic that keeps its messages for a shorter time than the log, or fewer bytes of them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.domain.names import KEPT_FROM_GROUP
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.retention.retention_statistics import Because, GroupLoss
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.retention import RESERVED_MS, roomy_disk, write_times
from tests.support.waiting import until

HOUR_MS = 3_600_000
STORE = StoreConfig(
    segment_bytes=4096,
    consume_queue_entries_per_file=10,
    disk_free_bytes_min=0,
    checkpoint_interval_ms=50,
    flush_interval_ms=20,
    retention=RetentionConfig(first_clean_ms=3_600_000, delete_pause_ms=0, clean_interval_ms=20),
)
BODY = b"x" * 600


class MovedClock(SystemClock):
    """The machine's clocks, and what passed in addition."""

    def __init__(self) -> None:
        self.wall_ms = self.passed_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.passed_ms + self.wall_ms

    def monotonic_s(self) -> float:
        return SystemClock.monotonic_s() + self.passed_ms / 1_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def topics(**attributes: str) -> dict[str, TopicConfig]:
    return {
        "t": TopicConfig(name="t", read_queue_count=1, write_queue_count=1, attributes=attributes)
    }


async def send(broker: Any, count: int, *, topic: str = "t") -> None:
    for _ in range(count):
        ack = await broker.send_bodies(topic, 0, BODY)
        assert ack.code == common_pb2.OK, ack


async def bounds(broker: Any, topic: str = "t") -> tuple[int, int]:
    response = await broker.offsets.QueryBounds(
        broker_pb2.QueryBoundsRequest(queues=[broker_pb2.TopicQueue(topic=topic, queue_id=0)])
    )
    return response.bounds[0].min_offset, response.bounds[0].max_offset


async def begins_at(broker: Any, offset: int, topic: str = "t") -> None:
    async def holds() -> bool:
        return (await bounds(broker, topic))[0] == offset

    await until(holds, f"the queue begins at {offset}")


async def pull(broker: Any, offset: int) -> Any:
    return await broker.pull.Pull(broker_pb2.PullRequest(topic="t", queue_id=0, offset=offset))


async def commit(broker: Any, group: str, offset: int) -> Any:
    response = await broker.offsets.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(
            group=group,
            client_id="c",
            offsets=[broker_pb2.QueueOffset(topic="t", queue_id=0, offset=offset)],
        )
    )
    return response.results[0]


async def test_no_reader_finds_a_message_that_is_older_than_its_topic_keeps(
    start_broker: Any, root: Path, clock: MovedClock
) -> None:
    broker = await start_broker(store=STORE, topics=topics(keep_ms=str(HOUR_MS)), clock=clock)
    await send(broker, 3)
    clock.passed_ms += HOUR_MS // 2
    await send(broker, 2)
    first = await broker.admin.GetMessage(broker_pb2.GetMessageRequest(physical_offset=0))
    clock.passed_ms += HOUR_MS * 2 // 3
    await begins_at(broker, 3)

    assert await bounds(broker) == (3, 5)
    moved = await pull(broker, 0)
    assert (moved.code, moved.next_offset) == (common_pb2.OFFSET_TOO_SMALL, 3)
    assert (await pull(broker, 3)).record_count == 2
    found = await broker.offsets.SearchByTimestamp(
        broker_pb2.SearchByTimestampRequest(
            queues=[broker_pb2.TopicQueue(topic="t", queue_id=0)], timestamp_ms=0
        )
    )
    assert list(found.offsets) == [3]
    assert first.record, "it could be looked up while it was kept"
    with pytest.raises(grpc.aio.AioRpcError, match="older than topic t keeps"):
        await broker.admin.GetMessage(broker_pb2.GetMessageRequest(physical_offset=0))


async def test_a_queue_keeps_the_newest_messages_that_fit_into_its_bytes(
    start_broker: Any, clock: MovedClock
) -> None:
    broker = await start_broker(store=STORE, topics=topics(keep_bytes="3000"), clock=clock)
    await send(broker, 30)
    clock.passed_ms += 61_000
    await begins_at(broker, 26)  # each is a little larger than 700 bytes
    await send(broker, 1)
    clock.passed_ms += 61_000
    await begins_at(broker, 27)


async def test_a_message_larger_than_the_bytes_stays_while_it_is_the_newest(
    start_broker: Any, clock: MovedClock
) -> None:
    broker = await start_broker(store=STORE, topics=topics(keep_bytes="1"), clock=clock)
    await send(broker, 3)
    clock.passed_ms += 61_000
    await begins_at(broker, 2)
    assert (await pull(broker, 2)).record_count == 1


async def test_a_queue_begins_there_after_a_restart_too_and_nothing_comes_back(
    start_broker: Any, root: Path, clock: MovedClock
) -> None:
    broker = await start_broker(store=STORE, topics=topics(keep_ms=str(HOUR_MS)), clock=clock)
    await send(broker, 3)
    clock.passed_ms += 2 * HOUR_MS
    await begins_at(broker, 3)
    await broker.stop()
    # Without the attribute, so that nothing moves it again.
    again = await start_broker(store=STORE, topics=topics())
    assert await bounds(again) == (3, 3)
    await send(again, 1)
    assert await bounds(again) == (3, 4)
    assert (await pull(again, 3)).record_count == 1


async def test_what_a_group_had_not_read_is_counted_logged_and_no_longer_its_lag(
    start_broker: Any, clock: MovedClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(store=STORE, topics=topics(keep_ms=str(HOUR_MS)), clock=clock)
    await send(broker, 3)
    assert (await commit(broker, "billing", 1)).code == common_pb2.OK
    clock.passed_ms += 2 * HOUR_MS
    with caplog.at_level(logging.WARNING):
        await begins_at(broker, 3)
        await until(lambda: "messages removed unread" in caplog.text, "the warning")
    lost = broker.store.retention.statistics().removed_by_group
    assert lost == (GroupLoss("billing", "t", Because.TOPIC, 2),)
    await send(broker, 1)
    lags = await broker.groups.ListGroupLags(broker_pb2.ListGroupLagsRequest())
    unread = dict(zip(lags.groups, lags.unread, strict=True))
    assert unread == {"billing": 1, KEPT_FROM_GROUP: 0}


async def test_a_group_that_does_not_read_holds_no_more_of_the_log_than_its_topic_keeps(
    start_broker: Any, root: Path, clock: MovedClock
) -> None:
    broker = await start_broker(
        store=STORE, topics=topics(keep_ms=str(HOUR_MS)), clock=clock, disk=roomy_disk(root)
    )
    await commit(broker, "billing", 0)
    await send(broker, 23)
    await until(lambda: broker.store.ledger.is_settled, "everything in its files")
    write_times(root, clock.now_ms() - RESERVED_MS - 1_000)
    kept = await broker.admin.CleanStore(broker_pb2.CleanStoreRequest())
    assert kept.removed_segments == 0
    clock.passed_ms += 2 * HOUR_MS
    await begins_at(broker, 23)
    done = await broker.admin.CleanStore(broker_pb2.CleanStoreRequest())
    assert done.removed_segments == 4
    assert done.removed_unread == []


async def test_a_clock_that_was_set_forward_removes_nothing(
    start_broker: Any, clock: MovedClock
) -> None:
    both = {**topics(keep_ms=str(HOUR_MS)), "w": replace(topics()["t"], name="w")}
    both["w"] = replace(both["w"], attributes={"keep_bytes": "1"})
    broker = await start_broker(store=STORE, topics=both, clock=clock)
    await send(broker, 3)
    clock.wall_ms += 30 * 24 * HOUR_MS
    for rounds in (1, 2):  # the other topic says that there was a round
        await send(broker, 2, topic="w")
        clock.passed_ms += 61_000
        await begins_at(broker, 2 * rounds - 1, topic="w")
    assert await bounds(broker) == (0, 3)


async def test_only_brokers_move_where_a_queue_begins(broker: Any) -> None:
    await send(broker, 3)
    refused = await commit(broker, KEPT_FROM_GROUP, 3)
    assert refused.code == common_pb2.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError, match="belongs to the brokers"):
        await broker.groups.DeleteGroup(broker_pb2.DeleteGroupRequest(group=KEPT_FROM_GROUP))
    with pytest.raises(grpc.aio.AioRpcError, match="belongs to the brokers"):
        await broker.offsets.DeleteOffsets(
            broker_pb2.DeleteOffsetsRequest(group=KEPT_FROM_GROUP, topic="t")
        )
    assert await bounds(broker) == (0, 3)
