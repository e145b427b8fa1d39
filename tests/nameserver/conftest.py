"""A real etcd that tests may kill, nameservers on free ports, and brokers that heartbeat."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from aerobee.access.config import AccessConfig
from aerobee.nameserver.app import serve_nameserver
from aerobee.nameserver.config import (
    BrokerLeaseConfig,
    EtcdConfig,
    NameserverConfig,
    TopicPolicy,
)
from aerobee.nameserver.etcd import Etcd
from aerobee.rpc.outside_config import OutsideConfig
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.supervise import Lifecycle
from aerobee.v1 import common_pb2, nameserver_pb2, nameserver_pb2_grpc
from tests.support.etcd import EtcdProcess, running_etcd
from tests.support.heartbeating_replica import HeartbeatingReplica
from tests.support.waiting import until


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """An etcd for tests that do no harm to it; each uses a cluster name of its own."""
    with running_etcd(tmp_path_factory.mktemp("shared-etcd")) as process:
        yield process


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """An etcd for one test, to be killed and restarted; not started yet."""
    process = EtcdProcess(tmp_path)
    yield process
    process.stop()


@pytest.fixture
def cluster() -> str:
    """A cluster name that no other test uses."""
    return f"test-{random.randrange(10**12)}"


@pytest.fixture
async def etcd(shared_etcd: EtcdProcess) -> AsyncIterator[Etcd]:
    async with Etcd(
        EtcdConfig(endpoints=(shared_etcd.endpoint,)), chance=random.Random(1)
    ) as client:
        yield client


Stub = nameserver_pb2_grpc.NameserverServiceStub


@dataclass
class Nameserver:
    """A nameserver in this process, with a client's stub."""

    port: int
    stub: Stub
    lifecycle: Lifecycle
    channel: grpc.aio.Channel
    task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def stop(self) -> None:
        """A graceful stop."""
        self.lifecycle.stop.set()
        assert self.task is not None
        await self.task


StartNameserver = Callable[..., Awaitable[Nameserver]]


@pytest.fixture
async def start_nameserver(cluster: str) -> AsyncIterator[StartNameserver]:
    """Starts nameservers of this test's cluster; stops those that still run at the end."""
    async with asyncio.TaskGroup() as tasks:
        started: list[Nameserver] = []

        async def start(
            endpoint: str,
            *,
            listen: str = "127.0.0.1:0",
            known: bool = True,
            unclean_election: bool = False,
            secret_file: str = "",
            outside: str = "",
            **policy: object,
        ) -> Nameserver:
            config = NameserverConfig(
                cluster=cluster,
                listen=listen,
                stop_grace_ms=200,
                etcd=EtcdConfig(endpoints=(endpoint,), call_timeout_ms=1_000, reconnect_max_ms=200),
                topics=TopicPolicy(**policy),  # type: ignore[arg-type]
                broker_lease=BrokerLeaseConfig(default_ms=1_000),
                unclean_election=unclean_election,
                access=AccessConfig(cluster_secret_file=secret_file),
                outside=OutsideConfig(listen=outside),
            )
            lifecycle = Lifecycle()
            listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            task = tasks.create_task(
                serve_nameserver(
                    config,
                    lifecycle,
                    clock=SystemClock(),
                    chance=random.Random(2),
                    on_listening=listening.set_result,
                )
            )
            port = await listening
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            server = Nameserver(port, Stub(channel), lifecycle, channel, task)
            started.append(server)
            if known:
                await until(lambda: answers(server))
            return server

        yield start
        for server in started:
            await server.channel.close()
            server.lifecycle.stop.set()


async def answers(server: Nameserver) -> bool:
    """Whether a nameserver knows routes, fresh or not."""
    try:
        await server.stub.ListTopics(nameserver_pb2.ListTopicsRequest())
    except grpc.aio.AioRpcError:
        return False
    return True


