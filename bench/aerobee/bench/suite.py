"""The runs of `aerobee bench`: each measures the bare stream and the cluster in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aerobee.bench import bare_stream, consume, end_to_end, produce
from aerobee.bench.cluster import BenchCluster, broker_stats, running_cluster
from aerobee.bench.many_queues import measure_many_queues
from aerobee.bench.measure import Latencies, Throughput
from aerobee.bench.report import Report, Row
from aerobee.bench.stores import measure_recovery

FRAME_BYTES = 512 * 1024
TOPIC = "bench"
ENVELOPE_BYTES = 200
"""Roughly what a record adds to a body: the bare echo carries as many bytes as a small send."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much each run sends. `body_bytes` is the size of every message."""

    body_bytes: int = 1024
    batched: int = 1_000_000
    in_flight_64: int = 200_000
    transactions_64: int = 20_000
    in_flight_1: int = 10_000
    sync_64: int = 60_000
    steady_per_s: int = 1_000
    steady: int = 10_000
    rounds: int = 10
    """Kills of a master, and hand-overs."""

    def scaled(self, scale: float) -> Load:
        """The same shape, smaller or larger."""
        return Load(
            body_bytes=self.body_bytes,
            batched=int(self.batched * scale),
            in_flight_64=int(self.in_flight_64 * scale),
            transactions_64=int(self.transactions_64 * scale),
            in_flight_1=int(self.in_flight_1 * scale),
            sync_64=int(self.sync_64 * scale),
            steady_per_s=self.steady_per_s,
            steady=int(self.steady * scale),
            rounds=max(1, int(self.rounds * min(1.0, scale))),
        )


Say = Callable[[str], None]


async def run_produce(report: Report, load: Load, say: Say) -> None:
    """Batches, 64 and 1 in flight from the page cache; batches and 64 in flight with fsync."""
    async with bare_stream.running_bare_server() as bare:
        say("bare stream")
        total_bytes = load.batched * load.body_bytes
        ceiling = await bare_stream.upload_rate(
            bare, frame_bytes=FRAME_BYTES, total_bytes=total_bytes
        )
        echo = await bare_stream.echo_latency(
            bare, frame_bytes=load.body_bytes + ENVELOPE_BYTES, count=load.in_flight_1
        )
    report.add(Row("bare stream, 512 KiB frames up", ceiling))
    report.add(Row("bare stream, echo, 1 in flight", latencies=echo))
    async with running_cluster() as cluster:
        say("produce, page cache")
        report.add(Row("up to ready", note=f"{cluster.start_s:.2f} s"))
        idle = await broker_stats(cluster.brokers[0])
        report.add(Row("idle broker, resident", note=f"{idle.resident_bytes / 1e6:.0f} MB"))
        batched = await _batches(cluster, load)
        report.add(_produced(batched, "page cache", ceiling))
        many = await _single(cluster, load, load.in_flight_64, 64)
        report.add(_produced(many, "page cache"))
        committed = await _single(cluster, load, load.transactions_64, 64, in_transactions=True)
        report.add(
            Row(
                f"produce, {committed.way}, page cache",
                committed.throughput,
                committed.latencies,
                committed.throughput.messages_per_s / many.throughput.messages_per_s,
                "single, 64 in flight",
            )
        )
        one = await _single(cluster, load, load.in_flight_1, 1)
        report.add(
            Row(
                f"produce, {one.way}, page cache",
                one.throughput,
                one.latencies,
                one.latencies.p50_us / echo.p50_us,
                "p50 of the bare echo",
            )
        )
        busy = await broker_stats(cluster.brokers[0])
        report.add(Row("busy broker, resident", note=f"{busy.resident_bytes / 1e6:.0f} MB"))
    async with running_cluster(flags=("--broker-set", "store.flush_mode=sync")) as cluster:
        say("produce, fsync")
        report.add(_produced(await _batches(cluster, load), "fsync", batched.throughput))
        synced = await _single(cluster, load, load.sync_64, 64)
        report.add(
            Row(
                f"produce, {synced.way}, fsync",
                synced.throughput,
                synced.latencies,
                synced.throughput.messages_per_s / many.throughput.messages_per_s,
                "the same from the page cache",
            )
        )


