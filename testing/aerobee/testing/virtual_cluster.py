"""A cluster in virtual time, for tests of what takes hours: retries, delays, failover."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from aerobee.broker.config import BrokerConfig
from aerobee.runtime.clock import Clock, SystemClock
from aerobee.testing.cluster_nodes import ClusterNodes, Shape
from aerobee.testing.memory_network import MemoryNetwork
from aerobee.testing.nodes import BrokerNode
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.virtual_time import VirtualTime

LEASE_MS = 120_000
"""The maximum that brokers allow, so that an idle hour has few heartbeats."""
LAG_MS = 8_000
"""Less than a send waits for its receipt."""
_ANY_FOLDER = Path("/")
"""The disk is in memory; a folder must only exist."""


class VirtualCluster:
    """A nameserver and brokers in this event loop, over disks and a network in memory.

    Brokers, nameserver and clients are the real ones. Time is virtual for the whole loop: it
    stands still while anything has something to do, and otherwise moves on to the next timer at
    once, so that `asyncio.sleep(60)` takes no time. Make clients inside the block: they then live
    in the same time. `time.time()` does not; ask `cluster.now`.

    Args:
        groups: broker groups, named broker-a, broker-b and so on.
        replicas: brokers of each; those after the first are named broker-a-1 and so on.
        seed: of everything that brokers and nameserver decide by chance.
        starts_at: what time it is; now, if not given.

    Raises:
        NotVirtual: the running loop is not asyncio's own.

    Example::

        async with VirtualCluster() as cluster:
            async with Producer(cluster.nameservers) as producer:
                await producer.send(Message("orders", b"{}", delay=timedelta(hours=2)))
                await cluster.advance(hours=2)
    """

    def __init__(
        self,
        *,
        groups: int = 1,
        replicas: int = 1,
        seed: int = 0,
        starts_at: datetime | None = None,
    ) -> None:
        self._shape = Shape(groups=groups, replicas=replicas, lease_ms=LEASE_MS, lag_ms=LAG_MS)
        self._chance = random.Random(seed)
        self._starts_at = starts_at
        self._nodes: ClusterNodes | None = None
        self._time: VirtualTime | None = None
        self._network: MemoryNetwork | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        began = self._starts_at
        now_ms = SystemClock().now_ms() if began is None else int(began.timestamp() * 1_000)
        self._time, self._network = VirtualTime(loop, now_ms), MemoryNetwork(loop)
        self._nodes = ClusterNodes(
            self._shape,
            clock=self._time,
            chance=self._chance,
            network=self._network,
            make_broker=self._make_broker,
            root_of=lambda _: _ANY_FOLDER,
        )
        self._time.begin()
        self._network.begin()
        try:
            await self._nodes.start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        network, time = self._network, self._time
        assert network is not None
        assert time is not None
        try:
            network.heal_all()
            await self.nodes.stop()
            await time.settle()
        finally:
            network.end()
            time.end()

    def _make_broker(self, name: str, config: BrokerConfig) -> BrokerNode:
        disk = SimulatedDisk()
        disk.now_ms = self.clock.now_ms
        return BrokerNode(name, config, disk, self.clock, self._chance, self.network)

    @property
    def nodes(self) -> ClusterNodes:
        """What it consists of."""
        if self._nodes is None:
            raise RuntimeError("use the cluster inside `async with VirtualCluster() as cluster:`")
        return self._nodes

    @property
    def network(self) -> MemoryNetwork:
        """For `aerobee.testing.faults`."""
        assert self._network is not None
        return self._network

    @property
    def nameservers(self) -> str:
        """What clients are given."""
        return self.nodes.address

    @property
    def clock(self) -> Clock:
        """The cluster's; for code that takes a clock."""
        return self._running_time

    @property
    def now(self) -> datetime:
        """What time it is for the cluster, in UTC."""
        return datetime.fromtimestamp(self.clock.now_ms() / 1_000, UTC)

    @property
    def _running_time(self) -> VirtualTime:
        if self._time is None:
            raise RuntimeError("use the cluster inside `async with VirtualCluster() as cluster:`")
        return self._time

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let so much time pass, and everything happen that is due by then, each at its moment.

        The same as `asyncio.sleep` for that long, and then `settle`.
        """
        elapsed = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        elapsed_s = elapsed.total_seconds()
        if elapsed_s < 0:
            raise ValueError(f"time does not go back: {elapsed}")
        await self._running_time.advance(elapsed_s)

    async def settle(self) -> None:
        """Let everything happen that takes no time."""
        await self._running_time.settle()

    async def create_topic(
        self, name: str, *, queues: int = 0, attributes: Mapping[str, str] | None = None
    ) -> None:
        """`queues`: 0: four for each broker group. `attributes`: {"message.type": "FIFO"}, for
        example. Raises TopicExists, IllegalName."""
        await self.nodes.create_topic(name, queues=queues, attributes=attributes)

    async def delete_topic(self, name: str) -> None:
        """Raises TopicNotFound."""
        await self.nodes.delete_topic(name)

    async def master(self, group: str = "broker-a") -> str:
        """The broker that leads the group; empty while none does."""
        return await self.nodes.master(group)

    async def start_broker(self, broker: str = "broker-a") -> None:
        """Start one again that was killed or stopped, over its own disk."""
        await self.nodes.broker(broker).start()

    async def stop_broker(self, broker: str = "broker-a") -> None:
        """A clean stop."""
        await self.nodes.broker(broker).stop()

    def broker(self, name: str) -> BrokerNode:
        """For `aerobee.testing.faults`."""
        broker = self.nodes.broker(name)
        assert isinstance(broker, BrokerNode)
        return broker
