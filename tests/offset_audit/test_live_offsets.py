"""What Spark reads of live brokers and nameservers: real brokers, real gRPC, real Spark."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import COMMIT_OFFSETS, RESET_OFFSETS
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.direct import rows_by
from aerobee.offset_audit.sources.live.asking import LogAnswer, stretches
from aerobee.offset_audit.sources.live.batches import log_batch
from aerobee.offset_audit.sources.live.columns import split_tables
from aerobee.offset_audit.sources.live.offsets import OffsetsSource
from aerobee.offset_audit.tables import COLUMNS
from aerobee.offset_audit.tables import LOG_RANGE_BYTES as G
from aerobee.offset_audit.tables import LOG_STEP_BYTES as STEP_BYTES
from aerobee.testing.real_cluster import ClusterThread
from aerobee.v1 import audit_pb2, broker_pb2, common_pb2
from tests.support.fake_cluster import BrokerAt, BrokerPlace, FakeNameserver, FakeTopic
from tests.support.real_brokers import RealBroker, RealCluster, RouteServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


@dataclass
class Live:
    """Two brokers with topic `orders`, and a third that is registered and away."""

    loop: ClusterThread
    nameserver: FakeNameserver
    cluster: RealCluster
    folder: Path

    def commit(self, broker: str, group: str, queue_id: int, offset: int) -> None:
        queue = broker_pb2.QueueOffset(topic="orders", queue_id=queue_id, offset=offset)
        request = broker_pb2.CommitOffsetsRequest(group=group, client_id="c1", offsets=[queue])
        self._call(broker, COMMIT_OFFSETS, request)

    def reset(self, broker: str, group: str, queue_id: int, offset: int) -> None:
        queue = broker_pb2.QueueOffset(topic="orders", queue_id=queue_id, offset=offset)
        request = broker_pb2.ResetOffsetsRequest(group=group, offsets=[queue])
        self._call(broker, RESET_OFFSETS, request)

    def send(self, broker: str, queue_id: int, count: int) -> None:
        self.loop.call(self.cluster.send("orders", queue_id, [b"x"] * count, broker=broker))

    def address(self, broker: str) -> str:
        return self.cluster.brokers[broker].address

    @property
    def addresses(self) -> str:
        """Of the two brokers that are there."""
        return ",".join(broker.address for broker in self.cluster.brokers.values())

    def _call(self, broker: str, method: Any, request: Any) -> None:
        answer = self.loop.call(self.cluster.channels.call(self.address(broker), method, request))
        assert [result.code for result in answer.results] == [1]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    loop = ClusterThread("test-brokers")
    loop.start()
    try:
        live = loop.call(_start(loop, folder))
        live.send("broker-a", 0, 10)
        live.send("broker-b", 1, 5)
        loop.call(live.cluster.send("orders", 0, [b"x"] * 3, broker="broker-b", level=18))
        live.commit("broker-a", "billing", 0, 4)
        live.commit("broker-b", "billing", 1, 5)
        live.reset("broker-a", "audit", 0, 2)
        yield live
        loop.call(_stop(live))
    finally:
        loop.stop()


async def _start(loop: ClusterThread, folder: Path) -> Live:
    names = ("broker-a", "broker-b")
    brokers = {name: await RealBroker(name, folder / name, {"orders": 2}).start() for name in names}
    places: dict[str, BrokerPlace] = {
        name: BrokerAt(broker.address) for name, broker in brokers.items()
    }
    nameserver = await FakeNameserver(
        brokers={**places, "broker-c": BrokerAt("127.0.0.1:1")},
        topics={"orders": FakeTopic(dict.fromkeys(names, 2))},
    ).start()
    return Live(loop, nameserver, RealCluster(brokers, RouteServer([]), Channels()), folder)


async def _stop(live: Live) -> None:
    await live.cluster.channels.close()
    await live.nameserver.stop()
    for broker in live.cluster.brokers.values():
        await broker.stop()


def _read(spark: SparkSession, live: Live, **options: str) -> DataFrame:
    """Of the brokers that are there; the one that is away is asked for three seconds."""
    source = spark.read.format("aerobee.offsets").options(**options)
    return source.option("brokers", live.addresses).load()


def _read_all(spark: SparkSession, live: Live, **options: str) -> DataFrame:
    source = spark.read.format("aerobee.offsets").options(**options)
    return source.option("nameservers", live.nameserver.address).load()


def test_one_reading_holds_every_table(spark: SparkSession, live: Live) -> None:
    asked = _read_all(spark, live, firstUnread="true", matchingUnread="true").persist()
    try:
        tables = split_tables(asked)
        for name, frame in tables.items():
            assert frame.schema == schema(COLUMNS[name])
        brokers = {row.broker_name: row for row in tables["brokers"].collect()}
        queues = {
            (row.broker_name, row.topic, row.queue_id): row for row in tables["queues"].collect()
        }
        commits = {(row.broker_name, row.group): row for row in tables["commits"].collect()}
        minutes = tables["minutes"].collect()
        segments = tables["segments"].collect()
        waiting = tables["waiting"].collect()
    finally:
        asked.unpersist()
    assert [brokers[name].answered for name in sorted(brokers)] == [True, True, False]
    first = brokers["broker-a"]
    assert (first.role, first.master_id, first.in_sync) == ("MASTER", 0, [0])
    assert first.asked_at_ms <= first.commits_read_at_ms <= first.ends_read_at_ms
    assert first.ends_read_at_ms <= first.answered_at_ms
    assert queues["broker-a", "orders", 0].max_offset == 10
    assert queues["broker-a", "orders", 1].max_offset == 0
    assert queues["broker-a", "orders", 1].last_store_ms is None
    committed = commits["broker-a", "billing"]
    assert (committed.offset, committed.client_id, committed.is_reset) == (4, "c1", False)
    assert committed.committed_at_ms <= committed.read_at_ms
    assert committed.first_unread_ms <= committed.committed_at_ms
    assert committed.matching_unread is None
    assert commits["broker-b", "billing"].first_unread_ms is None
    assert commits["broker-a", "audit"].is_reset
    assert commits["broker-a", "audit"].client_id is None
    counted = {(row.broker_name, row.topic, row.messages) for row in minutes}
    assert {each for each in counted if each[1] == "orders"} == {
        ("broker-a", "orders", 10),
        ("broker-b", "orders", 5),
    }
    (waits,) = waiting
    assert (waits.broker_name, waits.topic, waits.kind) == ("broker-b", "orders", "DELAY")
    assert waits.messages == 3
    assert waits.first_due_ms > first.answered_at_ms
    assert [row.position for row in segments] == [0, 0]


def test_a_broker_that_is_away_is_one_row_that_says_so(spark: SparkSession, live: Live) -> None:
    asked = _read_all(spark, live).where("broker_name = 'broker-c'").persist()
    try:
        assert [row.table for row in asked.collect()] == ["brokers"]
        rows = split_tables(asked)["brokers"].collect()
    finally:
        asked.unpersist()
    assert [row.answered for row in rows] == [False]
    assert "127.0.0.1:1" in rows[0].error
    assert rows[0].role is None


def test_brokers_can_be_named_instead_of_nameservers(spark: SparkSession, live: Live) -> None:
    source = spark.read.format("aerobee.offsets").option("table", "queues")
    rows = source.option("brokers", live.address("broker-b")).load().collect()
    assert {row.broker_name for row in rows} == {"broker-b"}


def test_filters_are_sparks_and_leave_the_frame_whole(spark: SparkSession, live: Live) -> None:
    rows = _read(spark, live, table="commits").where("`group` = 'billing'").collect()
    assert {(row.group, row.broker_name) for row in rows} == {
        ("billing", "broker-a"),
        ("billing", "broker-b"),
    }
    assert not _read(spark, live, table="commits").where("`group` = 'nobody'").collect()
    rows = _read(spark, live).where("table = 'topics'").collect()
    assert {row.topic for row in rows} == {
        "orders",
        "AEROBEE_OFFSET_JOURNAL",
        "AEROBEE_POP_JOURNAL",
        "AEROBEE_SCHEDULE_JOURNAL",
        "AEROBEE_TIMER_JOURNAL",
        "AEROBEE_TRANSACTION_JOURNAL",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "rmq_sys_wheel_timer",
    }


def test_the_registry_says_who_is_there_and_at_which_revision(
    spark: SparkSession, live: Live
) -> None:
    source = spark.read.format("aerobee.registry").option("nameservers", live.nameserver.address)
    brokers = source.option("table", "brokers").load().collect()
    assert {row.address for row in brokers} >= {live.address("broker-a"), "127.0.0.1:1"}
    assert {row.revision for row in brokers} == {live.nameserver.version}
    topics = source.option("table", "topics").load().collect()
    assert sorted((row.topic, row.broker_name, row.write_queue_count) for row in topics) == [
        ("orders", "broker-a", 2),
        ("orders", "broker-b", 2),
    ]
    assert source.option("table", "groups").load().schema == schema(COLUMNS["registry_groups"])


def test_a_source_that_is_read_directly_gives_the_same_rows(
    spark: SparkSession, live: Live
) -> None:
    options = {"brokers": live.addresses, "table": "commits"}
    asked = spark.read.format("aerobee.offsets").options(**options).load().drop("read_at_ms")
    source = OffsetsSource(options)
    direct = rows_by(spark, source.reader(source.schema()), source.schema()).drop("read_at_ms")
    assert direct.schema == asked.schema
    rows = sorted(asked.collect())
    assert sorted(direct.collect()) == rows
    source = OffsetsSource(options)
    columns = source.schema()
    for rows_here in (1, len(rows)):
        reader = source.reader(columns)
        here = rows_by(spark, reader, columns, rows_here=rows_here).drop("read_at_ms")
        assert here.schema == asked.schema
        assert sorted(here.collect()) == rows
        # Rows that were read here are part of the plan; more of them are Spark's to read.
        assert is_read_by_workers(here) == (rows_here < len(rows))


def is_read_by_workers(frame: DataFrame) -> bool:
    java: Any = frame._jdf
    return "MapInArrow" in java.queryExecution().analyzed().toString()


def _changes(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (row.broker_name, row.group, row.topic, row.queue_id, row.offset, row.client_id, row.kind)
        for row in rows
        if row.kind != "image"
    )


def test_the_offset_journal_is_the_same_live_and_at_rest(spark: SparkSession, live: Live) -> None:
    source = spark.read.format("aerobee.offset_journal")
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        source.option("nameservers", live.nameserver.address).load().collect()
    asked = source.option("nameservers", live.nameserver.address).option("skipUnreachable", "true")
    found = asked.load().collect()
    assert _changes(found) == [
        ("broker-a", "audit", "orders", 0, 2, None, "reset"),
        ("broker-a", "billing", "orders", 0, 4, "c1", "commit"),
        ("broker-b", "billing", "orders", 1, 5, "c1", "commit"),
    ]
    assert all(row.timestamp_ms > 1_700_000_000_000 for row in found)
    later = max(row.timestamp_ms for row in found) + 1_000_000
    assert not asked.option("sinceMs", str(later)).load().collect()
    at_rest = spark.read.format("aerobee.offset_journal").load(str(live.folder / "broker-*"))
    assert _changes(at_rest.collect()) == _changes(found)


def test_brokers_give_checksums_of_their_logs_as_files_have_them(
    spark: SparkSession, live: Live
) -> None:
    for _ in range(20):
        live.send("broker-a", 1, 50)
    told = _read(spark, live, table="log_ranges").collect()
    assert {row.broker_name for row in told} == {"broker-a", "broker-b"}
    for name in ("broker-a", "broker-b"):
        rows = [row for row in told if row.broker_name == name]
        segment = min((live.folder / name).rglob("commitlog/0*")).read_bytes()
        assert [row.begin for row in rows] == [0, *(row.end for row in rows[:-1])]
        for row in rows:
            assert (row.cluster, row.broker_id, row.store) == ("aerobee", 0, None)
            assert row.checksum == zlib.crc32(segment[row.begin : row.end])
        files = spark.read.format("aerobee.store").option("kind", "log_ranges")
        stored = files.load(str(live.folder / name)).collect()
        of_files = {(row.begin, row.end): row.checksum for row in stored}
        assert of_files == {(row.begin, row.end): row.checksum for row in rows}, name
    with pytest.raises(PySparkException, match="is not one of"):
        _read(spark, live, table="log_range").collect()


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (0, 0, []),
        (0, 100, [(0, 100, STEP_BYTES)]),
        (7, 100, [(7, 100, STEP_BYTES)]),
        (0, G, [(0, G, G)]),
        (5, 3 * G + 1, [(5, G, STEP_BYTES), (G, 3 * G, G), (3 * G, 3 * G + 1, STEP_BYTES)]),
        (G + 5, 2 * G - 1, [(G + 5, 2 * G - 1, STEP_BYTES)]),
    ],
)
def test_a_log_is_asked_for_in_the_ranges_of_the_grid(
    begin: int, end: int, expected: list[tuple[int, int, int]]
) -> None:
    assert list(stretches(begin, end)) == expected


def test_a_log_that_cannot_be_read_to_its_end_has_a_range_without_checksum() -> None:
    identity = common_pb2.BrokerIdentity(cluster="c", broker_name="b", broker_id=2)
    ranges = [
        audit_pb2.LogChecksum(begin=0, end=10, checksum=7),
        audit_pb2.LogChecksum(
            begin=10, end=20, fault=common_pb2.Status(code=common_pb2.STORE_FAILED)
        ),
    ]
    (batch,) = log_batch(LogAnswer(identity, ranges, "it broke off"))
    assert batch.select(["broker_id", "begin", "end", "checksum"]).to_pylist() == [
        {"broker_id": 2, "begin": 0, "end": 10, "checksum": 7},
        {"broker_id": 2, "begin": 10, "end": 20, "checksum": None},
        {"broker_id": 2, "begin": 20, "end": 20, "checksum": None},
    ]
    assert list(log_batch(LogAnswer(common_pb2.BrokerIdentity(), [], "nobody is there"))) == []