async def run_consume(report: Report, load: Load, say: Say) -> None:
    """Pull and push from the start of a freshly filled topic."""
    async with bare_stream.running_bare_server() as bare:
        say("bare stream")
        ceiling = await bare_stream.download_rate(
            bare, frame_bytes=FRAME_BYTES, total_bytes=load.batched * load.body_bytes
        )
    report.add(Row("bare stream, 512 KiB frames down", ceiling))
    async with running_cluster() as cluster:
        say("filling a topic")
        filled = await _batches(cluster, load)
        messages = filled.throughput.messages
        say("pull from the start")
        pulled = await consume.pull_from_start(
            cluster.nameserver,
            cluster.brokers[0],
            topic=TOPIC,
            group="bench-pull",
            messages=messages,
        )
        report.add(_of_ceiling("consume, pulled, every body touched", pulled, ceiling))
        say("push listener")
        pushed = await consume.push_from_start(
            cluster.nameserver,
            cluster.brokers[0],
            topic=TOPIC,
            group="bench-push",
            messages=min(messages, load.in_flight_64 * 2),
        )
        report.add(_of_ceiling("consume, push listener", pushed, ceiling))


async def run_latency(report: Report, load: Load, say: Say) -> None:
    """From send to listener at a steady rate."""
    async with running_cluster() as cluster:
        say(f"end to end at {load.steady_per_s}/s")
        latencies: Latencies = await end_to_end.end_to_end_latency(
            cluster.nameserver,
            topic=TOPIC,
            group="bench-latency",
            body_bytes=load.body_bytes,
            rate_per_s=load.steady_per_s,
            messages=load.steady,
        )
    report.add(Row(f"end to end, steady {load.steady_per_s}/s", latencies=latencies))


async def run_recovery(report: Report, load: Load, say: Say) -> None:
    """Starts of a store: after a clean stop, after a crash, and with only the log left."""
    say("recovery scan")
    total_bytes = load.batched * load.body_bytes * 2
    recovery = await asyncio.to_thread(
        measure_recovery, body_bytes=load.body_bytes, total_bytes=total_bytes
    )
    report.add(Row("clean start", note=f"{recovery.clean_start_s:.2f} s"))
    report.add(Row("start after a crash, right after a checkpoint", recovery.crashed))
    report.add(Row("recovery scan, whole log", recovery.lost))


async def run_many_queues(report: Report, load: Load, say: Say) -> None:
    """A store with 10,000 topics of 8 queues: starts, memory, checkpoints."""
    say("many queues")
    topics = max(16, int(10_000 * load.batched / Load().batched))
    found = await asyncio.to_thread(measure_many_queues, topics)
    for name, start in (
        ("clean start", found.clean),
        ("start after a crash, 96 queues changed", found.crashed),
        ("start after a crash, all changed", found.crashed_all),
    ):
        memory = f"{start.bytes_before / 1e6:.0f} MB before, {start.bytes_after / 1e6:.0f} after"
        report.add(
            Row(f"{found.queues} queues, {name}", note=f"{start.open_s:.2f} s, resident {memory}")
        )
    for name, cost in (
        ("first checkpoint", found.all_new),
        ("checkpoint, all changed", found.all_queues),
        (f"checkpoint, {found.few_queues.queues} changed", found.few_queues),
    ):
        report.add(
            Row(
                f"{found.queues} queues, {name}",
                note=f"{cost.written_s:.3f} s, of the loop's time "
                f"{cost.taken_s * 1e3:.1f} + {cost.finished_s * 1e3:.1f} ms",
            )
        )


async def _batches(cluster: BenchCluster, load: Load) -> produce.Produced:
    return await produce.produce_batches(
        cluster.nameserver,
        cluster.brokers[0],
        topic=TOPIC,
        body_bytes=load.body_bytes,
        messages=load.batched,
    )


async def _single(
    cluster: BenchCluster,
    load: Load,
    messages: int,
    in_flight: int,
    *,
    in_transactions: bool = False,
) -> produce.Produced:
    return await produce.produce_single(
        cluster.nameserver,
        cluster.brokers[0],
        topic=TOPIC,
        body_bytes=load.body_bytes,
        messages=messages,
        in_flight=in_flight,
        in_transactions=in_transactions,
    )


def _produced(result: produce.Produced, promise: str, ceiling: Throughput | None = None) -> Row:
    name = f"produce, {result.way}, {promise}"
    if ceiling is None:
        return Row(name, result.throughput, result.latencies)
    return Row(
        name,
        result.throughput,
        result.latencies,
        result.throughput.mb_per_s / ceiling.mb_per_s,
        "the same from the page cache" if promise == "fsync" else "bytes of the bare stream",
    )


def _of_ceiling(name: str, rate: Throughput, ceiling: Throughput) -> Row:
    return Row(name, rate, None, rate.mb_per_s / ceiling.mb_per_s, "bytes of the bare stream")
