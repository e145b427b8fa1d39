"""Messages read from live brokers, as Spark's driver and executors do it, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from aerobee.cluster_view.route import MessageQueue
from aerobee.offset_audit.sources.messages.batch_reader import BatchPlan
from aerobee.offset_audit.sources.messages.live_place import LivePlace
from aerobee.offset_audit.sources.messages.losses import MessagesLost
from aerobee.offset_audit.sources.messages.offsets import BEGAN, from_document
from aerobee.offset_audit.sources.store.conditions import Conditions, Numbers
from aerobee.runtime.errors import AerobeeError, TopicNotFound
from tests.offset_audit.stream_engine import Document, Engine, Row, bodies, options_of, rows_of
from tests.support.real_brokers import RealCluster, RouteServer, start_cluster

TOPICS = {"broker-a": {"orders": 2, "bills": 1}, "broker-b": {"orders": 1}}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    found = await start_cluster(tmp_path, TOPICS)
    try:
        yield found
    finally:
        await found.stop()


async def read(
    cluster: RealCluster, conditions: Conditions | None = None, **given: Any
) -> list[Row]:
    """A whole batch; each step in a thread with no loop, as in Spark's workers."""
    options = options_of(cluster.address, is_streaming=False, **given)
    plan = BatchPlan(options, conditions or Conditions())
    return await asyncio.to_thread(lambda: rows_of(plan.readings(LivePlace(options))))


# ---------------------------------------------------------------------------------- batches


async def test_a_batch_reads_every_message_of_every_broker_once(cluster: RealCluster) -> None:
    sent = []
    for broker, queues in (("broker-a", 2), ("broker-b", 1)):
        for queue in range(queues):
            some = [f"{broker} {queue} {n}" for n in range(50)]
            await cluster.send(
                "orders", queue, [one.encode() for one in some], broker=broker, tag="t"
            )
            sent += some
    rows = await read(cluster)
    assert bodies(rows) == sorted(sent)
    assert {row["broker_name"] for row in rows} == {"broker-a", "broker-b"}
    assert {row["tags"] for row in rows} == {"t"}
    small = await read(cluster, fetchBytes=4096, minPartitions=10)
    assert bodies(small) == sorted(sent)
    one = await read(cluster, assign='{"orders": {"broker-a": [1]}}')
    assert [row["queue_offset"] for row in one] == list(range(50))
    assert {row["broker_name"] for row in one} == {"broker-a"}
    middle = await read(cluster, Conditions().with_numbers("queue_offset", Numbers(10, 11)))
    assert sorted(row["queue_offset"] for row in middle) == [10, 10, 10, 11, 11, 11]


async def test_large_bodies_come_whole(cluster: RealCluster) -> None:
    large = [bytes([65 + n]) * 1_500_000 for n in range(5)]
    for body in large:
        await cluster.send("bills", 0, [body])
    rows = await read(cluster, topic="bills")
    assert [row["body"] for row in rows] == large


async def test_filters_by_time_are_exact(cluster: RealCluster) -> None:
    for n in range(6):
        await cluster.send("bills", 0, [b"%d" % n])
        await asyncio.sleep(0.01)
    times = [row["store_ms"] for row in await read(cluster, topic="bills")]
    conditions = Conditions().with_numbers("store_ms", Numbers(times[2], times[4]))
    assert bodies(await read(cluster, conditions, topic="bills")) == ["2", "3", "4"]
    rest = await read(cluster, topic="bills", startingTimestamp=times[3])
    assert bodies(rest) == ["3", "4", "5"]


async def test_a_topic_that_does_not_exist_is_named(cluster: RealCluster) -> None:
    with pytest.raises(TopicNotFound, match="topic 'nothing' has no queues at 127"):
        await read(cluster, topic="nothing")


async def test_a_broker_that_does_not_answer_fails_a_batch_in_time(cluster: RealCluster) -> None:
    await cluster.brokers["broker-b"].stop()
    with pytest.raises(AerobeeError, match="broker-b"):
        await read(cluster, timeoutMs=700)


