"""SQL filters alone: how many records per second a broker evaluates, including reading."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from aerobee.bench import suite
from aerobee.bench.measure import Stopwatch, Throughput
from aerobee.bench.report import Report, Row
from aerobee.broker.reading.egress import READ_BYTES_DEFAULT
from aerobee.broker.reading.filters import filter_of
from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.domain.sql_filter.wish import Wish
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.read_work import ReadWork
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes

TOPIC = "bench"
BATCH_MESSAGES = 500
SIZES = (256, 1_024)
HOST = HostAddress.parse("127.0.0.1:10911")
WISHES: tuple[tuple[str, Wish], ...] = (
    ("no filter", None),
    ("one tag of ten", ("tag-7",)),
    ("a > 5 AND b IN ('x', 'y')", SqlExpression("a > 5 AND b IN ('x', 'y')")),
    ("TAGS = 'tag-7'", SqlExpression("TAGS = 'tag-7'")),
    (
        "ten conditions",
        SqlExpression(" AND ".join(["(a >= 0 OR b = 'q') AND b <> 'nothing'"] * 5)),
    ),
)


async def run_filters(report: Report, load: suite.Load, say: suite.Say) -> None:
    """A whole queue in the page cache, read in steps as a pull does, with each filter."""
    for body_bytes in SIZES:
        say(f"SQL filters, bodies of {body_bytes} bytes")
        for row in await asyncio.to_thread(_measure, max(2_000, load.batched // 4), body_bytes):
            report.add(row)


def _measure(messages: int, body_bytes: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-filters-") as name:
        store = _filled(Path(name), messages, body_bytes)
        for text, wish in WISHES:
            read, matched = _read_all(store, wish)
            rows.append(
                Row(
                    f"judged, bodies of {body_bytes}, {text}",
                    read,
                    note=f"{matched:,} of {read.messages:,} match",
                )
            )
        store.close()
    return rows


def _filled(root: Path, messages: int, body_bytes: int) -> MessageStore:
    """One queue; the pairs of numbers `a` (0 to 9) and letters `b` (v to z) are equally
    frequent."""
    config = replace(StoreConfig(), disk_free_bytes_min=0, unflushed_bytes_max=1 << 40)
    store = MessageStore.open(RealDisk(root), SystemClock(), config)
    records, sizes = encode_batch(
        topic=TOPIC.encode(),
        bodies=[b"x" * body_bytes] * BATCH_MESSAGES,
        properties=[
            encode_properties(
                {
                    "UNIQ_KEY": f"{number:032X}",
                    "TAGS": f"tag-{number % 10}",
                    "KEYS": f"order-{number}",
                    "a": str(number % 10),
                    "b": "vwxyz"[number // 10 % 5],
                    "region": "europe-west",
                }
            )
            for number in range(BATCH_MESSAGES)
        ],
        born_timestamp_ms=1,
        born_host=HOST,
    )
    for _ in range(messages // BATCH_MESSAGES):
        batch = check_batch(
            records,
            sizes,
            topic=TOPIC,
            limits=BatchLimits(),
            store_host_ipv6=False,
            tags=TagsCodes(),
        )
        store.confirm(store.append(batch, queue_id=0).end)
    return store


def _read_all(store: MessageStore, wish: Wish) -> tuple[Throughput, int]:
    passing = filter_of(wish, is_exact=True)
    end = store.queues.bounds(TOPIC, 0).max_offset
    offset = matched = size = 0
    watch = Stopwatch()
    cpu_s = time.thread_time()
    while offset < end:
        wanted = QueueRead(TOPIC, 0, offset, READ_BYTES_DEFAULT, 65_536, passing)
        found = store.reads.read(wanted)
        if isinstance(found, ReadWork):
            found.run()
            found = store.reads.finish(wanted, found)
        offset = found.located.next_offset
        matched += found.located.count
        size += found.read_bytes
    elapsed_s, cpu_s = watch.elapsed_s(), time.thread_time() - cpu_s
    return Throughput(end, size, elapsed_s, broker_cpu_s=cpu_s), matched
