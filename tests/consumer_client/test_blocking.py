"""Consumers for code without an event loop, and listeners that block."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee import (
    BlockingPullConsumer,
    BlockingPushConsumer,
    ConsumerConfig,
    Ordering,
    PullConsumer,
    ReceivedMessage,
    errors,
)
from tests.support.own_topic import OwnTopic
from tests.support.real_brokers import RealCluster
from tests.support.waiting import PATIENCE_S, until

ONE_QUEUE = pytest.mark.aerobee_topic(queues=1)


@ONE_QUEUE
async def test_a_script_reads_commits_and_goes_back(own: OwnTopic) -> None:
    await own.store([b"%d" % n for n in range(10)])

    def script() -> None:
        consumer = BlockingPullConsumer(own.group_name, **own.options()).subscribe(own.topic)
        with pytest.raises(errors.ShuttingDown, match="not open"):
            consumer.poll()
        with consumer:
            bodies = []
            for message in consumer:
                bodies.append(message.body)
                if len(bodies) == 10:
                    break
            assert bodies == [b"%d" % n for n in range(10)]
            consumer.commit()
            (queue,) = consumer.assignment
            assert consumer.committed([queue]) == {queue: 10}
            assert consumer.position(queue) == 10
            consumer.seek(queue, 8)
            assert [each.body for each in consumer.poll(timeout=PATIENCE_S)] == [b"8", b"9"]
            assert consumer.statistics().handled == 12
        consumer.close()
        with pytest.raises(errors.ShuttingDown):
            consumer.poll()

    await asyncio.to_thread(script)


@ONE_QUEUE
async def test_a_worker_runs_until_a_listener_stops_it(own: OwnTopic, tmp_path: Path) -> None:
    await own.store([b"one"])
    threads: list[threading.Thread] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        threads.append(threading.current_thread())
        consumer.stop()

    consumer = BlockingPushConsumer(
        own.group_name, handle, **own.options(offsets_folder=tmp_path)
    ).subscribe(own.topic)
    await asyncio.wait_for(asyncio.to_thread(consumer.run), PATIENCE_S)
    assert consumer.statistics().handled == 1
    assert "aerobee-listener" in threads[0].name
    assert (await own.offsets())[0] == 1


@ONE_QUEUE
async def test_what_ends_the_consumer_ends_the_call_that_waits(
    own: OwnTopic, tmp_path: Path
) -> None:
    async with own.pull(client_id="same"):
        consumer = BlockingPushConsumer(
            own.group_name,
            lambda messages: None,
            **own.options(client_id="same", offsets_folder=tmp_path),
        ).subscribe(own.topic)
        with pytest.raises(errors.DuplicateClient, match="'same' is in use"):
            await asyncio.wait_for(asyncio.to_thread(consumer.run), PATIENCE_S)


@pytest.mark.parametrize("ordering", Ordering)
@ONE_QUEUE
async def test_a_listener_that_blocks_costs_no_queue(
    ordering: Ordering, own: OwnTopic, quick: ConsumerConfig, tmp_path: Path
) -> None:
    """It blocks for longer than the session; on the loop no heartbeat would leave meanwhile."""
    await own.store([b"slow", b"next"])
    seen: list[bytes] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body == b"slow":
            time.sleep(quick.session_timeout_ms * 1.5 / 1_000)
        seen.extend(message.body for message in messages)

    consumer = own.push(handle, ordering=ordering, run_in_thread=True, offsets_folder=tmp_path)
    async with consumer:
        await until(lambda: len(seen) == 2)
        assert sorted(seen) == [b"next", b"slow"]
        if ordering is Ordering.ORDERLY:
            assert seen == [b"slow", b"next"]
        statistics = consumer.statistics()
        assert (statistics.queues_lost, statistics.duplicates) == (0, 0)


@ONE_QUEUE
async def test_a_plain_function_may_return_something_to_wait_for(
    own: OwnTopic, tmp_path: Path
) -> None:
    await own.store([b"one"])
    loops: list[asyncio.AbstractEventLoop] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        loops.append(asyncio.get_running_loop())

    consumer = own.push(
        lambda messages: handle(messages), run_in_thread=True, offsets_folder=tmp_path
    )
    async with consumer:
        await until(lambda: consumer.statistics().handled == 1)
    assert loops == [asyncio.get_running_loop()]


@ONE_QUEUE
async def test_messages_are_iterated(own: OwnTopic) -> None:
    await own.store([b"a", b"b"])
    consumer = own.pull()
    async with consumer:
        found = []
        async for message in consumer:
            found.append(message.body)
            if len(found) == 2:
                break
        await consumer.commit()
    assert found == [b"a", b"b"]
    assert (await own.offsets())[0] == 2


async def test_clients_take_the_nameserver_of_the_environment(
    cluster: RealCluster, quick: ConsumerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AEROBEE_NAMESERVER", cluster.address)
    monkeypatch.setenv("AEROBEE_CLUSTER", "another")
    consumer = PullConsumer("g", cluster="c", config=quick)
    async with consumer:
        pass
    monkeypatch.delenv("AEROBEE_CLUSTER")
    with pytest.raises(errors.TopicNotFound):
        async with PullConsumer("g", config=quick).subscribe("nowhere"):
            pass
