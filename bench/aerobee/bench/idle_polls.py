"""What polls of official clients cost that only wait, at three brokers that all have the topic.

Each client has a connection and a telemetry stream of its own. The first measurement has a topic of
one broker group, the second a topic of all three: the difference is what it costs to hear of
messages at other brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec

from aerobee.bench import suite
from aerobee.bench.cluster import BenchCluster, broker_stats, running_cluster
from aerobee.bench.report import Report, Row
from aerobee.client_core import ClusterConnection, TopicAdmin

BROKERS = 3
POLLS = 10_000
WINDOW_S = 10.0
"""Polls last for twice as long."""


async def run_idle_polls(report: Report, load: suite.Load, say: suite.Say) -> None:
    """10,000 polls of a hundred groups."""
    for topic, queues in (("of-one", 1), ("of-all", 2 * BROKERS)):
        async with running_cluster(brokers=BROKERS) as cluster:
            async with ClusterConnection(cluster.nameserver) as connection:
                await TopicAdmin(connection).create(topic, queues=queues)
            await asyncio.sleep(WINDOW_S / 2)
            idle = await _used(cluster)
            say(f"{POLLS} polls come, topic {topic}")
            async with _polls(cluster, topic):
                began = await _used(cluster)
                await asyncio.sleep(WINDOW_S)
                ended = await _used(cluster)
            memory = sum(ended[at][1] - idle[at][1] for at in range(BROKERS)) / POLLS
            cpu = ", ".join(
                f"{(ended[at][0] - began[at][0]) / WINDOW_S:.1%}" for at in range(BROKERS)
            )
            note = f"{memory / 1e3:.1f} kB for each client, brokers' CPU {cpu}"
            report.add(Row(f"{POLLS:,} idle polls, topic {topic}", note=note))


async def _used(cluster: BenchCluster) -> list[tuple[float, int]]:
    """Seconds of CPU and resident bytes of each broker."""
    stats = [await broker_stats(each) for each in cluster.brokers]
    return [(each.cpu_seconds, each.resident_bytes) for each in stats]


@contextlib.asynccontextmanager
async def _polls(cluster: BenchCluster, topic: str) -> AsyncIterator[None]:
    if find_spec("peers") is None:
        raise RuntimeError("the polls need a checkout: the installed package has no load for them")
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "peers.idle_clients"),
            *(address, str(POLLS // BROKERS), topic),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for address in cluster.brokers
    ]
    try:
        for each in processes:
            assert each.stdout is not None
            if not await each.stdout.readline():
                raise RuntimeError("the polls ended; the lines above say why")
        yield
    finally:
        for each in processes:
            if each.returncode is None:
                each.kill()
            await each.wait()
