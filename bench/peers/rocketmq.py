"""Apache RocketMQ: a name server, and its gRPC proxy with a broker in one process; and Aerobee
under the same load.

Maven fetches the jars from Maven Central, with the user's mirrors and proxies; jars.sha256 has the
checksum of each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aerobee.bench.cluster import running_cluster
from peers.fetching import cache_folder, fetch_jars, needed_program
from peers.go_programs import key_of
from peers.kafka import JDK
from peers.parts import V2, V2_WARM_UP
from peers.processes import Server, free_port, listening, said_by
from peers.system import Stage
from peers.table import OURS
from peers.v2_load import IDLE_TOPIC, STEADY_TOPIC, TOPIC, until_routed

VERSION = "5.3.3"
TITLE = f"Apache RocketMQ {VERSION}"
TOPICS = (TOPIC, STEADY_TOPIC, IDLE_TOPIC)
SOURCES = Path(__file__).parent / "rocketmq_proxy"
QUEUES = 4
STAGES = (Stage(False, V2_WARM_UP, V2),)
LOAD = (sys.executable, "-m", "peers.v2_load")
BROKER_CONFIG = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerIP1=127.0.0.1
listenPort={port}
haListenPort={replicas}
storePathRootDir={data}
storePathCommitLog={data}/commitlog
namesrvAddr=127.0.0.1:{nameserver}
"""
# Less than in runbroker.sh, which takes half of the machine.
JAVA_FLAGS = ("-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=2g")


class RocketmqPrograms:
    """Apache RocketMQ's jars."""

    @property
    def folder(self) -> Path:
        return cache_folder() / f"rocketmq-{VERSION}-{key_of(SOURCES.iterdir())}"

    @property
    def classes(self) -> str:
        """The class path."""
        return f"{self.folder}/jars/*"

    @property
    def source(self) -> str:
        return (
            f"org.apache.rocketmq:rocketmq-proxy:{VERSION} and what it needs, from Maven Central, "
            "by mvn (147 jars, 91 MB)"
        )

    async def fetch(self, into: Path) -> None:
        await fetch_jars(SOURCES, into)


@dataclass(frozen=True, slots=True)
class RocketmqProcess:
    """The process that is both proxy and broker, and the addresses of it and its name server."""

    process: asyncio.subprocess.Process
    address: str
    nameserver: str


@contextlib.asynccontextmanager
async def running_rocketmq(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """The id of the process that is both proxy and broker, and its address. All settings are
    defaults: asynchronous flush, the proxy in local mode."""
    write_rocketmq_topics(folder / "data")
    async with rocketmq_on(folder / "data", folder, java_flags=JAVA_FLAGS) as running:
        await until_routed(running.address)
        yield running.process.pid, running.address


@contextlib.asynccontextmanager
async def rocketmq_on(
    data: Path, folder: Path, *, java_flags: Sequence[str], settings: str = ""
) -> AsyncIterator[RocketmqProcess]:
    """A name server, and proxy and broker on the store `data`; `folder` gets configuration and
    logs. `settings`: lines of broker.conf."""
    java = needed_program("java", JDK)
    nameserver, grpc = free_port(), free_port()
    _write_configuration(data, folder, nameserver=nameserver, grpc=grpc, settings=settings)
    environment = f"-Drocketmq.home.dir={folder}", f"-Duser.home={folder}"
    command = (java, *environment, "-cp", RocketmqPrograms().classes)
    names = ("org.apache.rocketmq.namesrv.NamesrvStartup", "-c", folder / "namesrv.conf")
    proxy = (
        "org.apache.rocketmq.proxy.ProxyStartup",
        *("-pm", "local", "-n", f"127.0.0.1:{nameserver}"),
        *("-bc", folder / "broker.conf", "-pc", folder / "conf" / "rmq-proxy.json"),
    )
    async with (
        listening(*command, "-Xmx256m", *names, port=nameserver, folder=folder),
        listening(*command, *java_flags, *proxy, port=grpc, folder=folder) as process,
    ):
        yield RocketmqProcess(process, f"127.0.0.1:{grpc}", f"127.0.0.1:{nameserver}")


class Rocketmq:
    """Called without a client library."""

    stages = STAGES
    title = TITLE
    programs = (RocketmqPrograms(),)

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        assert not sync_flush, "it takes no part in that"
        async with running_rocketmq(folder) as (process_id, address):
            yield Server(process_id, (*LOAD, address, str(body_bytes)))


def _write_configuration(
    data: Path, folder: Path, *, nameserver: int, grpc: int, settings: str
) -> None:
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "namesrv.conf").write_text(f"listenPort={nameserver}\n")
    ports = {"port": free_port(), "replicas": free_port(), "nameserver": nameserver}
    (folder / "broker.conf").write_text(BROKER_CONFIG.format(**ports, data=data) + settings)
    proxy = {
        "rocketMQClusterName": "DefaultCluster",
        "grpcServerPort": grpc,
        "remotingListenPort": free_port(),
    }
    (folder / "conf" / "rmq-proxy.json").write_text(json.dumps(proxy))


def write_rocketmq_topics(data: Path) -> None:
    """The topics of the loads, for a new store."""
    write_topics(data, dict.fromkeys(TOPICS, "NORMAL"), queues=QUEUES)


def write_topics(data: Path, types: Mapping[str, str], *, queues: int) -> None:
    """For a new store: its topics with the type of message that each takes."""
    topics = {
        name: {
            "topicName": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": {"message.type": message_type},
        }
        for name, message_type in types.items()
    }
    table = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": topics}
    (data / "config").mkdir(parents=True)
    (data / "config" / "topics.json").write_text(json.dumps(table))


async def create_topics(nameserver: str, folder: Path) -> None:
    """The topics of the loads, in our cluster."""
    create = (sys.executable, "-m", "aerobee.cli", "topic", "create", *TOPICS)
    named = ("--queues", str(QUEUES), "--nameserver", nameserver)
    await said_by((*create, *named), folder=folder)


@contextlib.asynccontextmanager
async def running_own(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """The id of a broker's process, with the file sizes of production, and its address."""
    async with running_cluster() as cluster:
        process_id = cluster.process_of("broker-a", 0)
        assert process_id is not None, "it has said that it is ready"
        await create_topics(cluster.nameserver, folder)
        yield process_id, cluster.brokers[0]


class OwnV2:
    """Aerobee under the same calls: a nameserver, and a broker, which is called."""

    stages = STAGES
    title = OURS

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        async with running_own(folder) as (process_id, address):
            yield Server(process_id, (*LOAD, address, str(body_bytes)))
