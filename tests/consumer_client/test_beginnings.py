"""A consumer that has started misses nothing that is sent afterwards."""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.client_core import ClusterConnection
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import ConsumerConfig, PullConsumer, PushConsumer, StartFrom
from aerobee.consumer_client.broker_offsets import BrokerOffsetStore
from aerobee.runtime import errors
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until

QUICK = ConsumerConfig(
    session_timeout_ms=1_000,
    commit_interval_ms=60_000,
    request_timeout_ms=1_000,
    failover_timeout_ms=4_000,
    close_timeout_ms=3_000,
)


def member(cluster: RealCluster, topic: str = "orders", group: str = "g") -> PullConsumer:
    return PullConsumer(group, nameservers=cluster.address, config=QUICK).subscribe(topic)


async def read(consumer: PullConsumer, count: int) -> set[bytes]:
    """Exactly so many messages, or what came in time."""
    bodies: list[bytes] = []
    async with asyncio.timeout(10):
        while len(bodies) < count:
            bodies += [message.body for message in await consumer.poll()]
    assert len(bodies) == count
    return set(bodies)


async def send_to_all(cluster: RealCluster, word: str) -> set[bytes]:
    for queue_id in range(4):
        await cluster.send("orders", queue_id, [f"{word} {queue_id}".encode()])
    return {f"{word} {queue_id}".encode() for queue_id in range(4)}


async def test_what_is_sent_right_after_the_start_arrives_and_nothing_older(
    cluster: RealCluster,
) -> None:
    await send_to_all(cluster, "before")
    async with member(cluster) as consumer:
        sent = await send_to_all(cluster, "after")
        assert await read(consumer, 4) == sent


async def test_a_push_consumer_that_has_started_is_called_with_what_follows(
    cluster: RealCluster,
) -> None:
    bodies: set[bytes] = set()
    await send_to_all(cluster, "before")
    consumer = PushConsumer(
        "g",
        lambda messages: bodies.update(each.body for each in messages),
        run_in_thread=False,
        nameservers=cluster.address,
        config=QUICK,
    ).subscribe("orders")
    async with consumer:
        sent = await send_to_all(cluster, "after")
        await until(lambda: bodies >= sent)
    assert bodies == sent


async def test_members_that_start_together_and_one_without_a_queue_miss_nothing(
    cluster: RealCluster,
) -> None:
    await cluster.send("single", 0, [b"before"])
    members = [member(cluster, "single") for _ in range(3)]
    await asyncio.gather(*(each.__aenter__() for each in members))
    try:
        await cluster.send("single", 0, [b"after"])
        bodies: list[bytes] = []

        async def poll_all() -> bool:
            for each in members:
                bodies.extend(message.body for message in await each.poll(timeout=0.05))
            return bool(bodies)

        await until(poll_all)
        assert bodies == [b"after"]
    finally:
        for each in members:
            await each.aclose()


async def test_the_beginning_stays_when_the_first_member_is_gone_before_its_first_commit(
    cluster: RealCluster,
) -> None:
    """Nobody may have held the queue yet: the group knows where it begins all the same."""
    await send_to_all(cluster, "before")
    async with member(cluster):
        assert set((await cluster.committed("g")).values()) == {1}
    sent = await send_to_all(cluster, "between")
    async with member(cluster) as second:
        assert await read(second, 4) == sent


async def test_after_a_deletion_under_members_they_begin_at_the_end_again_and_miss_nothing_more(
    two_brokers: RealCluster,
) -> None:
    """At one broker first, as a deletion that met a broker without a master may leave it."""

    async def send_everywhere(word: str) -> set[bytes]:
        bodies = {f"{word} {broker} {queue}".encode() for broker in "ab" for queue in (0, 1)}
        for body in bodies:
            _, broker, queue = body.decode().split()
            await two_brokers.send("orders", int(queue), [body], broker=f"broker-{broker}")
        return bodies

    async def has_begun(broker: str) -> bool:
        return len(await two_brokers.committed("g", broker=broker)) == 2

    async with member(two_brokers, group="g") as consumer:
        sent = await send_everywhere("first")
        assert await read(consumer, 4) == sent
        await consumer.commit()
        for broker in ("broker-a", "broker-b"):
            await two_brokers.delete_group("g", broker=broker)
            await until(lambda broker=broker: has_begun(broker))
            sent = await send_everywhere(broker)
            assert await read(consumer, 4) == sent
            await consumer.commit()


