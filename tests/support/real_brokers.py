"""A cluster for consumer tests: real brokers over real stores, behind a small nameserver.

The brokers are the product's own, in this process, each on a folder and a port that it keeps over
restarts. The nameserver answers routes over gRPC from what the test has set.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from aerobee.broker.config import BrokerConfig, SessionConfig, TransactionsConfig
from aerobee.cluster_view.channels import Channels
from aerobee.domain.names import is_retry_topic
from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicConfig, TopicTable
from aerobee.testing.nodes import BrokerNode
from aerobee.v1 import common_pb2, nameserver_pb2, nameserver_pb2_grpc
from tests.support.broker_hand import BrokerHand

MIB = 1024 * 1024


@dataclass
class RealBroker:
    """One broker; `start` and `stop` as often as the test likes."""

    name: str
    folder: Path
    topics: Mapping[str, int]
    session_timeout_min_ms: int = 500
    flush_mode: FlushMode = FlushMode.ASYNC
    store_options: Mapping[str, int] = field(default_factory=dict)
    transactions: TransactionsConfig = field(default_factory=TransactionsConfig)
    port: int = 0
    _node: BrokerNode | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._node is not None

    async def start(self) -> Self:
        if not (self.folder / "config").exists():
            self._write_topics()
        config = BrokerConfig(
            broker_name=self.name,
            listen=f"127.0.0.1:{self.port}",
            nameservers=(),
            store_root=self.folder,
            stop_grace_ms=100,
            store=StoreConfig(
                disk_free_bytes_min=0,
                # How full the disk of this machine is must not decide what a test sees.
                retention=RetentionConfig(enabled=False),
                flush_mode=self.flush_mode,
                **{"segment_bytes": 16 * MIB, **self.store_options},  # type: ignore[arg-type]
            ),
            sessions=SessionConfig(timeout_min_ms=self.session_timeout_min_ms),
            transactions=self.transactions,
        )
        disk, clock = RealDisk(self.folder), SystemClock()
        node = BrokerNode(self.name, config, disk, clock, system_random(), None)
        await node.start()
        self.port = int(node.address.rpartition(":")[2])
        self._node = node
        return self

    async def stop(self) -> None:
        """Gracefully; does nothing when stopped."""
        node, self._node = self._node, None
        if node is not None:
            await node.stop()

    def _write_topics(self) -> None:
        table = TopicTable()
        for topic, queues in self.topics.items():
            table.put(TopicConfig(name=topic, read_queue_count=queues, write_queue_count=queues))
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_atomically(RealDisk(self.folder), TOPICS_PATH, table.snapshot_bytes(1))


class BrokerProcess:
    """A broker in a process of its own, so that it can be killed."""

    def __init__(
        self,
        name: str,
        folder: Path,
        topics: Mapping[str, int],
        store_options: Mapping[str, int] | None = None,
        transactions: Mapping[str, int] | None = None,
    ) -> None:
        """`store_options` are fields of StoreConfig, `transactions` of TransactionsConfig."""
        self.name = name
        self.topics = topics
        self._folder = folder
        self._store_options = dict(store_options or {})
        self._transactions = dict(transactions or {})
        self._process: asyncio.subprocess.Process | None = None
        self._address = ""

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_running(self) -> bool:
        return self._process is not None

    async def start(self) -> Self:
        """On a free port, another one each time."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.real_brokers"),
            self.name,
            str(self._folder),
            json.dumps(dict(self.topics)),
            json.dumps(self._store_options),
            json.dumps(self._transactions),
            cwd=Path(__file__).parents[2],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._address = f"127.0.0.1:{int(await self._process.stdout.readline())}"
        return self

    async def end(self) -> None:
        """Let it stop by itself, as on SIGTERM."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0

    async def stop(self) -> None:
        """kill -9; does nothing when it is not running."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()


class Routable(Protocol):
    """What a route says of a broker."""

    name: str
    topics: Mapping[str, int]

    @property
    def address(self) -> str: ...

    @property
    def is_running(self) -> bool: ...


class Broker(Routable, Protocol):
    """A broker that a test starts and stops."""

    async def start(self) -> Self: ...

    async def stop(self) -> None: ...


