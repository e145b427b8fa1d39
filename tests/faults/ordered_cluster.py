"""A small cluster whose programs are started in whatever order a test likes: etcd, a nameserver, a
group of two replicas. Addresses are given by the test, so that they can change.

Owns: the processes and their folders.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.consumer_client import ConsumerConfig, PushConsumer, StartFrom
from aerobee.producer_client import Message, Producer, ProducerConfig
from aerobee.rpc.health_check import check_health
from aerobee.runtime import errors
from tests.failover.processes import Process
from tests.support.etcd import SHORT_ELECTIONS, etcd_command
from tests.support.ports import free_port
from tests.support.waiting import until

HOST = "127.0.0.1"
CLUSTER = "moving"
GROUP = "broker-a"
TOPIC = "orders"
LEASE_MS = 2_000
COME_UP_S = 20.0


@dataclass
class Place:
    """Where a program listens, and how others call that; a name stands for whatever address."""

    name: str = HOST
    host: str = HOST
    port: int = field(default_factory=free_port)
    health_port: int = field(default_factory=free_port)

    @property
    def listen(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def address(self) -> str:
        """For others."""
        return f"{self.name}:{self.port}"

    @property
    def health(self) -> str:
        return f"{self.host}:{self.health_port}"


class OrderedCluster:
    """Nothing runs before it is started."""

    def __init__(self, root: Path, *, replicas: int = 2, lease_ms: int = LEASE_MS) -> None:
        self.root = root
        self._lease_ms = lease_ms
        self.etcd = Place()
        self.nameserver = Place()
        self.brokers = [Place() for _ in range(replicas)]
        self._etcd_peer_port = free_port()
        self._processes: dict[str, Process] = {}

    def process(self, name: str) -> Process:
        return self._processes[name]

    async def start(self, name: str) -> None:
        """`etcd`, `nameserver`, or a broker's number; at its present place."""
        argv = {"etcd": self._etcd_argv, "nameserver": self._nameserver_argv}.get(name)
        made = self._broker_argv(int(name)) if argv is None else argv()
        self._processes[name] = Process(name, made, self.root / f"{name}.log")
        await self._processes[name].start()

    async def kill_all(self) -> None:
        for process in self._processes.values():
            await process.kill()

    async def ready(self, *names: str, timeout_s: float = COME_UP_S) -> float:
        """Until all of these say so on their health ports; the seconds that took."""
        began_s = time.monotonic()
        for name in names:
            place = self.nameserver if name == "nameserver" else self.brokers[int(name)]

            async def holds(place: Place = place) -> bool:
                with suppress(errors.AerobeeError):
                    return (await check_health(place.health)).is_serving
                return False

            await self.until(holds, f"{name} to be ready", timeout_s)
        return time.monotonic() - began_s

    async def until(
        self, holds: Callable[[], Awaitable[bool]], what: str, timeout_s: float = COME_UP_S
    ) -> None:
        await until(holds, what, timeout_s=timeout_s, account=self._logs)

    def _logs(self) -> str:
        return "\n".join(f"--- {one.name}\n{one.log[-3_000:]}" for one in self._processes.values())

    def _etcd_argv(self) -> list[str]:
        return etcd_command(
            self.root / "etcd",
            self.etcd.port,
            self._etcd_peer_port,
            *SHORT_ELECTIONS,
            "--log-level=warn",
            host=self.etcd.host,
        )

    def _nameserver_argv(self) -> list[str]:
        return [
            *(sys.executable, "-m", "aerobee.cli", "nameserver"),
            *("--listen", self.nameserver.listen),
            *("--health-listen", self.nameserver.health),
            *("--etcd-endpoints", self.etcd.address),
            *("--cluster", CLUSTER),
            *("--stop-grace-ms", "100"),
        ]

    def _broker_argv(self, broker_id: int) -> list[str]:
        place = self.brokers[broker_id]
        return [
            *(sys.executable, "-m", "aerobee.cli", "broker"),
            *("--cluster", CLUSTER, "--broker-name", GROUP, "--broker-id", str(broker_id)),
            *("--listen", place.listen, "--address", place.address),
            *("--health-listen", place.health),
            *("--nameservers", self.nameserver.address),
            *("--store-root", str(self.root / f"broker-{broker_id}")),
            *("--registration-lease-ms", str(self._lease_ms)),
            *("--replication-mode", "sync_master"),
            *("--store-segment-bytes", str(1 << 20)),
            *("--store-disk-free-bytes-min", "0"),
            *("--stop-grace-ms", "100"),
        ]


