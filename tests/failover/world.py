"""A whole cluster of real processes: etcd, two nameservers, one group of three brokers, and wires
between them that can be cut.

Owns: the processes, their folders under one root, and the network's proxies. Brokers are
advertised at their proxies; each broker dials the nameservers by proxies of its own. The world
looks at brokers directly, so it sees what a broker says that nobody else can reach.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aerobee.cli.local_cluster.programs import etcd_binary
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import (
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    GET_STATS,
    HAND_OVER,
)
from aerobee.rpc.health_check import check_health
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, nameserver_pb2
from tests.failover.network import HOST, Network
from tests.failover.processes import Process
from tests.support.ports import free_port
from tests.support.waiting import until

CLUSTER = "failover"
GROUP = "broker-a"
TOPIC = "orders"
QUEUES = 4
REPLICAS = (0, 1, 2)
NAMESERVERS = (0, 1)
READY_TIMEOUT_S = 40.0
OBSERVER_TIMEOUT_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one group; all of its replicas have the same."""

    mode: str = "sync_master"
    flush_mode: str = "async"
    min_insync_replicas: int = 1
    lease_ms: int = 2_000
    segment_bytes: int = 1 << 20
    replicas: Sequence[int] = REPLICAS
    store_roots: dict[int, Path] = field(default_factory=dict)
    """Folders of certain replicas, if not under the world's root."""


def broker_node(broker_id: int) -> str:
    return f"broker-{broker_id}"


def nameserver_node(number: int) -> str:
    return f"nameserver-{number}"


