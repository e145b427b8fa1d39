"""What replication costs: the same loads on a group of one, and on a master with one slave.

The clusters run side by side and are loaded in turns, so that other load on the machine affects all
of them; a ratio compares two adjacent turns, and the row has the median ratio.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from dataclasses import dataclass

from aerobee.bench import produce, suite
from aerobee.bench.cluster import BenchCluster, running_cluster
from aerobee.bench.measure import Latencies, Throughput
from aerobee.bench.replication import run_stream
from aerobee.bench.report import Report, Row
from aerobee.client_core import ClusterConnection, Message
from aerobee.client_core.master_search import Masters
from aerobee.producer_client import Producer

TURNS = 3
PACED_BATCH_MESSAGES = 500
SETTLE_TIMEOUT_S = 30.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Side:
    """A replication mode, and its cluster while it runs."""

    name: str
    flags: tuple[str, ...]


ALONE = Side("no replicas", ())
SYNC = Side("SYNC_MASTER, one slave", ("--replicas", "2", "--replication", "sync"))
ASYNC = Side("ASYNC_MASTER, one slave", ("--replicas", "2", "--replication", "async"))


async def run_replication(report: Report, load: suite.Load, say: suite.Say) -> None:
    """Sends without and with a slave, at full and at half load; then the stream alone."""
    async with contextlib.AsyncExitStack() as running:
        clusters: dict[Side, BenchCluster] = {}
        for side in (ALONE, ASYNC, SYNC):
            say(f"starting a cluster: {side.name}")
            clusters[side] = await running.enter_async_context(running_cluster(flags=side.flags))
        for cluster in clusters.values():
            await in_sync(cluster)
        batched = await _by_turns(clusters, load, say, in_flight=0)
        _add(report, batched)
        _add(report, await _by_turns(clusters, load, say, in_flight=64))
        half_per_s = statistics.median(each.throughput.messages_per_s / 2 for each in batched[SYNC])
        for side in (ALONE, SYNC):
            say(f"half load: {side.name}")
            latencies = await _paced(clusters[side], load, half_per_s)
            name = f"produce, batches of {PACED_BATCH_MESSAGES} at {half_per_s:,.0f}/s, {side.name}"
            report.add(Row(name, latencies=latencies))
    await run_stream(report, load, say, live_messages_per_s=int(half_per_s))


async def in_sync(cluster: BenchCluster) -> None:
    """Wait until each registered replica is in its group's in-sync set and copies the log.

    Raises TimeoutError.
    """
    async with (
        asyncio.timeout(SETTLE_TIMEOUT_S),
        ClusterConnection(cluster.nameserver) as connection,
    ):
        while True:
            groups = (await Masters(connection).describe_cluster()).groups
            names = sum(len(group.in_sync) for group in groups if group.master_id >= 0)
            if names >= len(cluster.brokers):
                return
            await asyncio.sleep(POLL_S)


async def master_of(cluster: BenchCluster) -> tuple[int, str]:
    """The id and the address of the first group's master. Raises RuntimeError: it has none."""
    async with ClusterConnection(cluster.nameserver) as connection:
        for master in (await Masters(connection).roll_call()).masters:
            return master.broker_id, master.address
    raise RuntimeError("the benchmark's broker group has no master")


Turns = dict[Side, list[produce.Produced]]


async def _by_turns(
    clusters: dict[Side, BenchCluster], load: suite.Load, say: suite.Say, *, in_flight: int
) -> Turns:
    """`in_flight` single sends, or batches if it is 0."""
    done: Turns = {side: [] for side in clusters}
    for turn in range(TURNS):
        for side, cluster in clusters.items():
            say(f"turn {turn + 1} of {TURNS}, {in_flight or 'batches'}: {side.name}")
            _, broker = await master_of(cluster)
            if in_flight:
                produced = await produce.produce_single(
                    cluster.nameserver,
                    broker,
                    topic=suite.TOPIC,
                    body_bytes=load.body_bytes,
                    messages=max(in_flight, load.in_flight_64 // TURNS),
                    in_flight=in_flight,
                )
            else:
                produced = await produce.produce_batches(
                    cluster.nameserver,
                    broker,
                    topic=suite.TOPIC,
                    body_bytes=load.body_bytes,
                    messages=max(10_000, load.batched // TURNS),
                )
            done[side].append(produced)
    return done


def _add(report: Report, turns: Turns) -> None:
    alone = turns[ALONE]
    for side, produced in turns.items():
        ratios = sorted(
            one.throughput.messages_per_s / other.throughput.messages_per_s
            for one, other in zip(produced, alone, strict=True)
        )
        median = sorted(produced, key=lambda one: one.throughput.messages_per_s)[len(produced) // 2]
        report.add(
            Row(
                f"produce, {median.way}, {side.name}",
                _whole(produced),
                median.latencies,
                None if side is ALONE else statistics.median(ratios),
                "" if side is ALONE else f"no replicas ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            )
        )


def _whole(produced: list[produce.Produced]) -> Throughput:
    """All turns combined."""
    parts = [one.throughput for one in produced]
    return Throughput(
        messages=sum(part.messages for part in parts),
        bytes=sum(part.bytes for part in parts),
        elapsed_s=sum(part.elapsed_s for part in parts),
        broker_cpu_s=sum(part.broker_cpu_s or 0.0 for part in parts),
    )


async def _paced(cluster: BenchCluster, load: suite.Load, per_s: float) -> Latencies:
    """From the planned time of sending to the acknowledgement: a sender that falls behind shows as
    latency. With a synchronous slave, this is an upper bound of that slave's delay."""
    batch = [Message(suite.TOPIC, bytes(load.body_bytes)) for _ in range(PACED_BATCH_MESSAGES)]
    batches_per_s = per_s / PACED_BATCH_MESSAGES
    count = max(50, int(load.batched / 10 / PACED_BATCH_MESSAGES))
    spans: list[float] = []
    async with Producer(cluster.nameserver) as producer:
        await producer.send_batch(batch)
        start_s = time.perf_counter()

        async def send(planned_s: float) -> None:
            await producer.send_batch(batch)
            spans.append(time.perf_counter() - planned_s)

        async with asyncio.TaskGroup() as sends:
            for number in range(count):
                planned_s = start_s + number / batches_per_s
                await asyncio.sleep(max(0.0, planned_s - time.perf_counter()))
                sends.create_task(send(planned_s), name=f"send-{number}")
    return Latencies.of(spans)
