"""What several brokers take together, each on a core of its own: from the processor time of each.

Load and brokers share this machine, so rates of a run say nothing about brokers that have their
cores for themselves and clients elsewhere. A broker's processor time for each message does: a core
takes as many messages a second as fit into one second of it. What brokers share, such as the
nameserver, is not on the path of a message.
"""

from __future__ import annotations

import asyncio

from aerobee.bench import suite
from aerobee.bench.cluster import BenchCluster, broker_stats, running_cluster
from aerobee.bench.produce import produce_batches
from aerobee.bench.report import Report, Row
from aerobee.client_core import ClusterConnection, TopicAdmin

COUNTS = (1, 2, 4)
TOPIC = "brokers"
QUEUES_EACH = 4


async def run_brokers(report: Report, load: suite.Load, say: suite.Say) -> None:
    """Batches to a topic of one, two and four brokers; the same number for each broker."""
    first: float | None = None
    for count in COUNTS:
        say(f"{count} brokers" if count > 1 else "1 broker")
        async with running_cluster(brokers=count) as cluster:
            per_s = await _capacity(cluster, load)
        first = first or per_s
        report.add(
            Row(
                f"what cores of {count} brokers take, batches, page cache",
                ratio=per_s / first,
                ratio_of=f"one broker; {per_s:,.0f} messages/s together",
            )
        )


async def _capacity(cluster: BenchCluster, load: suite.Load) -> float:
    """Messages per second that the brokers take together with a core each."""
    async with ClusterConnection(cluster.nameserver) as connection:
        await TopicAdmin(connection).create(TOPIC, queues=QUEUES_EACH * len(cluster.brokers))
    await _send(cluster, load, load.batched // 10)  # warm up
    before = await _taken(cluster)
    await _send(cluster, load, load.batched * len(cluster.brokers))
    after = await _taken(cluster)
    return sum(
        (messages - messages_before) / (cpu_s - cpu_before_s)
        for (messages_before, cpu_before_s), (messages, cpu_s) in zip(before, after, strict=True)
    )


async def _send(cluster: BenchCluster, load: suite.Load, messages: int) -> None:
    await produce_batches(
        cluster.nameserver,
        cluster.brokers[0],
        topic=TOPIC,
        body_bytes=load.body_bytes,
        messages=messages,
    )


async def _taken(cluster: BenchCluster) -> list[tuple[int, float]]:
    """Of each broker: messages, and seconds of processor time."""
    stats = await asyncio.gather(*(broker_stats(each) for each in cluster.brokers))
    return [(each.messages_in, each.cpu_seconds) for each in stats]