@dataclass
class Broker:
    """A broker as far as a nameserver can tell: heartbeats over a real stream."""

    cluster: str
    name: str
    instance: str
    address: str
    outside_address: str = ""
    broker_id: int = 0
    lease_ms: int = 1_000
    metadata_revision: int = 0
    metadata_history: str = ""
    stores_topics: bool = True
    writable: bool = True
    in_sync_min: int = 1
    log_kept_hours: int = 0
    directives: list[nameserver_pb2.BrokerDirective] = field(default_factory=list)

    def heartbeat(self, *, leaving: bool = False) -> nameserver_pb2.BrokerHeartbeat:
        return nameserver_pb2.BrokerHeartbeat(
            identity=common_pb2.BrokerIdentity(
                cluster=self.cluster,
                broker_name=self.name,
                broker_id=self.broker_id,
                instance=self.instance,
            ),
            address=self.address,
            outside_address=self.outside_address,
            lease_duration_ms=self.lease_ms,
            metadata_revision=self.metadata_revision,
            metadata_history=self.metadata_history,
            writable=self.writable,
            in_sync_min=self.in_sync_min,
            log_kept_hours=self.log_kept_hours,
            leaving=leaving,
        )

    async def beat_until_cancelled(self, stub: Stub, *, interval_s: float = 0.3) -> None:
        """Heartbeats and acknowledgements on one stream; a failure ends it."""
        call = stub.Register()

        async def follow() -> None:
            while (directive := await call.read()) is not grpc.aio.EOF:
                self.directives.append(directive)
                told = (directive.metadata_revision, directive.metadata_history)
                is_news = told != (self.metadata_revision, self.metadata_history)
                if is_news and self.stores_topics:
                    self.metadata_revision, self.metadata_history = told
                    await call.write(self.heartbeat())
            raise ConnectionError("the nameserver ended the stream")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow())
            while True:
                await call.write(self.heartbeat())
                await asyncio.sleep(interval_s)


@pytest.fixture
async def make_replica(cluster: str) -> AsyncIterator[Callable[..., HeartbeatingReplica]]:
    """A replica of this test's group; `connect` it to a nameserver."""
    made: list[HeartbeatingReplica] = []

    def make(broker_id: int, instance: str, **settings: object) -> HeartbeatingReplica:
        replica = HeartbeatingReplica(cluster, broker_id, instance, **settings)  # type: ignore[arg-type]
        made.append(replica)
        return replica

    yield make
    for replica in made:
        for start in replica.starts:
            start.kill()


MakeBroker = Callable[..., Broker]


@pytest.fixture
def make_broker(cluster: str) -> MakeBroker:
    """A broker of this test's cluster, with an instance and an address of its own."""
    numbers = itertools.count(1)

    def make(name: str, **settings: object) -> Broker:
        number = next(numbers)
        settings.setdefault("instance", f"instance-{number}")
        settings.setdefault("address", f"127.0.0.1:{10_000 + number}")
        return Broker(cluster, name, **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture
async def running() -> AsyncIterator[Callable[..., Awaitable[asyncio.Task[None]]]]:
    """Runs brokers in the background: `task = await running(broker, nameserver)`."""
    tasks: list[asyncio.Task[None]] = []

    async def start(broker: Broker, server: Nameserver) -> asyncio.Task[None]:
        heard = len(broker.directives)
        task = asyncio.create_task(broker.beat_until_cancelled(server.stub))
        tasks.append(task)

        async def answered() -> bool:
            return task.done() or len(broker.directives) > heard

        await until(answered)
        return task

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Link:
    """A TCP proxy in front of etcd, which tests can cut or let fall silent."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def heal(self) -> None:
        """Accept connections (again)."""
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Close all connections and refuse new ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0.01)

    def silence(self) -> None:
        """Keep all connections, and carry nothing."""
        self._flowing.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(
                "127.0.0.1", self._target_port
            )
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, target_writer}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(reader, target_writer))
                tasks.create_task(self._carry(target_reader, writer))
        except* OSError:
            pass
        finally:
            for one in (writer, target_writer):
                one.transport.abort()
                with contextlib.suppress(OSError):
                    await one.wait_closed()
            self._writers -= {writer, target_writer}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
async def link(shared_etcd: EtcdProcess) -> AsyncIterator[Link]:
    """A healthy link to the shared etcd."""
    link = Link(shared_etcd.client_port)
    await link.heal()
    yield link
    link._flowing.set()
    await link.cut()