class RouteServer(nameserver_pb2_grpc.NameserverServiceServicer):
    """Routes of the brokers' topics; a broker that is down has no live master."""

    def __init__(self, brokers: Sequence[Routable]) -> None:
        self.brokers = list(brokers)
        self.slaves: list[nameserver_pb2.BrokerEndpoint] = []
        """Shown besides the brokers, for whatever topic."""
        self.stale = False
        self.has_retry_topics = False
        """Without them a consumer owns the queues that its test names, and no others."""
        self.version = 1
        self._changed = asyncio.Condition()
        self._server: rpc.RpcServer | None = None
        self.address = ""

    async def start(self, port: int = 0) -> Self:
        self._server = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.NameserverService"])
        nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(self, self._server.server)
        self.address = f"127.0.0.1:{await self._server.start(f'127.0.0.1:{port}')}"
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    async def publish(self) -> None:
        """Push the present routes to whoever watches."""
        self.version += 1
        async with self._changed:
            self._changed.notify_all()

    def _route(self, topic: str) -> nameserver_pb2.TopicRoute:
        # Nameservers have no list of retry topics, which are wherever they are needed.
        is_everywhere = self.has_retry_topics and is_retry_topic(topic)
        holders = [broker for broker in self.brokers if is_everywhere or topic in broker.topics]
        if not holders:
            return nameserver_pb2.TopicRoute(
                status=common_pb2.Status(
                    code=common_pb2.TOPIC_NOT_FOUND, message=f"topic {topic!r} does not exist"
                )
            )
        return nameserver_pb2.TopicRoute(
            status=common_pb2.Status(code=common_pb2.OK),
            topic=common_pb2.TopicConfig(
                name=topic,
                perm=6,
                queues_by_broker={broker.name: broker.topics.get(topic, 1) for broker in holders},
            ),
            brokers=self._masters(holders) + self.slaves,
        )

    def _masters(self, brokers: Sequence[Routable]) -> list[nameserver_pb2.BrokerEndpoint]:
        return [
            nameserver_pb2.BrokerEndpoint(
                identity=common_pb2.BrokerIdentity(broker_name=broker.name),
                address=broker.address,
                role=common_pb2.MASTER,
                writable=True,
            )
            for broker in brokers
            if broker.is_running
        ]

    def _answer(self, topics: Sequence[str]) -> nameserver_pb2.QueryRouteResponse:
        return nameserver_pb2.QueryRouteResponse(
            version=self.version,
            stale=self.stale,
            routes=[self._route(topic) for topic in topics],
        )

    async def QueryRoute(
        self, request: nameserver_pb2.QueryRouteRequest, context: Any
    ) -> nameserver_pb2.QueryRouteResponse:
        return self._answer(request.topics)

    async def DescribeCluster(
        self, request: nameserver_pb2.DescribeClusterRequest, context: Any
    ) -> nameserver_pb2.ClusterDescription:
        brokers = self._masters(self.brokers) + self.slaves
        return nameserver_pb2.ClusterDescription(
            cluster=request.cluster,
            version=self.version,
            brokers=brokers,
            heartbeat_age_ms=[0] * len(brokers),
        )

    async def ListTopics(
        self, request: nameserver_pb2.ListTopicsRequest, context: Any
    ) -> nameserver_pb2.ListTopicsResponse:
        names = sorted({topic for broker in self.brokers for topic in broker.topics})
        return nameserver_pb2.ListTopicsResponse(topics=[self._route(name).topic for name in names])

    async def WatchRoutes(
        self, request: nameserver_pb2.WatchRoutesRequest, context: Any
    ) -> AsyncIterator[nameserver_pb2.QueryRouteResponse]:
        while True:
            version = self.version
            yield self._answer(request.topics)
            async with self._changed:
                while self.version == version:
                    await self._changed.wait()


@dataclass
class RealCluster(BrokerHand):
    """Brokers, their nameserver, and a hand to send and look with."""

    brokers: Mapping[str, Broker]
    nameserver: RouteServer
    channels: Channels = field(default_factory=Channels)

    @property
    def address(self) -> str:
        return self.nameserver.address

    def address_of(self, broker: str) -> str:
        return self._broker(broker).address

    def _broker(self, name: str) -> Routable:
        return self.brokers[name] if name else next(iter(self.brokers.values()))

    async def stop(self) -> None:
        await self.channels.close()
        await self.nameserver.stop()
        for broker in self.brokers.values():
            await broker.stop()


async def start_cluster(
    folder: Path, topics_by_broker: Mapping[str, Mapping[str, int]]
) -> RealCluster:
    """Brokers by name, each with its topics and their queue counts."""
    brokers = {
        name: await RealBroker(name, folder / name, topics).start()
        for name, topics in topics_by_broker.items()
    }
    nameserver = await RouteServer(list(brokers.values())).start()
    return RealCluster(brokers, nameserver)


class Link:
    """A TCP proxy to one broker that a test can freeze: bytes wait in both directions, as behind
    a dead network, and connections look alive."""

    def __init__(self, broker: Routable) -> None:
        self.name = broker.name
        self.topics = broker.topics
        self._broker = broker
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._address = ""

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_running(self) -> bool:
        return self._broker.is_running

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self._address = f"{host}:{port}"
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._broker.address.split(":"))
        for source, target in ((reader, far_writer), (far_reader, writer)):
            pump = asyncio.create_task(self._pump(source, target), name="link")
            self._pumps.add(pump)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self._flows.wait()
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()


async def serve_one(
    name: str,
    folder: Path,
    topics: Mapping[str, int],
    store_options: Mapping[str, int],
    transactions: Mapping[str, int],
) -> None:
    """What a BrokerProcess runs: it ends with its standard input."""
    broker = await RealBroker(
        name,
        folder,
        topics,
        store_options=store_options,
        transactions=TransactionsConfig(**transactions),
    ).start()
    print(broker.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await broker.stop()


if __name__ == "__main__":
    options: list[Any] = [json.loads(each) for each in sys.argv[3:6]]
    asyncio.run(serve_one(sys.argv[1], Path(sys.argv[2]), *options))
