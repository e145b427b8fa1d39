"""The figures of a busy cluster of real processes are those that its clients counted."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from aerobee.broker.sending.acknowledged import MESSAGE_SIZES
from aerobee.client_core import ClusterConnection, ReceivedMessage, TopicAdmin
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import PULL, SEND_BACK
from aerobee.consumer_client import (
    ConsumerConfig,
    PullConsumer,
    PushConsumer,
    QueueStatistics,
    StartFrom,
)
from aerobee.producer_client import Compression, Message, Producer, ProducerConfig, SendStatus
from aerobee.runtime.errors import QueueNotFound
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2
from tests.faults.clusters import ClusterProcess
from tests.support.monitoring import (
    alert_expressions,
    dashboard_expressions,
    documented_names,
    family_of,
    names_in,
    variable_queries,
)
from tests.support.scrapes import Scrape
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TOPICS = ("flights", "bookings")
SWITCHED_OFF = {
    "aerobee_access_refusals_total",
    "aerobee_audit_log_lines_lost_total",
    "aerobee_audit_log_refusals_left_out_total",
    "aerobee_audit_log_sequence",
    "aerobee_backup_timestamp_seconds",
    "aerobee_tier_failures_total",
    "aerobee_tier_uploaded_bytes_total",
    "aerobee_tier_uploaded_segments_total",
    "aerobee_tier_waiting_segments",
    "aerobee_tls_certificate_expiry_timestamp_seconds",
}
"""Of nodes with access control, an audit log, certificates, backups or a tier: these here have
none."""
NOTHING_TO_TELL = {
    "aerobee_metrics_left_out_series",
    "aerobee_retention_removed_unread_by_group_total",
}
"""They name what was left out and what was lost: here nothing."""
GROUP, SLOW_GROUP = "billing", "ledger"
OPTIONS = ConsumerConfig(commit_interval_ms=200, await_topics=True, rebalance_interval_ms=500)
_ADDRESS = re.compile(r"metrics are served .*address=([\d.]+:\d+)")


class Watched:
    """A cluster, and where its processes show their figures."""

    def __init__(self, cluster: ClusterProcess) -> None:
        self.cluster = cluster
        self.master = ""

    def address(self, name: str) -> str:
        said = (self.cluster.data / "logs" / f"{name}.log").read_text()
        return str(_ADDRESS.findall(said)[-1])

    def brokers(self) -> dict[str, str]:
        """Addresses by the names of processes."""
        document = json.loads((self.cluster.data.parent / "ready.json").read_text())
        return {
            one["name"] if one["id"] == 0 else f"{one['name']}-{one['id']}": one["address"]
            for one in document["brokers"]
        }

    async def find_master(self) -> str:
        """Its name, once there is one."""
        for name in self.brokers():
            if (await self.scrape(name)).get("aerobee_broker_acting"):
                self.master = name
        return self.master

    async def scrape(self, name: str) -> Scrape:
        return await asyncio.to_thread(Scrape.of, self.address(name))


@pytest.fixture(params=["one broker, page cache", "master and slave, both flush"])
async def watched(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    monkeypatch.setenv("AEROBEE_BROKER_METRICS_LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("AEROBEE_NAMESERVER_METRICS_LISTEN", "127.0.0.1:0")
    several = () if "page cache" in request.param else ("--replicas", "2", "--flush", "sync")
    cluster = await ClusterProcess(tmp_path, *several).start()
    try:
        yield Watched(cluster)
    finally:
        await cluster.close()


def _body(chance: random.Random) -> bytes:
    size = chance.choice((20, 300, 900, 1_500, 6_000))
    return chance.randbytes(size)


async def _send(producer: Producer, topic: str, count: int, sent: Counter[str]) -> None:
    chance = random.Random(f"{topic} {count}")

    async def one() -> None:
        receipt = await producer.send(Message(topic, _body(chance)))
        if receipt.status is SendStatus.OK:
            sent[topic] += 1

    for begin in range(0, count, 250):
        await asyncio.gather(*(one() for _ in range(begin, min(count, begin + 250))))
    await producer.send(Message(topic, chance.randbytes(700_000)))
    sent[topic] += 1


async def _stored_sizes(address: str, topic: str) -> list[int]:
    """Of every record that the broker has of a topic, read without a group."""
    channels = Channels()
    sizes: list[int] = []
    try:
        for queue_id in range(1_000):
            offset = 0
            while True:
                request = broker_pb2.PullRequest(topic=topic, queue_id=queue_id, offset=offset)
                try:
                    answer = await channels.call(address, PULL, request)
                except QueueNotFound:
                    return sizes
                if not answer.record_count:
                    break
                sizes += [len(raw.raw) for raw in iterate_records(answer.records)]
                offset = answer.next_offset
    finally:
        await channels.close()
    raise AssertionError("queues without end")


@pytest.mark.thorough
async def test_what_prometheus_scrapes_is_what_clients_counted(watched: Watched) -> None:
    nameserver = watched.cluster.nameserver
    await until(watched.find_master, "a master")
    async with ClusterConnection(nameserver) as connection:
        for topic in TOPICS:
            await TopicAdmin(connection).create(topic, queues=4)
    sent: Counter[str] = Counter()
    handled: Counter[str] = Counter()

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            handled[message.topic] += 1

    config = ProducerConfig(compression=Compression.NONE, linger_ms=5)
    async with (
        Producer(nameservers=nameserver, config=config) as first,
        Producer(nameservers=nameserver, config=config) as second,
    ):
        consumers = [
            PushConsumer(GROUP, handle, nameservers=nameserver, config=OPTIONS,
                         start_from=StartFrom.FIRST)
            for _ in range(2)
        ]  # fmt: skip
        for consumer in consumers:
            for topic in TOPICS:
                consumer.subscribe(topic)
            await consumer.start()
        # Else queues change hands while messages come, and what was in a cache is sent again.
        await until(
            lambda: all(len(one.statistics().queues) == 4 for one in consumers),
            "each member has its share",
        )
        sending = asyncio.gather(
            *(_send(one, topic, 1_500, sent) for one in (first, second) for topic in TOPICS)
        )
        await _check_while_busy(watched, sent, sending)
        await sending
        await until(lambda: sum(handled.values()) == sum(sent.values()), "all is handled")
        assert handled == sent
        scrape = await _quiet(watched)
        _check_traffic(scrape, sent, handled)
        assert scrape.get("rocketmq_producer_connections") == 2
        assert scrape.get("rocketmq_consumer_connections", consumer_group=GROUP) == 2
        assert scrape.get("rocketmq_consumer_group_number") == 1
        for consumer in consumers:
            await consumer.aclose()
    await _check_bytes(watched, sent)
    await _check_topic_numbers(watched)
    await _check_lag_of_a_slow_group(watched, sent)
    await _check_slave(watched)
    await _check_names(watched)


async def _check_while_busy(
    watched: Watched, sent: Counter[str], sending: asyncio.Future[list[None]]
) -> None:
    """Counters only rise, and what is acknowledged to clients is counted on the next new page."""
    before: dict[str, float] = dict.fromkeys(TOPICS, 0.0)
    page_before, scrapes = None, 0
    while not sending.done():
        acknowledged = Counter(sent)
        scrape = await watched.scrape(watched.master)
        page = scrape.get("aerobee_metrics_gather_seconds")
        for topic in TOPICS:
            value = scrape.total("rocketmq_messages_in_total", topic=topic)
            assert value >= before[topic]
            # A page that took long answers for a while.
            assert page == page_before or value >= acknowledged[topic], (topic, value, acknowledged)
            before[topic] = value
        page_before = page
        scrapes += 1
        await asyncio.sleep(0.05)
    assert scrapes > 2, "the test has looked at a busy cluster"


async def _quiet(watched: Watched) -> Scrape:
    """Once everything that was handled is committed."""

    async def look() -> Scrape | None:
        scrape = await watched.scrape(watched.master)
        rows = scrape.rows("rocketmq_consumer_lag_messages", consumer_group=GROUP)
        return scrape if rows and not any(rows.values()) else None

    found: Scrape = await until(look, "everything is committed")
    return found


def _check_traffic(scrape: Scrape, sent: Counter[str], handled: Counter[str]) -> None:
    for topic in TOPICS:
        labels = {"topic": topic, "consumer_group": GROUP}
        assert scrape.total("rocketmq_messages_in_total", topic=topic) == sent[topic]
        assert scrape.get("rocketmq_messages_in_total", topic=topic, message_type="normal",
                          cluster="aerobee", node_type="broker") == sent[topic]  # fmt: skip
        assert scrape.get("rocketmq_messages_out_total", **labels) == handled[topic]
        assert scrape.get("rocketmq_throughput_out_total", **labels) == scrape.get(
            "rocketmq_throughput_in_total", topic=topic
        )
        for name in ("lag_messages", "lag_latency", "inflight_messages", "ready_messages"):
            assert scrape.get(f"rocketmq_consumer_{name}", **labels) == 0, name


async def _check_bytes(watched: Watched, sent: Counter[str]) -> None:
    """Bytes and sizes are those of the stored records, as one who reads all of them sees them."""
    address = watched.brokers()[watched.master]
    sizes = {topic: await _stored_sizes(address, topic) for topic in TOPICS}
    scrape = await watched.scrape(watched.master)
    for topic in TOPICS:
        assert len(sizes[topic]) == sent[topic]
        assert scrape.get("rocketmq_throughput_in_total", topic=topic) == sum(sizes[topic])
        assert scrape.get("rocketmq_message_size_sum", topic=topic) == sum(sizes[topic])
        assert scrape.get("rocketmq_message_size_count", topic=topic) == sent[topic]
        below = 0
        buckets = Counter(bisect_left(MESSAGE_SIZES, size) for size in sizes[topic])
        for number, bound in enumerate(MESSAGE_SIZES):
            below += buckets[number]
            le = f"{float(bound)}"
            assert scrape.get("rocketmq_message_size_bucket", topic=topic, le=le) == below, le
        assert len(buckets) == 4, "small, middle and large ones were sent"
        alone = {"topic": topic, "consumer_group": ""}
        assert scrape.get("rocketmq_messages_out_total", **alone) == sent[topic]
        assert scrape.get("rocketmq_throughput_out_total", **alone) == sum(sizes[topic])
    assert scrape.get("rocketmq_producer_connections") == 0


async def _check_topic_numbers(watched: Watched) -> None:
    async with ClusterConnection(watched.cluster.nameserver) as connection:
        topics = await TopicAdmin(connection).list()
    of_broker, of_nameserver = (
        await watched.scrape(watched.master),
        await watched.scrape("nameserver"),
    )
    assert of_nameserver.get("rocketmq_topic_number") == len(topics)
    assert of_broker.get("rocketmq_topic_number") == len(topics)


async def _check_lag_of_a_slow_group(watched: Watched, sent: Counter[str]) -> None:
    """A member that has taken a little, committed less, and has some more in its cache."""
    topic = TOPICS[0]
    options = ConsumerConfig(prefetch_bytes_max=40_000, fetch_bytes_max=20_000)
    consumer = PullConsumer(
        SLOW_GROUP,
        nameservers=watched.cluster.nameserver,
        config=options,
        start_from=StartFrom.FIRST,
        auto_commit=False,
    )
    taken: list[ReceivedMessage] = []
    async with consumer.subscribe(topic):
        while len(taken) < 40:
            taken += await consumer.poll(20, timeout=10)
        await consumer.commit()
        committed = len(taken)
        while len(taken) < 100:
            taken += await consumer.poll(20, timeout=10)
        queues = await _settled(consumer)
        before_ms = time.time() * 1_000
        scrape = await watched.scrape(watched.master)
        after_ms = time.time() * 1_000
        while len({one.queue for one in taken[committed:]}) < len(queues):
            taken += await consumer.poll(20, timeout=10)
    # After what the clients have there is more at the broker, and each queue has its part.
    fetched = sum(one.position + one.cached_messages for one in queues)
    assert len(queues) == 4
    assert committed < fetched < sent[topic]
    labels = {"topic": topic, "consumer_group": SLOW_GROUP}
    assert scrape.get("rocketmq_consumer_lag_messages", **labels) == sent[topic] - committed
    assert scrape.get("rocketmq_consumer_inflight_messages", **labels) == fetched - committed
    assert scrape.get("rocketmq_consumer_ready_messages", **labels) == sent[topic] - fetched
    assert scrape.get("rocketmq_messages_out_total", **labels) == fetched
    latency_ms = scrape.get("rocketmq_consumer_lag_latency", **labels)
    oldest_ms = min(one.store_timestamp_ms for one in taken[committed:])
    assert latency_ms is not None
    assert before_ms - oldest_ms - 2 <= latency_ms <= after_ms - oldest_ms + 2


async def _settled(consumer: PullConsumer) -> Sequence[QueueStatistics]:
    """Its queues once nothing more comes: each has as much in its cache as it may."""
    before: list[tuple[int, int]] = []
    while True:
        queues = consumer.statistics().queues
        now = [(one.position, one.cached_messages) for one in queues]
        if now == before and len(now) == 4:
            return queues
        before = now
        await asyncio.sleep(1.0)


async def _check_slave(watched: Watched) -> None:
    """A slave tells of its log, and nothing of groups: what it knows of them may be old."""
    slaves = sorted(watched.brokers().keys() - {watched.master})
    if not slaves:
        return
    replica = "1" if watched.master == "broker-a" else "0"
    master, slave = await watched.scrape(watched.master), await watched.scrape(slaves[0])
    assert master.get("aerobee_broker_role", role="master") == 1
    assert slave.get("aerobee_broker_role", role="slave") == 1
    assert not slave.rows("rocketmq_consumer_lag_messages")
    assert not slave.rows("rocketmq_messages_in_total")
    assert master.get("aerobee_replica_in_sync", replica=replica) == 1
    assert master.get("aerobee_replica_lag_bytes", replica=replica) == 0
    assert slave.get("aerobee_slave_behind_bytes") == 0
    assert slave.get("aerobee_broker_epoch") == master.get("aerobee_broker_epoch") is not None
    assert (master.get("aerobee_broker_lease_remaining_seconds") or 0) > 0
    ends = {scrape.get("aerobee_log_end_bytes", end="confirmed") for scrape in (master, slave)}
    assert len(ends) == 1


async def _make_a_dead_letter(address: str) -> None:
    channels = Channels()
    request = broker_pb2.SendBackRequest(
        group="never-content", topic=TOPICS[0], messages=[broker_pb2.FailedMessage(level=-1)]
    )
    try:
        (result,) = (await channels.call(address, SEND_BACK, request)).results
    finally:
        await channels.close()
    assert result.dead_letter


async def _check_names(watched: Watched) -> None:
    """The documentation explains what is exported, no more and no less; and what the dashboard and
    the alerts ask for is there."""
    await _make_a_dead_letter(watched.brokers()[watched.master])
    names = [*watched.brokers(), "nameserver"]
    # Of groups without members less is told.
    consumer = PullConsumer(
        SLOW_GROUP, nameservers=watched.cluster.nameserver, start_from=StartFrom.FIRST
    )
    async with consumer.subscribe(TOPICS[0]):
        assert await consumer.poll(1, timeout=10)
        scrapes = [await watched.scrape(name) for name in names]
    exported = {family_of(name) for scrape in scrapes for name in scrape.names()}
    assert not exported & NOTHING_TO_TELL
    exported |= SWITCHED_OFF | NOTHING_TO_TELL
    if len(names) > 2:  # master and slave: together they show everything
        assert exported == documented_names()
        asked = alert_expressions() + dashboard_expressions() + variable_queries()
        assert names_in(asked) <= exported
    else:
        assert exported <= documented_names()
    nameserver = scrapes[-1]
    assert nameserver.get("aerobee_etcd_reachable") == 1
    assert nameserver.get("aerobee_group_has_master", broker_group="broker-a") == 1
    assert nameserver.get("aerobee_nameserver_live_brokers") == len(names) - 1
    assert nameserver.get("aerobee_nameserver_routes_stale") == 0
    assert (nameserver.get("aerobee_etcd_call_seconds_count") or 0) > 0
