"""Kafka: one node, broker and KRaft controller in one process, and its Java client.

The jars come from Maven Central by Maven itself, which knows mirrors and proxies; jars.sha256 has
the checksum of each.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from aerobee.bench.peers.fetching import cache_folder, check_sums, needed_program
from aerobee.bench.peers.go_programs import key_of
from aerobee.bench.peers.processes import Server, free_port, listening, said_by
from aerobee.bench.peers.system import BROKER_STAGES

VERSION = "4.1.1"
SOURCES = Path(__file__).parent / "kafka_load"
PARTITIONS = 4
"""As many as a topic of Aerobee has queues."""
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
# Those of kafka-server-start.sh.
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
    def source(self) -> str:
        return (
            f"org.apache.kafka:kafka_2.13:{VERSION} and what it needs, from Maven Central, by mvn "
            "(45 jars, 43 MB)"
        )

    async def fetch(self, into: Path) -> None:
        maven = needed_program("mvn", "install Maven (Debian: apt-get install maven)")
        compiler = needed_program("javac", "install a JDK, 17 or newer (Debian: default-jdk)")
        jars = into / "jars"
        # Maven writes beside the file that it reads.
        shutil.copy(SOURCES / "pom.xml", into)
        copy = (
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}",
        )
        await said_by((maven, "--batch-mode", "--quiet", *copy), folder=into)
        check_sums(jars, SOURCES / "jars.sha256")
        classes = ("-cp", f"{jars}/*", "-d", into / "classes")
        await said_by((compiler, *classes, SOURCES / "KafkaLoad.java"), folder=into)


class Kafka:
    """Its defaults, which never wait for the disk, or `log.flush.interval.messages=1`."""

    stages = BROKER_STAGES
    title = f"Kafka {VERSION}, Java"
    programs = (KafkaPrograms(),)

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        java = needed_program("java", "install a JDK, 17 or newer (Debian: default-jdk)")
        programs = KafkaPrograms().folder
        classes = f"{programs}/jars/*:{programs}/classes"
        port = free_port()
        config = folder / "server.properties"
        text = CONFIG.format(port=port, controller=free_port(), data=folder / "data")
        config.write_text(text + ("log.flush.interval.messages=1\n" if sync_flush else ""))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_data = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", config)
        await said_by((java, "-cp", classes, *format_data), folder=folder)
        async with listening(
            *(java, *JAVA_FLAGS, "-cp", classes, "kafka.Kafka", config), port=port, folder=folder
        ) as process:
            load = (java, "-Xms512m", "-Xmx512m", "-cp", classes, "KafkaLoad")
            arguments = (f"127.0.0.1:{port}", str(body_bytes), str(PARTITIONS))
            yield Server(process.pid, (*load, *arguments))
