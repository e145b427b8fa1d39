"""A cluster whose nodes are upgraded one by one: etcd, two nameservers, a group of three brokers
and one of two. The procedure is that of docs/operations/upgrade.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aerobee.rpc.health_check import check_health
from aerobee.runtime import errors
from tests.failover.processes import Process
from tests.support.etcd import SHORT_ELECTIONS, etcd_command
from tests.support.ports import free_ports
from tests.support.waiting import until
from tests.upgrade.versions import Version

HOST = "127.0.0.1"
NAMESERVERS = 2
GROUPS = {"broker-a": 3, "broker-b": 2}
"""The replicas of each."""
LOG_CHARACTERS = 2_000


class Node:
    """A process of one version or another, always with the same ports and folder."""

    def __init__(self, name: str, words: list[str], version: Version, folder: Path) -> None:
        self.name = name
        self.version = version
        self.port, health = free_ports(2)
        self.address, self.health = f"{HOST}:{self.port}", f"{HOST}:{health}"
        words += ["--listen", self.address, "--health-listen", self.health]
        argv = version.command(*words, "--cluster", "upgraded", "--stop-grace-ms", "100")
        self.process = Process(name, argv, folder / f"{name}.log")

    async def start(self) -> None:
        self.process.environment = self.version.environment
        await self.process.start()

    async def serving(self) -> None:
        """Until its health says so: a replica is then in sync."""

        async def holds() -> bool:
            with suppress(errors.AerobeeError):
                return (await check_health(self.health, "readiness")).is_serving
            return False

        await until(holds, f"{self.name} ({self.version.name}) to serve", account=self._log)
        assert self.process.process_id is not None
        self.version.check(self.process.process_id)

    def _log(self) -> str:
        return self.process.log[-LOG_CHARACTERS:]


class Cluster:
    """Use `open_cluster`."""

    def __init__(self, folder: Path, version: Version) -> None:
        client, peer = free_ports(2)
        command = etcd_command(folder / "etcd", client, peer, *SHORT_ELECTIONS, "--log-level=warn")
        self.etcd = Process("etcd", command, folder / "etcd.log")
        etcd = ["--etcd-endpoints", f"{HOST}:{client}"]
        self.nameservers = [
            Node(f"nameserver-{at}", ["nameserver", *etcd], version, folder)
            for at in range(NAMESERVERS)
        ]
        self.nameserver_addresses = ",".join(node.address for node in self.nameservers)
        self.groups = {
            group: [self._broker(folder, version, group, at) for at in range(replicas)]
            for group, replicas in GROUPS.items()
        }

    def _broker(self, folder: Path, version: Version, group: str, broker_id: int) -> Node:
        name = f"{group}-{broker_id}"
        words = [
            *("broker", "--broker-name", group, "--broker-id", str(broker_id)),
            *("--nameservers", self.nameserver_addresses),
            *("--store-root", str(self.store(folder, name))),
            *("--store-segment-bytes", str(1 << 20), "--store-disk-free-bytes-min", "0"),
            *("--store-retention-enabled", "false"),
            *("--registration-lease-ms", "2000"),
            *("--replication-mode", "sync_master"),
            *("--replication-min-insync-replicas", str(GROUPS[group] - 1)),
        ]
        return Node(name, words, version, folder)

    @staticmethod
    def store(folder: Path, name: str) -> Path:
        return folder / "stores" / name

    @property
    def target(self) -> tuple[str, ...]:
        """Of commands."""
        return "--nameserver", self.nameserver_addresses, "--cluster", "upgraded"

    def brokers(self) -> list[Node]:
        return [node for replicas in self.groups.values() for node in replicas]

    def nodes(self) -> list[Node]:
        return [*self.nameservers, *self.brokers()]

    async def start(self) -> None:
        await self.etcd.start()
        for node in self.nodes():
            await node.start()
        for node in self.nodes():
            await node.serving()

    async def master(self, group: str, version: Version) -> Node:
        """As `aerobee cluster show` of this version tells it."""
        told = json.loads(await self.tell(version, "cluster", "show", "--json"))
        (broker_id,) = [
            int(one["id"])
            for one in told["brokers"]
            if (one["broker"], one["role"]) == (group, "master")
        ]
        return self.groups[group][broker_id]

    async def tell(self, version: Version, *words: str) -> str:
        """What a command of this version prints."""
        return await asyncio.to_thread(version.run, *words, *self.target)

    async def change(self, node: Node, version: Version) -> None:
        """Another version is installed, and the service restarted: `ExecStop` drains a broker."""
        if node not in self.nameservers:
            await asyncio.to_thread(version.run, "broker", "drain", "--broker", node.address)
        assert await node.process.stop() == 0, node.process.log[-LOG_CHARACTERS:]
        node.version = version
        await node.start()
        await node.serving()

    async def close(self) -> None:
        for node in reversed(self.nodes()):
            await node.process.kill()
        await self.etcd.kill()


@asynccontextmanager
async def open_cluster(folder: Path, version: Version) -> AsyncIterator[Cluster]:
    """Everything of this version, and serving."""
    cluster = Cluster(folder, version)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.close()
