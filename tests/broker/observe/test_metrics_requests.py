"""How requests are told of: by RocketMQ's name, by outcome, and in whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import DESCRIBE_GROUP, PULL, SEND_STREAM
from aerobee.runtime.errors import GroupNotFound, TopicNotFound
from aerobee.v1 import broker_pb2
from tests.broker.observe.many_queues import (
    GROUP,
    MESSAGES,
    running_broker,
    topic_name,
    write_folder,
)
from tests.faults.serving import batch_of
from tests.support.scrapes import Scrape


async def test_requests_are_counted_by_what_was_asked_and_how_it_went(tmp_path: Path) -> None:
    await asyncio.to_thread(write_folder, tmp_path / "broker", topics=2, queues=2)
    topic = topic_name(0)
    async with running_broker(tmp_path / "broker") as broker:
        address = f"127.0.0.1:{broker.port}"
        channels = Channels()
        try:
            for _ in range(3):
                pulled = await channels.call(
                    address, PULL, broker_pb2.PullRequest(topic=topic, queue_id=0)
                )
                assert pulled.record_count == MESSAGES
            with pytest.raises(TopicNotFound):
                await channels.call(address, PULL, broker_pb2.PullRequest(topic="unknown"))
            with pytest.raises(GroupNotFound):
                await channels.call(
                    address, DESCRIBE_GROUP, broker_pb2.DescribeGroupRequest(group="unknown")
                )
            stream = channels.open_stream(address, SEND_STREAM)
            for _ in range(2):
                await stream.write(broker_pb2.SendFrame(batches=[batch_of(topic, 0, b"a", b"b")]))
                answer = await stream.read()
                assert answer is not None
            await stream.write(broker_pb2.SendFrame(batches=[batch_of("unknown", 0, b"a")]))
            assert await stream.read() is not None
            found = await asyncio.to_thread(Scrape.of, broker.metrics)
            stream.cancel()
        finally:
            await channels.close()
    counts = {
        (dict(labels)["request_code"], dict(labels)["response_code"]): count
        for labels, count in found.rows("rocketmq_rpc_latency_count").items()
    }
    assert counts == {
        ("pull_message", "success"): 3,
        ("pull_message", "topic_not_found"): 1,
        ("describe_group", "group_not_found"): 1,
        ("send_message", "success"): 3,
    }
    assert found.get("aerobee_batches_refused_total", reason="topic_not_found") == 1
    # Counted from 0 on, so that the first one is an increase.
    assert found.get("aerobee_batches_refused_total", reason="not_writable") == 0
    assert found.get("rocketmq_messages_in_total", topic=topic) == 4
    assert found.get("rocketmq_messages_out_total", topic=topic, consumer_group="") == 9
    assert found.total("rocketmq_consumer_lag_messages", consumer_group=GROUP) == 2 * 2 * 2 + 4
    assert found.get("rocketmq_broker_permission") == 6
    assert found.get("aerobee_health", question="readiness") == 1


async def test_a_broker_alone_says_nothing_of_what_it_has_not(tmp_path: Path) -> None:
    await asyncio.to_thread(write_folder, tmp_path / "broker", topics=1, queues=1)
    async with running_broker(tmp_path / "broker") as broker:
        found = await asyncio.to_thread(Scrape.of, broker.metrics)
    for name in (
        "aerobee_broker_epoch",
        "aerobee_broker_lease_remaining_seconds",
        "aerobee_broker_registration_age_seconds",
        "aerobee_replica_lag_bytes",
        "aerobee_slave_behind_bytes",
        "rocketmq_messages_in_total",
        "rocketmq_rpc_latency_count",
    ):
        assert not found.rows(name), name
    assert found.get("rocketmq_storage_message_reserve_time") is not None
