"""The key index alone: how fast keys reach its files and are found, and what sends pay."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from aerobee.bench import produce, suite
from aerobee.bench.cluster import running_cluster
from aerobee.bench.measure import Latencies, Stopwatch, Throughput
from aerobee.bench.report import Report, Row
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.index.key_index import KeyIndex
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.index_file import IndexKeys
from aerobee.store.format.index_keys import hash_keys, topic_hash
from aerobee.store.format.properties import encode_usual_properties
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes

TOPIC = "bench"
BATCH_MESSAGES = 512
CHECKPOINT_BYTES = 16 << 20
FILE_KEYS = 20_000_000 - 1
HOT_KEYS_EACH = 1_000
"""One key in this many is the hot one."""
QUERIES = 4_000
START_MS = 1_700_000_000_000
HOST = HostAddress.parse("127.0.0.1:10911")


async def run_index(report: Report, load: suite.Load, say: suite.Say) -> None:
    """Insert, search in a full file, and sends with and without."""
    say("inserting keys")
    keys = max(BATCH_MESSAGES * 2, load.batched * 4)
    for name, key_of in (
        ("keys of one length", lambda n: f"order-{n:09d}"),
        ("keys of many lengths", lambda n: f"order-{n * n}"),
    ):
        inserted = await asyncio.to_thread(_insert_rate, keys, load.body_bytes, key_of)
        report.add(Row(f"index insert, {name}, unit: keys", inserted))
    say("filling an index file")
    count = min(FILE_KEYS, max(10_000, load.batched * 20))
    for row in await asyncio.to_thread(_search, count):
        report.add(row)
    rates = {}
    for enabled in (True, False):
        say(f"produce, index {'on' if enabled else 'off'}")
        flags = ("--broker-set", f"store.index_enabled={'true' if enabled else 'false'}")
        async with running_cluster(flags=flags) as cluster:
            rates[enabled] = await produce.produce_batches(
                cluster.nameserver,
                cluster.brokers[0],
                topic=TOPIC,
                body_bytes=load.body_bytes,
                messages=load.batched,
            )
    without = rates[False].throughput
    report.add(Row(f"produce, {rates[False].way}, without index", without))
    ratio = rates[True].throughput.messages_per_s / without.messages_per_s
    report.add(
        Row(
            f"produce, {rates[True].way}, with index",
            rates[True].throughput,
            rates[True].latencies,
            ratio,
            "the same without index",
        )
    )


# ------------------------------------------------------------------------------------ insert


def _insert_rate(keys: int, body_bytes: int, key_of: Callable[[int], str]) -> Throughput:
    """From checked batches to synced files, two keys per message."""
    chance = system_random()
    batches = [_batch(chance, body_bytes, key_of) for _ in range(8)]
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-index-") as name:
        index = KeyIndex(RealDisk(name), SystemClock(), StoreConfig())
        watch = Stopwatch()
        end = written = 0
        while written + index.pending_keys < keys:
            for batch in batches:
                found = batch.index_keys(end, START_MS)
                end += batch.size
                index.add(found, end)
            if index.pending_bytes >= CHECKPOINT_BYTES:
                written += _write(index)
        written += _write(index)
        elapsed_s = watch.elapsed_s()
    return Throughput(messages=written, bytes=end, elapsed_s=elapsed_s)


def _batch(chance: random.Random, body_bytes: int, key_of: Callable[[int], str]) -> CheckedBatch:
    properties = [
        encode_usual_properties(f"{chance.getrandbits(128):032X}", "TagA", key_of(number))
        for number in range(BATCH_MESSAGES)
    ]
    records, sizes = encode_batch(
        topic=TOPIC.encode(),
        bodies=[bytes(body_bytes)] * BATCH_MESSAGES,
        properties=properties,
        born_timestamp_ms=1,
        born_host=HOST,
    )
    limits = BatchLimits(batch_bytes_max=1 << 30)
    return check_batch(
        records, sizes, topic=TOPIC, limits=limits, store_host_ipv6=False, tags=TagsCodes()
    )


def _write(index: KeyIndex) -> int:
    """A checkpoint's work for the index; returns the number of keys written."""
    write = index.take_write()
    if write is None:
        return 0
    write.run()
    index.finish_write(write)
    return write.written


# ------------------------------------------------------------------------------------ search


@dataclass(frozen=True, slots=True)
class _Searched:
    """One kind of search: its name, and searches of that kind."""

    name: str
    topic_key: Callable[[], tuple[str, str]]
    window_ms: Callable[[], tuple[int, int]]


def _search(count: int) -> Iterator[Row]:
    """A full file of keys, searched from a warm page cache."""
    chance = system_random()
    config = replace(StoreConfig(), index_entries_max=FILE_KEYS + 1)
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-index-") as name:
        index = KeyIndex(RealDisk(name), SystemClock(), config)
        watch = Stopwatch()
        for first in range(0, count, 1_000_000):
            index.add(_keys(first, min(first + 1_000_000, count)), first)
            _write(index)
        yield Row(f"index file of {count:,} keys", Throughput(count, count * 20, watch.elapsed_s()))

        def ever() -> tuple[int, int]:
            return 0, 1 << 62

        def early() -> tuple[int, int]:
            return START_MS, START_MS + chance.randrange(count)

        for asked in (
            _Searched("one of all keys", lambda: (TOPIC, _key(chance.randrange(count))), ever),
            _Searched("unknown key", lambda: (TOPIC, f"no{chance.random()}"), ever),
            _Searched("hot key, newest 64", lambda: (TOPIC, _key(0)), ever),
            _Searched("hot key, some time ago", lambda: (TOPIC, _key(0)), early),
        ):
            spans = []
            for _ in range(QUERIES if asked.window_ms is ever else QUERIES // 20):
                (topic, key), (begin_ms, end_ms) = asked.topic_key(), asked.window_ms()
                watch = Stopwatch()
                index.plan_search(topic, key, begin_ms=begin_ms, end_ms=end_ms).run()
                spans.append(watch.elapsed_s())
            yield Row(f"index search, {asked.name}", latencies=Latencies.of(spans))


def _key(number: int) -> str:
    return f"key-{0 if number % HOT_KEYS_EACH == 0 else number:010d}"


def _keys(first: int, end: int) -> IndexKeys:
    """The keys of the records [first, end), a millisecond apart."""
    numbers = np.arange(first, end)
    numbers[numbers % HOT_KEYS_EACH == 0] = 0
    text = "".join([f"KEYS\x01key-{number:010d}\x02" for number in numbers.tolist()]).encode()
    ends = np.arange(1, len(numbers) + 1) * (len(text) // len(numbers))
    found = hash_keys(text, ends - len(text) // len(numbers), ends, topic_hash(TOPIC))
    return IndexKeys(found.hashes, np.arange(first, end) * 1_000, np.arange(first, end) + START_MS)