async def test_messages_that_retention_removed_are_told_by_their_offsets(
    tmp_path: Path,
) -> None:
    cluster = await start_cluster(tmp_path, {"broker-a": {"orders": 1}})
    try:
        broker = cluster.brokers["broker-a"]
        for n in range(40):
            await cluster.send("orders", 0, [b"%d" % n * 500_000])
        first = '{"orders": {"broker-a": {"0": 0}}}'
        plan = BatchPlan(
            options_of(cluster.address, is_streaming=False, startingOffsets=first), Conditions()
        )
        readings = await asyncio.to_thread(plan.readings, LivePlace(plan.options))
        await broker.stop()
        min((tmp_path / "broker-a" / "commitlog").iterdir()).unlink()
        await broker.start()
        await asyncio.sleep(0)
        with pytest.raises(MessagesLost, match=r"orders@broker-a:0 offsets \[0, \d+\)"):
            await asyncio.to_thread(rows_of, readings)
        with pytest.raises(MessagesLost, match="removed by retention"):
            await read(cluster, startingOffsets=first)
        left = await read(cluster)
        assert 0 < len(left) < 40
        going_on = await read(cluster, startingOffsets=first, failOnDataLoss=False)
        assert bodies(going_on) == bodies(left)
    finally:
        await cluster.stop()


# ---------------------------------------------------------------------------------- streams


async def test_a_stream_reads_on_from_batch_to_batch(cluster: RealCluster) -> None:
    engine = Engine(cluster.address, startingOffsets="earliest")
    await cluster.send("orders", 0, [b"1", b"2"])
    assert bodies(await engine.step()) == ["1", "2"]
    assert await engine.step() is None
    await cluster.send("orders", 1, [b"3"])
    await cluster.send("orders", 0, [b"4"], broker="broker-b")
    assert bodies(await engine.step()) == ["3", "4"]
    assert engine.log[-1] == {
        "orders": {"broker-a": {"0": 2, "1": 1}, "broker-b": {"0": 1}},
    }
    assert engine.reader.reportLatestOffset() == engine.log[-1]


async def test_latest_means_since_the_query_began_also_after_a_kill_in_the_first_batch(
    cluster: RealCluster,
) -> None:
    await cluster.send("orders", 0, [b"before"])
    engine = Engine(cluster.address)
    # With nothing to read yet the first batch is empty, and says where the query began.
    assert await engine.step(dies=True) is None
    assert BEGAN in engine.log[0]
    await cluster.send("orders", 0, [b"after 1"])
    engine.restart()
    assert await engine.step() == []
    assert bodies(await engine.step()) == ["after 1"]
    assert BEGAN not in engine.log[1]

    other = Engine(cluster.address)
    await asyncio.to_thread(other.reader.initialOffset)
    await cluster.send("orders", 1, [b"after 2"])
    assert await other.step() == []  # began again: nothing was written down
    await cluster.send("orders", 1, [b"after 3"])
    await other.step(dies=True)
    await cluster.send("orders", 1, [b"after 4"])
    other.restart()
    assert bodies(await other.step()) == ["after 3"]
    assert bodies(await other.step()) == ["after 4"]


