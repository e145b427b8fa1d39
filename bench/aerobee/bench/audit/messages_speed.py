"""How fast users' own Spark jobs get messages: from a store's files, and from a live broker, which
is one process on one core. The first read of each is not counted: workers and Java warm up in it.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aerobee.bench import produce, suite
from aerobee.bench.audit.generated_store import GeneratedStore
from aerobee.bench.audit.spark_cpu import timed_run
from aerobee.bench.cluster import running_cluster
from aerobee.bench.measure import Stopwatch, Throughput
from aerobee.bench.report import Report, Row
from aerobee.client_core import ClusterConnection, TopicAdmin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES: Final = 2
TOPIC: Final = "bench-messages"
STORE_GOAL: Final = 400_000
WAYS: Final = {
    "every column": {},
    "without checksums": {"checkBodies": "false"},
    "place, tags and body": {"columns": "topic,queue_id,queue_offset,tags,body"},
    "place and body": {"columns": "topic,queue_id,queue_offset,body"},
    "body": {"columns": "body"},
    "body, without checksums": {"columns": "body", "checkBodies": "false"},
}


async def run_audit_messages(report: Report, load: suite.Load, say: suite.Say) -> None:
    """The source `aerobee.messages` on two cores, once the session is up."""
    from aerobee.offset_audit.run.session import close_session, open_session

    session = await asyncio.to_thread(open_session, f"local[{CORES}]")
    try:
        with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as folder:
            say("writing a store")
            store = GeneratedStore(Path(folder) / "s", load.batched, body_bytes=load.body_bytes)
            await asyncio.to_thread(store.write)
            await asyncio.to_thread(_measure_store, report, session, store, say)
        async with running_cluster() as cluster:
            say("filling a live topic")
            async with ClusterConnection(cluster.nameserver) as connection:
                await TopicAdmin(connection).create(TOPIC, queues=8)
            filled = await produce.produce_batches(
                cluster.nameserver,
                cluster.brokers[0],
                topic=TOPIC,
                body_bytes=load.body_bytes,
                messages=load.batched // 4,
            )
            say("reading it")
            size = filled.throughput.bytes // filled.throughput.messages
            await asyncio.to_thread(_measure_live, report, session, cluster.nameserver, size)
    finally:
        await asyncio.to_thread(close_session, session)


def _measure_store(
    report: Report, session: SparkSession, store: GeneratedStore, say: suite.Say
) -> None:
    def messages(**options: str) -> DataFrame:
        reader = session.read.format("aerobee.messages").options(**options)
        return reader.option("subscribePattern", "topic-.*").load(str(store.root))

    for _ in range(2):
        _consume(messages())
    for name, options in WAYS.items():
        say(f"messages of a store, {name}")
        frame = messages(**options)
        run = timed_run(store.records, store.body_bytes, partial(_consume, frame))
        ratio = run.throughput.messages_per_s / STORE_GOAL
        beside = f"{STORE_GOAL:,}/s; {run.note(CORES)}"
        report.add(
            Row(f"messages of a store, {name}", run.throughput, ratio=ratio, ratio_of=beside)
        )


def _measure_live(report: Report, session: SparkSession, nameserver: str, size: int) -> None:
    messages = (
        session.read.format("aerobee.messages")
        .option("nameservers", nameserver)
        .option("topic", TOPIC)
        .load()
    )
    count = messages.count()
    watch = Stopwatch()
    _consume(messages)
    rate = Throughput(count, count * size, watch.elapsed_s())
    report.add(Row("messages of a live broker, every column", rate))


def _consume(frame: DataFrame) -> None:
    """Read and discard every row and column."""
    frame.write.format("noop").mode("overwrite").save()
