"""`aerobee.messages` inside Spark: batches, filters, streams into Parquet, kills and restarts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.offset_audit.messages_query import stream_into
from tests.support.real_brokers import RealCluster, start_cluster
from tests.support.stores import SMALL, append, flush, open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPICS = {"broker-a": {"orders": 2}, "broker-b": {"orders": 1}}
QUERY = Path(__file__).with_name("messages_query.py")
QUEUES = (("broker-a", 0), ("broker-a", 1), ("broker-b", 0))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    found = await start_cluster(tmp_path / "brokers", TOPICS)
    try:
        yield found
    finally:
        await found.stop()


class Sender:
    """Sends numbered messages to the queues in turn, and remembers them."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self.sent: list[str] = []
        self._is_over = False

    async def send(self, count: int) -> None:
        for _ in range(count):
            broker, queue_id = QUEUES[len(self.sent) // 20 % len(QUEUES)]
            some = [f"message {len(self.sent) + n}" for n in range(20)]
            await self._cluster.send(
                "orders", queue_id, [one.encode() for one in some], broker=broker
            )
            self.sent += some

    async def go_on(self) -> None:
        while not self._is_over:
            await self.send(1)
            await asyncio.sleep(0.1)

    def end(self) -> None:
        """After the send that is under way: cancelled, it would be stored and in nobody's list."""
        self._is_over = True


async def in_thread(call: Callable[[], Any]) -> Any:
    """Spark waits; the brokers run on this loop."""
    return await asyncio.to_thread(call)


def source(spark: SparkSession, cluster: RealCluster, **options: Any) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    reader = spark.read.format("aerobee.messages").option("nameservers", cluster.address)
    return reader.options(**{"topic": "orders", **texts}).load()


def in_sink(out: Path) -> list[str]:
    """The bodies in a folder that Spark streamed into: of the files that its log names."""
    log = out / "_spark_metadata"
    compacts = [int(path.stem) for path in log.glob("*.compact")]
    first = max(compacts, default=0)
    names = [f"{first}.compact"] if compacts else ["0"]
    batches = sorted(int(path.name) for path in log.iterdir() if path.name.isdigit())
    names += [str(batch) for batch in batches if batch > first]
    found: list[str] = []
    for name in names:
        if not (log / name).exists():
            continue
        for line in (log / name).read_text().splitlines()[1:]:
            table = pq.read_table(json.loads(line)["path"].removeprefix("file://"))
            found += [body.decode() for body in table["body"].to_pylist()]
    return found


def assert_once(found: list[str], sent: list[str]) -> None:
    counts = Counter(found)
    assert [one for one in sent if counts[one] != 1] == []
    assert len(found) == len(sent)


# ---------------------------------------------------------------------------------- batches


async def test_a_batch_of_a_live_topic_used_again_and_again(
    spark: SparkSession, cluster: RealCluster
) -> None:
    sender = Sender(cluster)
    await sender.send(30)
    messages = source(spark, cluster)
    rows = await in_thread(messages.select("body", "queue_id", "store_ms").collect)
    assert_once([row.body.decode() for row in rows], sender.sent)
    # Not so with pushFilters: Spark keeps the filters of one query for the next.
    assert await in_thread(messages.filter("queue_id = 1").count) == 200
    assert await in_thread(messages.count) == 600


async def test_filters_that_are_pushed_give_what_spark_alone_would_give(
    spark: SparkSession, cluster: RealCluster
) -> None:
    await Sender(cluster).send(30)
    rows = await in_thread(source(spark, cluster).collect)
    last_ms = max(row.store_ms for row in rows)
    for condition, kept in (
        (
            "topic = 'orders' and broker_name = 'broker-a' and queue_id in (1, 7) "
            "and queue_offset >= 3 and queue_offset < 5",
            2,
        ),
        (f"store_ms > {last_ms}", 0),
        (f"store_ms >= {last_ms}", sum(row.store_ms == last_ms for row in rows)),
        ("topic = 'other'", 0),
    ):
        pushed = source(spark, cluster, pushFilters="true").filter(condition)
        assert await in_thread(pushed.count) == kept, condition


async def test_a_store_and_its_error_when_messages_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = open_store(tmp_path / "broker-a", SMALL)
    for n in range(40):
        append(store, "orders", n % 2, b"order %d" % n * 20, tag="t")
    flush(store)
    store.close()
    reader = spark.read.format("aerobee.messages").option("topic", "orders")
    messages = reader.load(str(tmp_path / "broker-a"))
    assert await in_thread(messages.count) == 40
    assert messages.schema["keys"].dataType.simpleString() == "array<string>"
    (segment,) = (path for path in (tmp_path / "broker-a" / "commitlog").glob("*04096"))
    segment.unlink()
    with pytest.raises(PySparkException, match="messages that were to be read are gone"):
        await in_thread(messages.count)
    left = reader.option("failOnDataLoss", "false").load(str(tmp_path / "broker-a"))
    assert 0 < await in_thread(left.count) < 40


async def test_a_mistyped_option_is_refused_at_once(
    spark: SparkSession, cluster: RealCluster
) -> None:
    with pytest.raises(PySparkException, match=r"did you mean startingOffsets\?"):
        await in_thread(lambda: source(spark, cluster, startingOffset="earliest"))


# ---------------------------------------------------------------------------------- streams


@pytest.mark.thorough
async def test_a_query_stopped_again_and_again_writes_each_message_once(
    spark: SparkSession, cluster: RealCluster, tmp_path: Path
) -> None:
    sender = Sender(cluster)
    await sender.send(20)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def start(*, is_bounded: bool = False) -> Any:
        options = {
            "nameservers": cluster.address,
            "subscribe": "orders",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "100000" if is_bounded else "150",
        }
        return stream_into(spark, options, str(out), str(checkpoint), is_bounded=is_bounded)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sender.go_on())
        for _ in range(2):
            query = await in_thread(start)
            seen = len(list(checkpoint.glob("commits/[0-9]*")))
            while len(list(checkpoint.glob("commits/[0-9]*"))) < seen + 2:
                assert query.exception() is None
                await asyncio.sleep(0.05)
            await in_thread(query.stop)
            assert max(one["numInputRows"] for one in query.recentProgress) <= 150
        sender.end()
    query = await in_thread(lambda: start(is_bounded=True))
    await in_thread(query.awaitTermination)
    assert_once(in_sink(out), sender.sent)
    assert_once([row.body.decode() for row in spark.read.parquet(str(out)).collect()], sender.sent)