async def test_the_queues_of_a_broker_that_has_forgotten_the_group_are_read_from_the_first_message(
    two_brokers: RealCluster,
) -> None:
    """It has begun, says the other one: more than it asked for, never less."""

    async def send_to_both(word: str) -> set[bytes]:
        for broker in two_brokers.brokers:
            await two_brokers.send("orders", 0, [f"{word} {broker}".encode()], broker=broker)
        return {f"{word} {broker}".encode() for broker in two_brokers.brokers}

    async with member(two_brokers) as consumer:
        before = await send_to_both("before")
        assert await read(consumer, 2) == before
        await consumer.commit()
    await two_brokers.delete_group("g", broker="broker-a")
    between = await send_to_both("between")
    async with member(two_brokers) as consumer:
        assert await read(consumer, 3) == {b"before broker-a", *between}


async def test_queues_that_are_new_since_the_start_are_read_from_their_first_message(
    cluster: RealCluster,
) -> None:
    broker = cluster.brokers["broker-a"]
    broker.topics = {"orders": 2}
    await cluster.nameserver.publish()
    async with member(cluster) as consumer:
        broker.topics = {"orders": 4}
        # A producer knows of them before this consumer does.
        sent = await send_to_all(cluster, "after")
        await cluster.nameserver.publish()
        assert await read(consumer, 4) == sent


async def test_queues_that_came_while_no_member_was_there_are_read_from_their_first_message(
    cluster: RealCluster,
) -> None:
    broker = cluster.brokers["broker-a"]
    broker.topics = {"orders": 2}
    await cluster.nameserver.publish()
    async with member(cluster):
        pass
    broker.topics = {"orders": 4}
    await cluster.nameserver.publish()
    sent = await send_to_all(cluster, "between")
    async with member(cluster) as consumer:
        assert await read(consumer, 4) == sent


async def test_a_start_waits_for_a_master_that_is_away_for_a_moment(
    cluster: RealCluster,
) -> None:
    await send_to_all(cluster, "before")
    await cluster.brokers["broker-a"].stop()
    await cluster.nameserver.publish()

    async def come_back() -> None:
        # Long enough for the start to ask, whose calls show nothing from outside.
        await asyncio.sleep(0.3)
        await cluster.brokers["broker-a"].start()
        await cluster.nameserver.publish()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(come_back())
        consumer = member(cluster)
        await consumer.start()
    sent = await send_to_all(cluster, "after")
    assert await read(consumer, 4) == sent
    await consumer.aclose()


async def test_a_group_that_begins_needs_every_broker_and_says_which_one_is_missing(
    two_brokers: RealCluster,
) -> None:
    await two_brokers.brokers["broker-b"].stop()
    await two_brokers.nameserver.publish()
    options = replace(QUICK, failover_timeout_ms=500)
    consumer = PullConsumer("g", nameservers=two_brokers.address, config=options).subscribe(
        "orders"
    )
    with pytest.raises(errors.NoBrokerAvailable, match="broker-b"):
        await consumer.start()
    assert await two_brokers.committed("g") == {}, "a start that fails fixes nothing"


async def test_a_group_that_has_begun_starts_without_a_broker_that_is_down(
    two_brokers: RealCluster,
) -> None:
    async with member(two_brokers):
        pass
    await two_brokers.send("orders", 0, [b"kept"], broker="broker-b")
    await two_brokers.brokers["broker-b"].stop()
    await two_brokers.nameserver.publish()
    async with member(two_brokers) as consumer:
        await two_brokers.send("orders", 0, [b"a"], broker="broker-a")
        assert await read(consumer, 1) == {b"a"}
        await two_brokers.brokers["broker-b"].start()
        await two_brokers.nameserver.publish()
        assert await read(consumer, 1) == {b"kept"}


async def test_a_topic_that_is_created_later_is_read_from_its_first_message(
    cluster: RealCluster,
) -> None:
    broker = cluster.brokers["broker-a"]
    broker.topics = {}
    await cluster.nameserver.publish()
    options = ConsumerConfig(session_timeout_ms=1_000, await_topics=True)
    async with PullConsumer("g", nameservers=cluster.address, config=options).subscribe(
        "orders"
    ) as consumer:
        sent = await send_to_all(cluster, "first")
        broker.topics = {"orders": 4}
        await cluster.nameserver.publish()
        assert await read(consumer, 4) == sent


async def test_broadcasting_fixes_the_beginning_in_its_file(
    cluster: RealCluster, tmp_path: Path
) -> None:
    await send_to_all(cluster, "before")

    def screen() -> PullConsumer:
        return PullConsumer(
            "g",
            nameservers=cluster.address,
            auto_commit=False,
            broadcasting=True,
            offsets_folder=tmp_path,
            config=QUICK,
        ).subscribe("orders")

    async with screen() as consumer:
        sent = await send_to_all(cluster, "after")
        assert await read(consumer, 4) == sent
    async with screen() as consumer:
        assert await read(consumer, 4) == sent


