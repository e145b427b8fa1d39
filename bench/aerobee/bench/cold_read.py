"""What reading old messages costs, for the reader and for concurrent senders."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from aerobee.bench import produce
from aerobee.bench.catch_up_reader import drop_from_page_cache, sealed_files
from aerobee.bench.cluster import BenchCluster, broker_stats, running_cluster
from aerobee.bench.dispatch_lag import DispatchLag, watching_dispatch
from aerobee.bench.measure import Stopwatch, Throughput
from aerobee.bench.report import Report, Row
from aerobee.bench.stores import fill_store
from aerobee.bench.suite import Load, Say
from aerobee.client_core import ClusterConnection
from aerobee.runtime.clock import SystemClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.read_work import ReadWork
from aerobee.store.format.names import file_name

READ_BYTES = 512 * 1024
SEGMENT_BYTES = 256 * 1024 * 1024
OLD_TOPIC = "old"


@dataclass(frozen=True, slots=True)
class StoreRead:
    """The same bytes read cold, through the store and with plain `preadv`."""

    through_store: Throughput
    plain: Throughput


def store_read_rate(*, body_bytes: int, total_bytes: int, rounds: int = 3) -> StoreRead:
    """One consumer reads all queues of a store, a plain loop reads the same files; alternating."""
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-cold-") as name:
        root = Path(name)
        config = StoreConfig(
            disk_free_bytes_min=0, unflushed_bytes_max=1 << 40, segment_bytes=SEGMENT_BYTES
        )
        fill_store(root, config, body_bytes=body_bytes, total_bytes=total_bytes)
        store = MessageStore.open(RealDisk(root), SystemClock(), config)
        through, plain = [], []
        messages = 0
        for _ in range(rounds):
            drop_from_page_cache(_files(root))
            watch = Stopwatch()
            messages, size = _read_queues(store)
            through.append((watch.elapsed_s(), size))
            drop_from_page_cache(_files(root))
            watch = Stopwatch()
            size = _read_plainly(root, store)
            plain.append((watch.elapsed_s(), size))
        store.close()
    return StoreRead(_median(messages, through), _median(messages, plain))


def _files(root: Path) -> list[Path]:
    return [*sealed_files(root), max((root / "commitlog").iterdir())]


def _median(messages: int, runs: list[tuple[float, int]]) -> Throughput:
    elapsed_s = statistics.median(elapsed_s for elapsed_s, _ in runs)
    return Throughput(messages=messages, bytes=runs[0][1], elapsed_s=elapsed_s)


def _read_queues(store: MessageStore) -> tuple[int, int]:
    """Every message of the store, taking turns between queues as pulls do."""
    reads = store.reads
    offsets = {queue_id: 0 for _, queue_id in store.queues.names()}
    topic = store.queues.names()[0][0]
    messages = 0
    size = 0
    while offsets:
        for queue_id, offset in list(offsets.items()):
            wanted = QueueRead(topic, queue_id, offset, READ_BYTES, 65_536, None, "reader")
            found = reads.read(wanted)
            if isinstance(found, ReadWork):
                found.run()
                found = reads.finish(wanted, found)
            if (advice := reads.take_advice(wanted)) is not None:
                advice.run()
            messages += found.located.count
            size += len(found.records)
            offsets[queue_id] = found.located.next_offset
            if found.located.next_offset >= found.located.max_offset:
                del offsets[queue_id]
    return messages, size


def _read_plainly(root: Path, store: MessageStore) -> int:
    """The same files from their beginnings to the ends of their content."""
    total = 0
    buffer = bytearray(READ_BYTES)
    for segment in store.log.segments():
        total += _preadv(root / "commitlog" / segment.name, segment.wrote_position, buffer)
    for topic, queue_id in store.queues.names():
        size = store.queues.bounds(topic, queue_id).max_offset * 20
        folder = root / "consumequeue" / topic / str(queue_id)
        file_bytes = (folder / file_name(0)).stat().st_size
        for start in range(0, size, file_bytes):
            _preadv(folder / file_name(start), min(file_bytes, size - start), buffer)
    return total


def _preadv(path: Path, size: int, buffer: bytearray) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        done = 0
        view = memoryview(buffer)
        while done < size and (read := os.preadv(descriptor, (view[: size - done],), done)):
            done += read
        return done
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Sends alone, and beside a group that reads old messages from disk."""

    alone: produce.Produced
    beside: produce.Produced
    read_mb_per_s: float

    @property
    def p99_ratio(self) -> float:
        return self.beside.latencies.p99_us / self.alone.latencies.p99_us