@pytest.mark.thorough
async def test_a_stream_fails_with_the_offsets_that_are_gone(
    spark: SparkSession, cluster: RealCluster, tmp_path: Path
) -> None:
    await Sender(cluster).send(2)
    ahead = '{"orders": {"broker-a": {"0": 900, "1": 0}, "broker-b": {"0": 0}}}'
    messages = (
        spark.readStream.format("aerobee.messages")
        .option("nameservers", cluster.address)
        .option("subscribe", "orders")
        .option("startingOffsets", ahead)
        .load()
    )
    query = messages.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match=r"orders@broker-a:0 offsets \[20, 900\)"):
        await in_thread(query.awaitTermination)


# ---------------------------------------------------------------------------------- kills


@pytest.mark.thorough
@pytest.mark.parametrize("kills", [(0,), pytest.param((0, 2), marks=pytest.mark.long)])
async def test_a_job_killed_in_the_middle_of_batches_writes_each_message_once(
    spark: SparkSession, cluster: RealCluster, tmp_path: Path, kills: tuple[int, ...]
) -> None:
    """`kills`: each in a batch after so many that are committed."""
    sender = Sender(cluster)
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    options = {"nameservers": cluster.address, "topic": "orders"}
    async with asyncio.TaskGroup() as tasks:
        # The first kill is in the very first batch, of a query that began at the latest offsets.
        await sender.send(3)
        before = len(sender.sent)
        tasks.create_task(sender.go_on())
        for batches in kills:
            limited = json.dumps({**options, "maxOffsetsPerTrigger": "60"})
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(QUERY), limited, out, checkpoint), start_new_session=True
            )
            await _in_middle_of_batch(Path(checkpoint), batches, process)
            os.killpg(process.pid, signal.SIGKILL)
            assert await process.wait() == -signal.SIGKILL
        sender.end()
    # Another job takes over to the end.
    query = await in_thread(lambda: stream_into(spark, options, out, checkpoint, is_bounded=True))
    await in_thread(query.awaitTermination)
    (first,) = Path(checkpoint).glob("offsets/0")
    began = json.loads(first.read_text().splitlines()[-1])["$began"]["orders"]
    skipped = _numbers_below(sender.sent, began)
    assert len(skipped) >= before
    assert_once(in_sink(Path(out)), [one for one in sender.sent if one not in skipped])


async def _in_middle_of_batch(
    checkpoint: Path, committed_min: int, process: asyncio.subprocess.Process
) -> None:
    """Until a batch has been written down that is not done, behind so many that are."""
    while True:
        assert process.returncode is None
        begun = {path.name for path in checkpoint.glob("offsets/[0-9]*")}
        done = {path.name for path in checkpoint.glob("commits/[0-9]*")}
        if len(done) >= committed_min and begun - done:
            return
        await asyncio.sleep(0.002)


def _numbers_below(sent: list[str], began: Any) -> set[str]:
    """The messages of each queue before the query's beginning."""
    skipped: set[str] = set()
    for index, (broker, queue_id) in enumerate(QUEUES):
        batches = [sent[at : at + 20] for at in range(0, len(sent), 20)]
        of_queue = [one for batch in batches[index :: len(QUEUES)] for one in batch]
        skipped |= set(of_queue[: began[broker][str(queue_id)]])
    return skipped
