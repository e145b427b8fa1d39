"""A close keeps what was finished, wherever there is somebody to keep it; else it says so."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee.consumer_client import (
    ConsumerConfig,
    Exhausted,
    MessageQueue,
    Ordering,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RetryPolicy,
    StartFrom,
)
from aerobee.runtime import errors
from aerobee.runtime.log import FIELDS_ATTRIBUTE
from aerobee.v1 import common_pb2, nameserver_pb2
from tests.support.own_topic import OwnTopic
from tests.support.real_brokers import Broker, Link, RealBroker, RealCluster, RouteServer
from tests.support.waiting import PATIENCE_S, until

ONE_QUEUE = pytest.mark.aerobee_topic(queues=1)

QUEUES = 8
OPTIONS = ConsumerConfig(
    commit_interval_ms=60_000,
    request_timeout_ms=1_000,
    release_timeout_ms=1_000,
    failover_timeout_ms=500,
)


def given_up(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [
        getattr(record, FIELDS_ATTRIBUTE)
        for record in caplog.records
        if "not acknowledged" in record.getMessage() and record.levelno == logging.WARNING
    ]


async def lose_master(cluster: RealCluster, broker: Broker) -> None:
    slave = nameserver_pb2.BrokerEndpoint(
        identity=common_pb2.BrokerIdentity(broker_name=broker.name, broker_id=1),
        address="127.0.0.1:9",
        role=common_pb2.SLAVE,
    )
    cluster.nameserver.slaves.append(slave)
    await broker.stop()
    await cluster.nameserver.publish()


@pytest.mark.slow
async def test_a_broker_that_hangs_at_the_close_costs_the_queues_of_the_others_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    healthy = await RealBroker("broker-a", tmp_path / "a", {"orders": QUEUES}).start()
    hung = await RealBroker("broker-b", tmp_path / "b", {"orders": QUEUES}).start()
    link = await Link(hung).start()
    nameserver = await RouteServer([healthy, link]).start()
    cluster = RealCluster({"broker-a": healthy, "broker-b": hung}, nameserver)
    count = 0

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal count
        count += len(messages)

    consumer = PushConsumer(
        "g",
        listen,
        run_in_thread=False,
        nameservers=nameserver.address,
        start_from=StartFrom.FIRST,
        config=OPTIONS,
    ).subscribe("orders")
    await consumer.start()
    try:
        await until(lambda: len(consumer.statistics().queues) == 2 * QUEUES)
        for broker_name in cluster.brokers:
            for queue_id in range(QUEUES):
                await cluster.send("orders", queue_id, [b"x"] * 10, broker=broker_name)
        await until(lambda: count == 20 * QUEUES)
        link.freeze()
        closing_s = time.monotonic()
        await consumer.aclose()
        took_s = time.monotonic() - closing_s
        committed = await cluster.committed("g", broker="broker-a")
        assert set(committed.values()) == {10}
        assert len(committed) == QUEUES
        # Queue after queue it would be as many times the second that a call may take.
        assert took_s < QUEUES * 0.6
        told = given_up(caplog)
        assert {each["queue"] for each in told} == {
            MessageQueue("orders", "broker-b", queue_id) for queue_id in range(QUEUES)
        }
    finally:
        link.thaw()
        await link.stop()
        await cluster.stop()


async def test_a_close_without_a_master_says_which_commits_it_gave_up(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    count = 0

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal count
        count += len(messages)

    consumer = PushConsumer(
        "g",
        listen,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=OPTIONS,
    ).subscribe("single")
    async with consumer:
        await cluster.send("single", 0, [b"x"] * 10)
        await until(lambda: count == 10)
        await lose_master(cluster, cluster.brokers["broker-a"])
    (told,) = given_up(caplog)
    assert told["queue"] == MessageQueue("single", "broker-a", 0)
    assert told["safe_offset"] == 10
    assert "master" in str(told["reason"])


@ONE_QUEUE
async def test_a_close_that_commits_everything_gives_no_such_warning(
    own: OwnTopic, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = own.pull(config=OPTIONS)
    async with consumer:
        await own.store([b"x"] * 10)
        assert len(await consumer.poll(10, timeout=5)) == 10
        await consumer.poll(10, timeout=0)
    assert await own.offsets() == {0: 10}
    assert given_up(caplog) == []


async def test_without_a_master_a_commit_raises_and_the_close_after_it_warns(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = PullConsumer(
        "g",
        nameservers=cluster.address,
        auto_commit=False,
        start_from=StartFrom.FIRST,
        config=OPTIONS,
    ).subscribe("single")
    async with consumer:
        await cluster.send("single", 0, [b"x"] * 10)
        assert len(await consumer.poll(10, timeout=5)) == 10
        await lose_master(cluster, cluster.brokers["broker-a"])
        with pytest.raises(errors.AerobeeError):
            await consumer.commit()
    (told,) = given_up(caplog)
    assert told["safe_offset"] == 10


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("ordering", Ordering)
@ONE_QUEUE
async def test_an_exit_of_on_exhausted_ends_the_block_in_order(
    kind: type[BaseException], ordering: Ordering, own: OwnTopic, tmp_path: Path
) -> None:
    await own.store([b"good", b"bad", b"never"])
    handled: list[bytes] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        handled.append(messages[0].body)
        if messages[0].body == b"bad":
            raise ValueError("bad")

    async def give_up(messages: Sequence[ReceivedMessage], attempts: int) -> Exhausted:
        await asyncio.sleep(0)
        raise kind(3)

    consumer = own.push(
        handle,
        ordering=ordering,
        max_concurrency=1,
        retry=RetryPolicy(attempts_max=1),
        on_exhausted=give_up,
        offsets_folder=tmp_path,
        config=OPTIONS,
    )
    with pytest.raises(kind):
        async with consumer:
            await asyncio.sleep(PATIENCE_S)
    assert handled == [b"good", b"bad"]
    assert (await own.offsets())[0] == 1
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("kind", ["async", "in a thread", "on the loop"])
@ONE_QUEUE
async def test_a_listener_that_exits_lets_the_others_end_and_ends_the_block(
    kind: str, own: OwnTopic, tmp_path: Path
) -> None:
    await own.store([b"slow", b"exit"])
    exited = threading.Event()

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body == b"exit":
            exited.set()
            sys.exit(3)
        if kind == "in a thread":
            exited.wait(PATIENCE_S)
            time.sleep(0.1)

    async def handle_async(messages: Sequence[ReceivedMessage]) -> None:
        handle(messages)
        while not exited.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    consumer = own.push(
        handle_async if kind == "async" else handle,
        run_in_thread=kind == "in a thread",
        offsets_folder=tmp_path,
        config=OPTIONS,
    )
    with pytest.raises(SystemExit) as ended:
        async with consumer:
            await asyncio.sleep(PATIENCE_S)
    assert ended.value.code == 3
    assert consumer.statistics().handled == 1
    assert (await own.offsets())[0] == 1
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
