"""The order in which programs start does not matter: each waits for what it needs, and none has to
be started again.

After the last start the cluster is whole within `COME_UP_S`: all replicas are ready, and clients
that were started at their turn send and read.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.faults.ordered_cluster import (
    COME_UP_S,
    OrderedCluster,
    Traffic,
    open_traffic,
    ordered_cluster,
)

pytestmark = pytest.mark.slow

PAUSE_S = 0.8
"""Between two starts: long enough for a program to find that what it needs is not there."""
CLIENTS = "clients"
ORDERS = {
    "clients, brokers, nameserver, etcd": (CLIENTS, "1", "0", "nameserver", "etcd"),
    "brokers, nameserver, etcd, clients": ("0", "1", "nameserver", "etcd", CLIENTS),
    "nameserver, slave, etcd, master": (CLIENTS, "nameserver", "1", "etcd", "0"),
}


async def started(
    cluster: OrderedCluster, order: tuple[str, ...], stack: AsyncExitStack, first: int = 0
) -> tuple[Traffic, float]:
    """The clients, and how long the cluster took to be whole after the last start."""
    traffic: Traffic | None = None
    last_s = time.monotonic()
    for name in order:
        if name == CLIENTS:
            traffic = await stack.enter_async_context(open_traffic(cluster, first))
        else:
            await cluster.start(name)
        last_s = time.monotonic()
        if name != order[-1]:
            await asyncio.sleep(PAUSE_S)
    assert traffic is not None
    await cluster.ready("0", "1", "nameserver")
    await traffic.both_after(time.monotonic(), cluster)
    return traffic, time.monotonic() - last_s


@pytest.mark.thorough
async def test_a_new_cluster_and_an_old_one_come_up_in_any_order(tmp_path: Path) -> None:
    """New in the worst order; then, killed each time, in all of them. Who was master last does not
    matter: all that was acknowledged is with whoever is elected."""
    orders = [*ORDERS.items()]
    first = 0
    async with ordered_cluster(tmp_path) as cluster:
        for name, order in [orders[0], *orders]:
            async with AsyncExitStack() as stack:
                traffic, whole_s = await started(cluster, order, stack, first)
                print(f"{name}: {whole_s:.1f} s after the last start")
                assert whole_s < COME_UP_S, name
                await traffic.all_read(cluster)
            assert not traffic.failed, (name, traffic.failed[:3])
            first = traffic.next
            await cluster.kill_all()
