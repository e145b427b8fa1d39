"""How fast offsets are committed: many concurrent small commits, and commits of many queues.

Every commit is answered when it is confirmed, so with one call at a time the latency is that of
storing one record.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aerobee.bench import produce, suite
from aerobee.bench.cluster import BenchCluster, broker_stats, running_cluster
from aerobee.bench.grpcio_client import grpcio_channel
from aerobee.bench.measure import Latencies, Stopwatch, Throughput
from aerobee.bench.report import Report, Row
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

TOPIC = "bench"
QUEUES = 4
BODY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Way:
    """How the commits are made."""

    queues_per_call: int
    calls_in_flight: int

    def __str__(self) -> str:
        queues = "one queue" if self.queues_per_call == 1 else f"{self.queues_per_call} queues"
        return f"commit, {queues} a call, {self.calls_in_flight} in flight"


WAYS = (Way(1, 1), Way(1, 64), Way(QUEUES, 64))


async def run_commits(report: Report, load: suite.Load, say: suite.Say) -> None:
    """Each kind from the page cache, the many small ones also with fsync."""
    calls = max(640, load.in_flight_64)
    for flags, ways, promise in (
        ((), WAYS, "page cache"),
        (("--broker-set", "store.flush_mode=sync"), WAYS[1:2], "fsync"),
    ):
        async with running_cluster(flags=flags) as cluster:
            say(f"filling a topic, {promise}")
            await _fill(cluster, messages=QUEUES * calls)
            for number, way in enumerate(ways):
                say(f"{way}, {promise}")
                count = calls // 4 if way.calls_in_flight == 1 else calls
                committed, latencies = await commit(cluster.brokers[0], way, f"{number}", count)
                report.add(Row(f"{way}, {promise}", committed, latencies))


async def _fill(cluster: BenchCluster, messages: int) -> None:
    await produce.produce_batches(
        cluster.nameserver,
        cluster.brokers[0],
        topic=TOPIC,
        body_bytes=BODY_BYTES,
        messages=messages,
        batch_messages=100,
    )


async def commit(broker: str, way: Way, name: str, calls: int) -> tuple[Throughput, Latencies]:
    """`calls` is the total number of calls; the throughput counts offsets."""
    latencies: list[float] = []
    async with grpcio_channel(broker) as channel:
        stub = broker_pb2_grpc.OffsetServiceStub(channel)

        async def committer(group: str) -> None:
            for offset in range(calls // way.calls_in_flight):
                request = broker_pb2.CommitOffsetsRequest(
                    group=group,
                    client_id="bench",
                    offsets=[
                        broker_pb2.QueueOffset(topic=TOPIC, queue_id=queue_id, offset=offset)
                        for queue_id in range(way.queues_per_call)
                    ],
                )
                watch = Stopwatch()
                response = await stub.CommitOffsets(request)
                latencies.append(watch.elapsed_s())
                assert all(result.code == common_pb2.OK for result in response.results), response

        before = await broker_stats(broker)
        watch = Stopwatch()
        async with asyncio.TaskGroup() as tasks:
            for number in range(way.calls_in_flight):
                tasks.create_task(committer(f"bench-{name}-{number}"), name=f"commit-{number}")
        elapsed_s = watch.elapsed_s()
        after = await broker_stats(broker)
    offsets = len(latencies) * way.queues_per_call
    throughput = Throughput(
        messages=offsets,
        bytes=0,
        elapsed_s=elapsed_s,
        broker_cpu_s=after.cpu_seconds - before.cpu_seconds,
    )
    return throughput, Latencies.of(latencies)