async def fill_old_topic(cluster: BenchCluster, *, body_bytes: int, messages: int) -> None:
    """What the catching-up group will read."""
    await produce.produce_batches(
        cluster.nameserver,
        cluster.brokers[0],
        topic=OLD_TOPIC,
        body_bytes=body_bytes,
        messages=messages,
    )


async def sends_beside_cold_reads(
    cluster: BenchCluster,
    store: Path,
    *,
    topic: str,
    body_bytes: int,
    messages: int,
    in_flight: int,
) -> Disturbed:
    """The same single sends without and with a catch-up from the disk."""

    async def send() -> produce.Produced:
        return await produce.produce_single(
            cluster.nameserver,
            cluster.brokers[0],
            topic=topic,
            body_bytes=body_bytes,
            messages=messages,
            in_flight=in_flight,
        )

    alone = await send()
    async with _catch_up(cluster, store):
        before = await broker_stats(cluster.brokers[0])
        watch = Stopwatch()
        beside = await send()
        after = await broker_stats(cluster.brokers[0])
        elapsed_s = watch.elapsed_s()
    return Disturbed(
        alone=alone,
        beside=beside,
        read_mb_per_s=(after.bytes_out - before.bytes_out) / elapsed_s / 1e6,
    )


@contextlib.asynccontextmanager
async def _catch_up(cluster: BenchCluster, store: Path) -> AsyncIterator[None]:
    """A process that reads the old topic from its start; returns once it has begun."""
    # The route has all queues; queues with few messages have no files yet.
    async with ClusterConnection(cluster.nameserver) as connection:
        queues = len((await connection.routes.route(OLD_TOPIC)).queues)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "aerobee.bench.catch_up_reader",
        cluster.brokers[0],
        OLD_TOPIC,
        str(queues),
        str(store),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        if not await process.stdout.readline():
            raise RuntimeError("the catching-up reader ended before it had read anything")
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run_cold(report: Report, load: Load, say: Say) -> None:
    """Cold reads through the store and beside sends, and the dispatch lag at full speed."""
    say("cold reads through the store")
    total_bytes = load.batched * load.body_bytes
    read = await asyncio.to_thread(
        lambda: store_read_rate(body_bytes=load.body_bytes, total_bytes=total_bytes)
    )
    report.add(Row("cold files, preadv alone", read.plain))
    report.add(
        Row(
            "cold queue and log, one consumer",
            read.through_store,
            None,
            read.through_store.mb_per_s / read.plain.mb_per_s,
            "preadv alone",
        )
    )
    flags = ("--broker-set", f"store.segment_bytes={SEGMENT_BYTES}")
    async with running_cluster(flags=flags) as cluster:
        say("filling a log")
        broker = cluster.brokers[0]
        async with watching_dispatch(broker) as lag:
            await fill_old_topic(cluster, body_bytes=load.body_bytes, messages=load.batched)
        report.add(Row("greatest lag of dispatch, page cache", note=_lag(lag)))
        store = next(cluster.folder.rglob("commitlog")).parent
        for in_flight, messages in ((1, load.in_flight_1), (64, load.in_flight_64)):
            say(f"sends beside a catch-up, {in_flight} in flight")
            disturbed = await sends_beside_cold_reads(
                cluster,
                store,
                topic="new",
                body_bytes=load.body_bytes,
                messages=messages,
                in_flight=in_flight,
            )
            alone, beside = disturbed.alone, disturbed.beside
            report.add(
                Row(f"sends alone, {in_flight} in flight", alone.throughput, alone.latencies)
            )
            report.add(
                Row(
                    f"beside {disturbed.read_mb_per_s:.0f} MB/s of old messages",
                    beside.throughput,
                    beside.latencies,
                    disturbed.p99_ratio,
                    "p99 of sends alone",
                )
            )
    async with running_cluster(flags=("--broker-set", "store.flush_mode=sync")) as cluster:
        say("lag of dispatch with fsync")
        async with watching_dispatch(cluster.brokers[0]) as lag:
            await fill_old_topic(cluster, body_bytes=load.body_bytes, messages=load.sync_64 * 5)
        report.add(Row("greatest lag of dispatch, fsync", note=_lag(lag)))


def _lag(lag: DispatchLag) -> str:
    return f"{lag.bytes_max / 1e6:.2f} MB, {lag.ms_max:.0f} ms"
