"""Kafka: one node, broker and KRaft controller in one process, and its Java client.

Maven fetches the jars from Maven Central, with the user's mirrors and proxies; jars.sha256 has the
checksum of each.
"""

from __future__ import annotations

import base64
import contextlib
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from peers.fetching import cache_folder, fetch_jars, needed_program
from peers.go_programs import key_of
from peers.librdkafka import Librdkafka
from peers.processes import Server, free_port, listening, said_by
from peers.system import BROKER_STAGES

VERSION = "4.1.1"
SOURCES = Path(__file__).parent / "kafka_load"
PARTITIONS = 4
"""The number of queues of an Aerobee topic."""
CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
"""
JDK = "install a JDK, 17 or newer (Debian: default-jdk)"
# The flags of kafka-server-start.sh.
JAVA_FLAGS = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)


class KafkaPrograms:
    """Kafka's jars, and the load compiled against them."""

    @property
    def folder(self) -> Path:
        return cache_folder() / f"kafka-{VERSION}-{key_of(SOURCES.iterdir())}"

    @property
    def classes(self) -> str:
        """The class path of server and load."""
        return f"{self.folder}/jars/*:{self.folder}/classes"

    @property
    def source(self) -> str:
        return (
            f"org.apache.kafka:kafka_2.13:{VERSION} and what it needs, from Maven Central, by mvn "
            "(45 jars, 43 MB)"
        )

    async def fetch(self, into: Path) -> None:
        compiler = needed_program("javac", JDK)
        jars = await fetch_jars(SOURCES, into)
        classes = ("-cp", f"{jars}/*", "-d", into / "classes")
        await said_by((compiler, *classes, SOURCES / "KafkaLoad.java"), folder=into)


@contextlib.asynccontextmanager
async def running_kafka(folder: Path, *, sync_flush: bool) -> AsyncIterator[tuple[int, str]]:
    """The id of its process, and its address."""
    java = needed_program("java", JDK)
    programs = KafkaPrograms()
    port = free_port()
    config = folder / "server.properties"
    text = CONFIG.format(port=port, controller=free_port(), data=folder / "data")
    config.write_text(text + ("log.flush.interval.messages=1\n" if sync_flush else ""))
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # In one argument: one id of 64 begins with a dash and would be taken for another option.
    named = f"--cluster-id={cluster}"
    format_data = ("kafka.tools.StorageTool", "format", named, "-c", config)
    await said_by((java, "-cp", programs.classes, *format_data), folder=folder)
    server = (java, *JAVA_FLAGS, "-cp", programs.classes, "kafka.Kafka", config)
    async with listening(*server, port=port, folder=folder) as process:
        yield process.pid, f"127.0.0.1:{port}"


class Kafka:
    """Default settings, which never wait for the disk, or `log.flush.interval.messages=1`."""

    stages = BROKER_STAGES
    title = f"Kafka {VERSION}, Java"
    programs = (KafkaPrograms(),)

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        java = needed_program("java", JDK)
        load = (java, "-Xms512m", "-Xmx512m", "-cp", KafkaPrograms().classes, "KafkaLoad")
        async with running_kafka(folder, sync_flush=sync_flush) as (process_id, address):
            yield Server(process_id, (*load, address, str(body_bytes), str(PARTITIONS)))


class KafkaByLibrdkafka:
    """The same server with the C client that most other languages use, here from Python."""

    stages = BROKER_STAGES
    title = f"Kafka {VERSION}, librdkafka"
    programs = (KafkaPrograms(), Librdkafka())

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        program = (sys.executable, "-m", "peers.librdkafka_load")
        load = (*program, str(Librdkafka().folder))
        async with running_kafka(folder, sync_flush=sync_flush) as (process_id, address):
            yield Server(process_id, (*load, address, str(body_bytes), str(PARTITIONS)))
