"""Messages that Apache's broker had handed out by POP, on a folder that it left."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.feature import Progress
from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.pop_records import REVIVE_GROUP
from aerobee.store.format.properties import encode_properties
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import running_broker
from tests.support.v2_calls import V2
from tests.support.waiting import until

pytestmark = pytest.mark.slow

GROUP, TOPIC, REVIVE_LOG = "billing", "orders", "rmq_sys_REVIVE_LOG_DefaultCluster"
TOPICS = {
    name: TopicConfig(name=name, read_queue_count=count, write_queue_count=count)
    for name, count in ((TOPIC, 1), (REVIVE_LOG, 2))
}
RETRIES = f"%RETRY%{GROUP}_{TOPIC}"
LONG_AGO_MS = 1_700_000_000_000


def checkpoint(offsets: Sequence[int], pop_ms: int, topic: str = TOPIC, done: int = 0) -> Any:
    steps = [each - offsets[0] for each in offsets]
    return {
        "tag": "ck",
        **{"bm": done, "bn": "broker-a", "c": GROUP, "d": steps, "it": 60_000, "n": len(steps)},
        **{"pt": pop_ms, "q": 0, "so": offsets[0], "t": topic},
    }


def ack(offset: int, start: int, pop_ms: int) -> Any:
    return {
        "tag": "ack",
        **{"ao": offset, "bn": "broker-a", "c": GROUP, "pt": pop_ms, "q": 0, "so": start},
        "t": TOPIC,
    }


def write(broker: Any, queue_id: int, *told: Any) -> None:
    """As Apache's timer stores it."""
    for each in told:
        body = {name: value for name, value in each.items() if name != "tag"}
        properties = encode_properties({"TAGS": each["tag"]})
        broker.writes.append(REVIVE_LOG, queue_id, json.dumps(body).encode(), properties=properties)


def revived_to(broker: Any, queue_id: int) -> int | None:
    """The last record that is done, as Apache's broker notes it."""
    offset: int | None = broker.feature(Progress).offsets.query(
        GroupQueue(REVIVE_GROUP, REVIVE_LOG, queue_id)
    )
    return offset


async def received(broker: Any, wanted: int) -> list[tuple[str, int]]:
    """So many bodies and attempts, acknowledged."""
    client, found = V2(broker.channel), list[tuple[str, int]]()
    while len(found) < wanted:
        got = await client.receive(TOPIC, GROUP)
        found += [
            (each.body.decode(), each.system_properties.delivery_attempt) for each in got.messages
        ]
        assert set(await client.acknowledge(GROUP, *got.messages)) == {v2.OK}
    return sorted(found)


def revived(broker: Any) -> int:
    """How many messages have ever come again."""
    count: int = broker.store.queues.bounds(RETRIES, 0).max_offset
    return count


async def fill(broker: Any) -> None:
    """Four messages, all of them handed out by Apache's broker, whose offset is after them."""
    await broker.send_bodies(TOPIC, 0, b"0", b"1", b"2", b"3")
    await broker.feature(Progress).offsets.begin(GroupQueue(GROUP, TOPIC, 0), 4)


async def test_what_was_not_acknowledged_comes_again_once_over_restarts(tmp_path: Path) -> None:
    async with running_broker(tmp_path, topics=TOPICS) as broker:
        await fill(broker)
        write(broker, 0, checkpoint([0, 2, 3], LONG_AGO_MS), ack(2, 0, LONG_AGO_MS))
        write(broker, 1, checkpoint([1], LONG_AGO_MS, done=1))
        assert await received(broker, 2) == [("0", 2), ("3", 2)]
        await until(lambda: [revived_to(broker, each) for each in (0, 1)] == [1, 0])
        await broker.stop()
    async with running_broker(tmp_path) as broker:
        write(broker, 0, checkpoint([1], LONG_AGO_MS + 1))
        assert await received(broker, 1) == [("1", 2)]
        assert revived(broker) == 3


async def test_what_apaches_broker_had_in_its_retry_topic_comes(tmp_path: Path) -> None:
    topic = TopicConfig(name=RETRIES, read_queue_count=1, write_queue_count=1)
    async with running_broker(tmp_path, topics={**TOPICS, RETRIES: topic}) as broker:
        await fill(broker)
        broker.writes.append(RETRIES, 0, b"again")
        assert await received(broker, 1) == [("again", 1)]
        # Handed out once more by Apache's broker, and not acknowledged.
        write(broker, 0, checkpoint([0], LONG_AGO_MS, topic=RETRIES))
        assert await received(broker, 1) == [("again", 2)]


async def test_nothing_comes_before_its_time_and_the_log_is_done_up_to_it(tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    async with running_broker(tmp_path, topics=TOPICS) as broker:
        await fill(broker)
        write(
            broker,
            0,
            checkpoint([0], LONG_AGO_MS),
            checkpoint([1], now_ms),
            checkpoint([3], LONG_AGO_MS + 1),
        )
        assert await received(broker, 2) == [("0", 2), ("3", 2)]
        await until(lambda: revived_to(broker, 0) == 0)
        assert revived(broker) == 2


async def test_what_apaches_broker_has_revived_does_not_come_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path, topics=TOPICS) as broker:
        await fill(broker)
        begun = broker.feature(Progress).offsets.begin(GroupQueue(REVIVE_GROUP, REVIVE_LOG, 0), 0)
        assert begun is not None
        await begun
        write(broker, 0, checkpoint([0], LONG_AGO_MS), checkpoint([1], LONG_AGO_MS))
        assert await received(broker, 1) == [("1", 2)]
        await until(lambda: revived_to(broker, 0) == 1)
        assert revived(broker) == 1


async def test_what_is_no_record_of_the_log_is_passed_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path, topics=TOPICS) as broker:
        await fill(broker)
        broken = {**checkpoint([1], LONG_AGO_MS), "so": "x"}
        gone = checkpoint([77], LONG_AGO_MS)
        write(broker, 0, broken, gone, checkpoint([2], LONG_AGO_MS))
        assert await received(broker, 1) == [("2", 2)]
        await until(lambda: revived_to(broker, 0) == 2)
        assert revived(broker) == 1