async def test_a_limit_is_shared_over_queues_in_proportion(cluster: RealCluster) -> None:
    await cluster.send("orders", 0, [b"a%d" % n for n in range(90)])
    await cluster.send("orders", 1, [b"b%d" % n for n in range(30)])
    engine = Engine(cluster.address, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert engine.reader.getDefaultReadLimit() == ReadMaxRows(40)
    rows = await engine.step() or []
    assert [sum(row["queue_id"] == queue for row in rows) for queue in range(2)] == [30, 10]
    taken = [rows]
    while (rows := await engine.step() or []) and len(taken) < 9:
        taken.append(rows)
    assert [len(rows) for rows in taken] == [40, 40, 40]
    assert len({(row["queue_id"], row["queue_offset"]) for rows in taken for row in rows}) == 120
    whole = Engine(cluster.address, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert len(await whole.step(ReadAllAvailable()) or []) == 120


async def test_queues_topics_and_brokers_that_appear_are_read_from_their_first_message(
    tmp_path: Path,
) -> None:
    cluster = await start_cluster(
        tmp_path, {"broker-a": {"orders": 1}, "broker-b": {"new": 1, "orders": 2}}
    )
    try:
        nameserver: RouteServer = cluster.nameserver
        late = nameserver.brokers.pop()
        engine = Engine(cluster.address, subscribePattern="orders|new")
        assert await engine.step() == []
        await cluster.send("new", 0, [b"1"], broker="broker-b")
        await cluster.send("orders", 1, [b"2"], broker="broker-b")
        await cluster.send("orders", 0, [b"3"], broker="broker-a")
        nameserver.brokers.append(late)
        engine.restart()
        assert bodies(await engine.step()) == ["1", "2", "3"]
    finally:
        await cluster.stop()


async def test_a_broker_that_is_away_does_not_stop_the_others_and_is_read_on_when_it_is_back(
    cluster: RealCluster,
) -> None:
    engine = Engine(cluster.address, startingOffsets="earliest", timeoutMs=1000)
    await cluster.send("orders", 0, [b"1"], broker="broker-b")
    assert bodies(await engine.step()) == ["1"]
    await cluster.send("orders", 0, [b"2"], broker="broker-b")
    await cluster.brokers["broker-b"].stop()
    await cluster.send("orders", 0, [b"3"], broker="broker-a")
    assert bodies(await engine.step()) == ["3"]
    assert await engine.step() is None
    await cluster.brokers["broker-b"].start()
    assert bodies(await engine.step()) == ["2"]


async def test_a_topic_that_is_deleted_fails_the_query_or_is_left_out(
    cluster: RealCluster,
) -> None:
    strict = Engine(cluster.address, subscribe="orders,bills", startingOffsets="earliest")
    other = Engine(
        cluster.address, subscribe="orders,bills", startingOffsets="earliest", failOnDataLoss=False
    )
    await cluster.send("bills", 0, [b"1"])
    for engine in (strict, other):
        assert bodies(await engine.step()) == ["1"]
    for broker in cluster.brokers.values():
        broker.topics = {name: count for name, count in broker.topics.items() if name != "bills"}
    await cluster.send("orders", 0, [b"2"])
    with pytest.raises(MessagesLost, match=r"bills@broker-a:0 .*the queue is gone"):
        await strict.step()
    assert bodies(await other.step()) == ["2"]
    assert MessageQueue("bills", "broker-a", 0) not in from_document(other.log[-1])


async def test_a_log_that_was_cut_back_is_told_and_read_again_only_without_fail_on_data_loss(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.send("orders", 0, [b"%d" % n for n in range(5)])
    ahead = _shifted(await _ends(cluster), 3)
    for fails in (True, False):
        engine = Engine(cluster.address, startingOffsets="earliest", failOnDataLoss=fails)
        engine.log, engine.committed = [ahead], 1
        if fails:
            with pytest.raises(MessagesLost, match=r"orders@broker-a:0 offsets \[5, 8\)"):
                await engine.step()
        else:
            # What is there now may be another log: all of it comes, once.
            assert bodies(await engine.step()) == ["0", "1", "2", "3", "4"]
            assert (
                "orders@broker-a:0 was cut back: its offsets 0 to 5 are read again" in caplog.text
            )
            await cluster.send("orders", 0, [b"new"])
            assert bodies(await engine.step()) == ["new"]


async def _ends(cluster: RealCluster) -> Document:
    engine = Engine(cluster.address, startingOffsets="earliest")
    await engine.step()
    return {topic: found for topic, found in engine.log[-1].items() if topic != BEGAN}


def _shifted(document: Mapping[str, Any], by: int) -> Document:
    shifted: Document = {topic: dict(brokers) for topic, brokers in document.items()}
    shifted["orders"]["broker-a"] = {**shifted["orders"]["broker-a"]}
    shifted["orders"]["broker-a"]["0"] += by
    return shifted


async def test_all_that_was_there_at_the_start_and_no_more_for_a_trigger_that_ends(
    cluster: RealCluster,
) -> None:
    await cluster.send("orders", 0, [b"1", b"2", b"3"])
    engine = Engine(cluster.address, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    await asyncio.to_thread(engine.reader.prepareForTriggerAvailableNow)
    await cluster.send("orders", 0, [b"late"])
    assert bodies(await engine.step()) == ["1", "2"]
    assert bodies(await engine.step()) == ["3"]
    assert await engine.step() is None
