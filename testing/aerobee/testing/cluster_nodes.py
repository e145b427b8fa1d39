"""A whole cluster as tasks of one event loop: a registry in memory, a nameserver, broker groups.

Small files and no flush to wait for: what costs a test time is set for tests, and everything else
as an operator would set it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from aerobee.broker.config import BrokerConfig, SessionConfig
from aerobee.broker.replication.config import ReplicationConfig, ReplicationMode
from aerobee.client_core.admin_brokers import BrokerAdmin
from aerobee.client_core.admin_topics import TopicAdmin
from aerobee.client_core.cluster import ClusterConnection
from aerobee.nameserver.config import BrokerLeaseConfig, NameserverConfig
from aerobee.nameserver.stored import Keys
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import DeadlineExceeded, Unreachable
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.testing.memory_network import MemoryNetwork
from aerobee.testing.memory_registry import MemoryRegistry
from aerobee.testing.nodes import BrokerNode, NameserverNode
from aerobee.testing.process_node import BrokerProcess

CLUSTER = "aerobee"
ANY_PORT = "127.0.0.1:0"
SEGMENT_BYTES = 8 * 1024 * 1024
"""Holds the largest message, and is quick to create."""
SERVING_TIMEOUT_S = 60.0
LOOK_S = 0.01


class UnknownBroker(LookupError):
    """No broker has this name; the text lists the existing ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a cluster consists of."""

    groups: int = 1
    replicas: int = 1
    lease_ms: int = 5_000
    """How long brokers and consumers may be silent."""
    lag_ms: int = 2_000
    """How long a replica may lack messages, or hear nothing from its master."""

    def names(self) -> dict[str, tuple[str, int]]:
        """The names of all brokers, with group and number: broker-a, broker-a-1, broker-b, ..."""
        found: dict[str, tuple[str, int]] = {}
        for group in range(self.groups):
            group_name = f"broker-{chr(ord('a') + group)}"
            for number in range(self.replicas):
                name = group_name if number == 0 else f"{group_name}-{number}"
                found[name] = (group_name, number)
        return found


class ClusterNodes:
    """Belongs to the loop in which it was started."""

    def __init__(
        self,
        shape: Shape,
        *,
        clock: Clock,
        chance: random.Random,
        network: MemoryNetwork | None,
        make_broker: Callable[[str, BrokerConfig], BrokerNode | BrokerProcess],
        root_of: Callable[[str], Path],
    ) -> None:
        self.registry = MemoryRegistry(clock)
        self.shape = shape
        self.network = network
        self._clock = clock
        self._chance = chance
        self._make_broker = make_broker
        self._root_of = root_of
        self._closing = AsyncExitStack()
        self.nameserver = NameserverNode(
            NameserverConfig(
                cluster=CLUSTER,
                listen=ANY_PORT,
                broker_lease=BrokerLeaseConfig(default_ms=shape.lease_ms),
                stop_grace_ms=0,
            ),
            self.registry,
            clock,
            chance,
            network,
        )
        self.brokers: dict[str, BrokerNode | BrokerProcess] = {}
        self._connection: ClusterConnection | None = None

    @property
    def address(self) -> str:
        """The nameserver's address."""
        return self.nameserver.address

    async def start(self) -> None:
        """Return once every group accepts messages."""
        await self.nameserver.start()
        names = self.shape.names()
        for name, (group, number) in names.items():
            config = self._broker_config(name, group, number)
            self.brokers[name] = self._make_broker(name, config)
        async with asyncio.TaskGroup() as starting:
            for broker in self.brokers.values():
                starting.create_task(broker.start())
        self._connection = await self._closing.enter_async_context(
            ClusterConnection(self.address, CLUSTER, clock=self._clock, tls=False)
        )
        await self._until_serving()

    async def stop(self) -> None:
        await self._closing.aclose()
        # The newest replicas first: a master hands everything over to those that remain.
        for broker in reversed(list(self.brokers.values())):
            broker.answer_disk()
            broker.faults.is_full = False
            await broker.stop()
        await self.nameserver.stop()
        self.registry.close()

    async def heal(self) -> None:
        """Undo what faults left: return once disks answer and have room, every broker runs, and
        every group accepts messages. Raises what ended a broker that nobody killed or stopped."""
        for broker in self.brokers.values():
            broker.answer_disk()
            broker.faults.is_full = False
        down = [broker for broker in self.brokers.values() if not broker.is_running]
        if not down:
            return
        async with asyncio.TaskGroup() as starting:
            for broker in down:
                starting.create_task(_restart(broker))
        await self._until_serving()

    async def kill(self) -> None:
        """End all that runs, for a start that failed; no process is left."""
        for node in (*self.brokers.values(), self.nameserver):
            with contextlib.suppress(Exception):
                await node.kill()
        self.registry.close()

    def broker(self, name: str) -> BrokerNode | BrokerProcess:
        """Raises UnknownBroker."""
        try:
            return self.brokers[name]
        except KeyError:
            known = ", ".join(self.brokers)
            raise UnknownBroker(f"no broker is called {name!r}; there are {known}") from None

    async def master(self, group: str) -> str:
        """The master of a group; empty while there is none."""
        names = self.shape.names()
        if group not in {known for known, _ in names.values()}:
            raise UnknownBroker(f"no group of brokers is called {group!r}")
        entry = await self.registry.get(Keys(CLUSTER).replica_set(group))
        number = -1 if entry is None else json.loads(entry.value)["masterId"]
        return next((name for name, place in names.items() if place == (group, number)), "")

    async def create_topic(
        self, name: str, *, queues: int = 0, attributes: Mapping[str, str] | None = None
    ) -> None:
        """`queues`: 0: the default of 4 for each group. Raises as `TopicAdmin.create`."""
        await TopicAdmin(self._opened()).create(name, queues=queues, attributes=attributes)

    async def delete_topic(self, name: str) -> None:
        """Raises as `TopicAdmin.delete`."""
        await TopicAdmin(self._opened()).delete(name)

    def _opened(self) -> ClusterConnection:
        if self._connection is None:
            raise RuntimeError("the cluster is not started")
        return self._connection

    async def _until_serving(self) -> None:
        """Until every group has a master that accepts messages, and its replicas are in sync."""
        async with asyncio.timeout(SERVING_TIMEOUT_S):
            for group in dict.fromkeys(group for group, _ in self.shape.names().values()):
                while True:
                    if await self._is_in_sync(group) and await self._is_led(group):
                        break
                    await asyncio.sleep(LOOK_S)

    async def _is_in_sync(self, group: str) -> bool:
        entry = await self.registry.get(Keys(CLUSTER).replica_set(group))
        in_sync = [] if entry is None else json.loads(entry.value)["inSync"]
        return len(in_sync) == self.shape.replicas

    async def _is_led(self, group: str) -> bool:
        """Its master knows that it is one: the registry says so a moment earlier."""
        name = await self.master(group)
        if not name:
            return False
        try:
            address = self.broker(name).address
            return (await BrokerAdmin(self._opened()).statistics(address)).is_writable
        except (Unreachable, DeadlineExceeded):  # It has only just begun to listen.
            return False

    def _broker_config(self, name: str, group: str, number: int) -> BrokerConfig:
        lease_ms = self.shape.lease_ms
        return BrokerConfig(
            cluster=CLUSTER,
            broker_name=group,
            broker_id=number,
            listen=ANY_PORT,
            nameservers=(self.address,),
            store_root=self._root_of(name),
            registration_lease_ms=lease_ms,
            stop_grace_ms=0,
            store=StoreConfig(
                segment_bytes=SEGMENT_BYTES,
                consume_queue_entries_per_file=10_000,
                index_slots_max=5_000,
                index_entries_max=20_000,
                retention=RetentionConfig(enabled=False),
            ),
            sessions=SessionConfig(
                timeout_min_ms=lease_ms if self.network is not None else 1_000,
                timeout_default_ms=max(lease_ms, 10_000),
            ),
            replication=ReplicationConfig(
                mode=ReplicationMode.SYNC if self.shape.replicas > 1 else ReplicationMode.ASYNC,
                in_sync_lag_max_ms=self.shape.lag_ms,
                heartbeat_interval_ms=self.shape.lag_ms * 5 // 16,
                # In virtual time every loop appears late.
                slow_handover_interval_ms=0,
            ),
        )


async def _restart(broker: BrokerNode | BrokerProcess) -> None:
    """Start one that does not run; what ended it, if it was no fault, is raised all the same."""
    try:
        await broker.stop()
    finally:
        await broker.start()