async def test_queues_of_ones_own_choice_are_read_from_where_assign_returned(
    cluster: RealCluster,
) -> None:
    await cluster.send("single", 0, [b"before"])
    async with PullConsumer("g", nameservers=cluster.address, config=QUICK) as consumer:
        await consumer.assign(await consumer.queues_of("single"))
        await cluster.send("single", 0, [b"after"])
        assert await read(consumer, 1) == {b"after"}


async def test_who_says_first_where_a_group_begins_decides(cluster: RealCluster) -> None:
    await cluster.send("single", 0, [b"x"] * 5)
    queue = MessageQueue("single", "broker-a", 0)
    async with ClusterConnection(cluster.address) as connection:
        store = BrokerOffsetStore(connection, group="g", client_id="m", timeout_ms=2_000)
        assert await store.begin({queue: 2}) == {}
        assert await store.begin({queue: 4}) == {}
        assert await store.read([queue]) == {queue: 2}
        refused = await store.begin({MessageQueue("single", "broker-a", 9): 0})
        assert [type(error) for error in refused.values()] == [errors.QueueNotFound]


async def test_begins_at_first_needs_nobody_at_the_start(two_brokers: RealCluster) -> None:
    await two_brokers.brokers["broker-b"].stop()
    await two_brokers.nameserver.publish()
    await two_brokers.send("orders", 0, [b"a"], broker="broker-a")
    consumer = PullConsumer(
        "g", nameservers=two_brokers.address, start_from=StartFrom.FIRST, config=QUICK
    ).subscribe("orders")
    async with consumer:
        assert await read(consumer, 1) == {b"a"}


async def test_a_consumer_may_be_started_before_its_cluster(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    port = cluster.address.rpartition(":")[2]
    await cluster.nameserver.stop()
    consumer = member(cluster)
    starting = asyncio.create_task(consumer.start())
    await until(lambda: "the start waits for the cluster" in caplog.text)
    assert not starting.done()
    await cluster.nameserver.start(port=int(port))
    await starting
    sent = await send_to_all(cluster, "after")
    assert await read(consumer, 4) == sent
    await consumer.aclose()


async def test_a_cluster_that_does_not_come_is_one_error_without_the_transports(
    cluster: RealCluster,
) -> None:
    await cluster.nameserver.stop()
    options = replace(QUICK, await_cluster_ms=300)
    consumer = PullConsumer("g", nameservers=cluster.address, config=options).subscribe("orders")
    with pytest.raises(errors.Unreachable, match="cannot reach") as caught:
        await consumer.start()
    shown = "".join(traceback.format_exception(caught.value))
    assert "grpc" not in shown


async def test_stop_ends_a_start_that_waits_for_its_cluster(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.nameserver.stop()
    consumer = PushConsumer(
        "g", lambda messages: None, run_in_thread=False, nameservers=cluster.address, config=QUICK
    )
    running = asyncio.create_task(consumer.subscribe("orders").run())
    await until(lambda: "the start waits for the cluster" in caplog.text)
    consumer.stop()
    async with asyncio.timeout(2):
        await running


async def test_a_second_member_of_one_name_fails_its_start_and_the_log_says_why_before(
    cluster: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    patient = replace(QUICK, session_timeout_ms=3_000, failover_timeout_ms=12_000)

    def twin() -> PullConsumer:
        return PullConsumer(
            "g", nameservers=cluster.address, client_id="twin", config=patient
        ).subscribe("orders")

    # The first one must not lose its session where others use the machine.
    async with twin():
        with pytest.raises(errors.DuplicateClient, match="twin"):
            await twin().start()
    assert "another live member has this client id" in caplog.text


async def test_what_ends_a_consumer_is_raised_from_poll(cluster: RealCluster) -> None:
    def twin() -> PullConsumer:
        return PullConsumer(
            "g",
            nameservers=cluster.address,
            client_id="twin",
            start_from=StartFrom.FIRST,
            config=QUICK,
        ).subscribe("orders")

    async def poll_again_and_again(consumer: PullConsumer) -> None:
        for _ in range(4):
            await consumer.poll(timeout=2)

    async with twin() as first:
        await until(lambda: bool(first.assignment))
        second = twin()
        await second.start()
        with pytest.raises(errors.DuplicateClient, match="twin"):
            await poll_again_and_again(second)
        with pytest.raises(errors.DuplicateClient, match="twin"):
            await second.aclose()
