"""Apache RocketMQ and Aerobee, both called by Apache's own Java client.

Maven fetches the client's jar from Maven Central; jars.sha256 has its checksum.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from peers.fetching import cache_folder, fetch_jars, needed_program
from peers.go_programs import key_of
from peers.kafka import JDK
from peers.parts import V2_JAVA, V2_JAVA_PINNED, V2_JAVA_WARM_UP
from peers.processes import Server, said_by
from peers.rocketmq import TITLE, RocketmqPrograms, running_own, running_rocketmq
from peers.system import Stage
from peers.table import OURS
from peers.v2_load import TOPIC

VERSION = "5.0.8"
SOURCES = Path(__file__).parent / "rocketmq_load"
STAGES = (
    Stage(False, V2_JAVA_WARM_UP, V2_JAVA),
    Stage(False, V2_JAVA_WARM_UP[:1], V2_JAVA_PINNED, is_on_one_core=True),
)
JAVA_FLAGS = ("-Xms512m", "-Xmx512m")


class JavaLoad:
    """The client, and the load compiled against it."""

    @property
    def folder(self) -> Path:
        return cache_folder() / f"rocketmq-java-{VERSION}-{key_of(SOURCES.iterdir())}"

    @property
    def source(self) -> str:
        return (
            f"org.apache.rocketmq:rocketmq-client-java:{VERSION} and gson, from Maven Central, by "
            "mvn (2 jars, 27 MB)"
        )

    async def fetch(self, into: Path) -> None:
        compiler = needed_program("javac", JDK)
        jars = await fetch_jars(SOURCES, into)
        classes = ("-cp", f"{jars}/*", "-d", into / "classes")
        await said_by((compiler, *classes, *sorted(SOURCES.glob("*.java"))), folder=into)

    def load(self, folder: Path, address: str, body_bytes: int) -> tuple[str, ...]:
        """Its command; it logs into `folder`."""
        java = needed_program("java", JDK)
        classes = f"{self.folder}/jars/*:{self.folder}/classes"
        settings = (f"-Duser.home={folder}", "-Drocketmq.log.level=WARN")
        command = (java, *JAVA_FLAGS, *settings, "-cp", classes, "RocketmqLoad")
        return (*command, address, str(body_bytes), TOPIC)


class RocketmqByJava:
    """Apache's proxy."""

    stages = STAGES
    title = TITLE
    programs = (RocketmqPrograms(), JavaLoad())

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        assert not sync_flush, "it takes no part in that"
        async with running_rocketmq(folder) as (process_id, address):
            yield Server(process_id, JavaLoad().load(folder, address, body_bytes))


class OwnByJava:
    """Our broker."""

    stages = STAGES
    title = OURS

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        async with running_own(folder) as (process_id, address):
            yield Server(process_id, JavaLoad().load(folder, address, body_bytes))