class World:
    """Use `open_world`."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self.settings = settings
        self.channels = Channels()
        self.network = Network(self._nodes_by_process)
        self._etcd_ports = free_port(), free_port()
        self._nameserver_ports = [free_port() for _ in NAMESERVERS]
        self._broker_ports = {one: free_port() for one in settings.replicas}
        self._health_ports = {one: free_port() for one in settings.replicas}
        self.etcd = Process("etcd", self._etcd_argv(), root / "etcd.log")
        self.nameservers = [
            Process(
                nameserver_node(one), self._nameserver_argv(one), root / f"nameserver-{one}.log"
            )
            for one in NAMESERVERS
        ]
        self.brokers: dict[int, Process] = {}

    @property
    def cluster(self) -> str:
        return CLUSTER

    @property
    def replicas(self) -> Sequence[int]:
        return self.settings.replicas

    @property
    def nameserver_addresses(self) -> list[str]:
        """As clients know them."""
        return [f"{HOST}:{port}" for port in self._nameserver_ports]

    def folder(self, broker_id: int) -> Path:
        return self.settings.store_roots.get(broker_id, self.root / broker_node(broker_id))

    async def start(self) -> None:
        await self.etcd.start()
        for nameserver in self.nameservers:
            await nameserver.start()
        for broker_id in self.settings.replicas:
            advertised = await self.network.listen(
                broker_node(broker_id), self._broker_ports[broker_id]
            )
            dialled = [
                await self.network.listen(
                    nameserver_node(number), port, dialled_by=broker_node(broker_id)
                )
                for number, port in enumerate(self._nameserver_ports)
            ]
            self.brokers[broker_id] = Process(
                broker_node(broker_id),
                self._broker_argv(broker_id, advertised, dialled),
                self.root / f"broker-{broker_id}.log",
            )
            await self.brokers[broker_id].start()
        await self.healthy()
        await self.until(self._created, "the topic")

    async def _created(self) -> bool:
        request = nameserver_pb2.CreateTopicRequest(cluster=CLUSTER, name=TOPIC, queues=QUEUES)
        try:
            await self.channels.call(self.nameserver_addresses[0], CREATE_TOPIC, request)
        except errors.TopicExists:
            return True
        except errors.AerobeeError:
            return False
        return True

    async def close(self) -> None:
        """Ends everything, however it stands."""
        for process in self._processes():
            process.go_on()
            await process.kill()
        await self.network.close()
        await self.channels.close()

    def _processes(self) -> list[Process]:
        return [*self.brokers.values(), *self.nameservers, self.etcd]

    async def record(self) -> nameserver_pb2.GroupRecord:
        """The group as a nameserver has it; master_id -1 if none can tell."""
        for address in self.nameserver_addresses:
            with suppress(errors.AerobeeError):
                answer = await self.channels.call(
                    address,
                    DESCRIBE_CLUSTER,
                    nameserver_pb2.DescribeClusterRequest(cluster=CLUSTER),
                    timeout_ms=OBSERVER_TIMEOUT_MS,
                )
                for group in answer.groups:
                    if group.broker_name == GROUP:
                        return group
        return nameserver_pb2.GroupRecord(master_id=-1)

    def address(self, broker_id: int) -> str:
        """Past the proxies."""
        return f"{HOST}:{self._broker_ports[broker_id]}"

    def health_address(self, broker_id: int) -> str:
        return f"{HOST}:{self._health_ports[broker_id]}"

    async def ready(self, broker_id: int) -> None:
        """Until its health port says so, as a kubelet waits for a pod."""

        async def holds() -> bool:
            with suppress(errors.AerobeeError):
                answer = await check_health(self.health_address(broker_id), "readiness")
                return answer.is_serving
            return False

        await self.until(holds, f"replica {broker_id} to be ready")

    async def stats(self, broker_id: int) -> broker_pb2.BrokerStats:
        return await self.channels.call(
            self.address(broker_id),
            GET_STATS,
            broker_pb2.GetStatsRequest(),
            timeout_ms=OBSERVER_TIMEOUT_MS,
        )

    async def stats_once_open(self, broker_id: int) -> broker_pb2.BrokerStats:
        """Waits for a replica that is opening its folder again."""
        found = broker_pb2.BrokerStats()

        async def answers() -> bool:
            nonlocal found
            with suppress(errors.AerobeeError):
                found = await self.stats(broker_id)
                return True
            return False

        await self.until(answers, f"replica {broker_id} to answer")
        return found

    async def hand_over(self, broker_id: int, successor_id: int) -> broker_pb2.HandOverResponse:
        return await self.channels.call(
            self.address(broker_id),
            HAND_OVER,
            broker_pb2.HandOverRequest(successor_id=successor_id, timeout_ms=5_000),
            timeout_ms=8_000,
        )

    async def master(self, *, not_id: int = -1, timeout_s: float = READY_TIMEOUT_S) -> int:
        """The id of the master that takes messages."""
        found = -1

        async def holds() -> bool:
            nonlocal found
            found = (await self.record()).master_id
            if found in (-1, not_id):
                return False
            with suppress(errors.AerobeeError):
                return (await self.stats(found)).writable
            return False

        await self.until(holds, f"a master other than {not_id}", timeout_s)
        return found

    async def elected(self, *, not_id: int) -> None:
        """Until another replica is master, whether or not it takes messages."""

        async def holds() -> bool:
            return (await self.record()).master_id not in (-1, not_id)

        await self.until(holds, f"a master other than {not_id}")

    async def slaves(self) -> list[int]:
        master = await self.master()
        return [one for one in self.settings.replicas if one != master]

    async def in_sync(self, *broker_ids: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Until exactly these are in sync."""

        async def holds() -> bool:
            record = await self.record()
            return sorted(name.broker_id for name in record.in_sync) == sorted(broker_ids)

        await self.until(holds, f"{broker_ids} in sync", timeout_s)

    async def healthy(self) -> None:
        """Until all runs, all wires are whole, and all replicas are in sync under a master."""
        self.network.heal()
        for process in (self.etcd, *self.nameservers, *self.brokers.values()):
            process.go_on()
            await process.start()
        await self.in_sync(*self.settings.replicas)
        await self.master()

    async def equal_ends(self) -> int:
        """Until all replicas have equal logs, all of it confirmed; returns their end."""
        end = -1

        async def holds() -> bool:
            nonlocal end
            with suppress(errors.AerobeeError):
                stats = [await self.stats(one) for one in self.settings.replicas]
                ends = {one.log_appended_end for one in stats}
                ends |= {one.log_confirmed_end for one in stats}
                end = min(ends)
                return len(ends) == 1
            return False

        await self.until(holds, "equal logs", READY_TIMEOUT_S)
        return end

    async def until(
        self,
        holds: Callable[[], Coroutine[Any, Any, bool]],
        what: str,
        timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        """Asks often; AssertionError with the end of all logs when it takes too long."""
        await until(holds, what, timeout_s=timeout_s, account=self.account)

    async def account(self) -> str:
        """What a person needs who looks for the cause. Ends brokers that do not answer: their logs
        then show where they hang."""
        parts = [str(await self.record())]
        for broker_id, broker in self.brokers.items():
            try:
                await self.stats(broker_id)
            except errors.AerobeeError as error:
                parts.append(f"{broker.name} does not answer: {error}")
                await broker.end_with_tracebacks()
        for process in self._processes():
            parts.append(f"--- {process.name}, running: {process.is_running}")
            parts.append(process.log[-2_000:])
        return "\n".join(parts)

    def _nodes_by_process(self) -> dict[int, str]:
        return {
            broker.process_id: broker.name
            for broker in self.brokers.values()
            if broker.process_id is not None
        }

    def _etcd_argv(self) -> list[str]:
        client, peer = (f"http://{HOST}:{port}" for port in self._etcd_ports)
        return [
            str(etcd_binary()),
            f"--data-dir={self.root / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # A short election gives short leases.
            "--heartbeat-interval=20",
            "--election-timeout=200",
            "--log-level=warn",
        ]

    def _nameserver_argv(self, number: int) -> list[str]:
        return [
            *(sys.executable, "-m", "aerobee.cli", "nameserver"),
            *("--listen", f"{HOST}:{self._nameserver_ports[number]}"),
            *("--etcd-endpoints", f"{HOST}:{self._etcd_ports[0]}"),
            *("--etcd-reconnect-max-ms", "200"),
            *("--cluster", CLUSTER),
            *("--stop-grace-ms", "100"),
        ]

    def _broker_argv(
        self, broker_id: int, advertised: int, nameservers: Sequence[int]
    ) -> list[str]:
        settings = self.settings
        return [
            *(sys.executable, "-m", "aerobee.cli", "broker"),
            *("--cluster", CLUSTER),
            *("--broker-name", GROUP),
            *("--broker-id", str(broker_id)),
            *("--listen", f"{HOST}:{self._broker_ports[broker_id]}"),
            *("--address", f"{HOST}:{advertised}"),
            *("--health-listen", self.health_address(broker_id)),
            *("--nameservers", ",".join(f"{HOST}:{port}" for port in nameservers)),
            *("--store-root", str(self.folder(broker_id))),
            *("--registration-lease-ms", str(settings.lease_ms)),
            *("--stop-grace-ms", "100"),
            *("--store-segment-bytes", str(settings.segment_bytes)),
            *("--store-flush-mode", settings.flush_mode),
            *("--store-disk-free-bytes-min", "0"),
            *("--store-retention-enabled", "false"),
            *("--replication-mode", settings.mode),
            *("--replication-min-insync-replicas", str(settings.min_insync_replicas)),
            *("--replication-in-sync-lag-max-ms", "1000"),
            *("--replication-heartbeat-interval-ms", "200"),
        ]


@asynccontextmanager
async def open_world(root: Path, settings: Settings | None = None) -> AsyncIterator[World]:
    """A running, healthy cluster with the topic of these tests."""
    root.mkdir(parents=True, exist_ok=True)
    world = World(root, settings or Settings())
    try:
        await world.start()
        yield world
    finally:
        await world.close()