@asynccontextmanager
async def ordered_cluster(
    root: Path, *, replicas: int = 2, lease_ms: int = LEASE_MS
) -> AsyncIterator[OrderedCluster]:
    root.mkdir(parents=True, exist_ok=True)
    cluster = OrderedCluster(root, replicas=replicas, lease_ms=lease_ms)
    try:
        yield cluster
    finally:
        await cluster.kill_all()


class Traffic:
    """A producer that sends a number every few milliseconds, and a member of a group that reads
    them; both run through everything. Use `open_traffic`."""

    def __init__(self, first: int) -> None:
        self.next = first
        self.sent: list[int] = []
        self.failed: list[str] = []
        self.seen: set[int] = set()
        self.acknowledged_s: list[float] = []
        self.seen_s: list[float] = []

    async def both_after(self, moment_s: float, cluster: OrderedCluster) -> float:
        """Until a message that was acknowledged after `moment_s` was read, too; the seconds."""

        async def holds() -> bool:
            if not self.acknowledged_s or self.acknowledged_s[-1] <= moment_s:
                return False
            return bool(self.seen_s) and self.seen_s[-1] > moment_s

        await cluster.until(holds, f"messages to flow; {self.failed[-1:]}")
        return time.monotonic() - moment_s

    async def all_read(self, cluster: OrderedCluster) -> None:
        """Everything that was acknowledged was read."""

        async def holds() -> bool:
            return set(self.sent) <= self.seen

        await cluster.until(holds, "the reader")

    async def produce(self, nameserver: str) -> None:
        config = ProducerConfig(send_timeout_ms=20_000, close_timeout_ms=500)
        async with Producer(nameserver, CLUSTER, config=config) as producer:
            while True:
                number, self.next = self.next, self.next + 1
                try:
                    await producer.send(Message(TOPIC, str(number).encode()))
                except errors.AerobeeError as error:
                    self.failed.append(f"{number}: {type(error).__name__}: {error}")
                else:
                    self.sent.append(number)
                    self.acknowledged_s.append(time.monotonic())
                await asyncio.sleep(0.02)

    def consumer(self, nameserver: str) -> PushConsumer:
        def listen(messages: object) -> None:
            for message in messages:  # type: ignore[attr-defined]
                self.seen.add(int(bytes(message.body)))
                self.seen_s.append(time.monotonic())

        return PushConsumer(
            "billing",
            listen,
            run_in_thread=False,
            nameservers=nameserver,
            start_from=StartFrom.FIRST,
            cluster=CLUSTER,
            config=ConsumerConfig(
                session_timeout_ms=3_000, commit_interval_ms=200, await_topics=True
            ),
        ).subscribe(TOPIC)


@asynccontextmanager
async def open_traffic(
    cluster: OrderedCluster, first: int = 0, *, access_point: str = ""
) -> AsyncIterator[Traffic]:
    """By the nameserver's own address, if none is given."""
    traffic = Traffic(first)
    address = access_point or cluster.nameserver.address
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        consumer = traffic.consumer(address)
        reading = tasks.create_task(consumer.run(), name="reader")
        sending = tasks.create_task(traffic.produce(address), name="sender")
        try:
            yield traffic
        finally:
            sending.cancel()
            consumer.stop()
            await asyncio.wait((reading,), timeout=5)
            reading.cancel()
