"""Apache RocketMQ and Aerobee, both called by Apache's own Java client of the remoting protocol.

The client's jars are among those of Apache's server.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from aerobee.bench.cluster import running_cluster
from peers.fetching import cache_folder, needed_program
from peers.go_programs import key_of
from peers.kafka import JDK
from peers.parts import REMOTING, REMOTING_WARM_UP
from peers.processes import Server, said_by
from peers.rocketmq import (
    JAVA_FLAGS,
    TITLE,
    RocketmqPrograms,
    create_topics,
    rocketmq_on,
    write_rocketmq_topics,
)
from peers.rocketmq import SOURCES as SERVER_SOURCES
from peers.system import Stage
from peers.table import OURS
from peers.v2_load import STEADY_TOPIC, TOPIC, until_routed

SOURCES = Path(__file__).parent / "remoting_load"
STAGES = (Stage(False, REMOTING_WARM_UP, REMOTING),)
LOAD_FLAGS = ("-Xms1g", "-Xmx1g")
SETTINGS = "waitTimeMillsInSendQueue=10000\n"
"""Of Apache's broker, which else refuses what has waited for 200 ms on a busy machine."""


class RemotingLoad:
    """The load, compiled against the jars of Apache's server, which are fetched before."""

    @property
    def folder(self) -> Path:
        key = key_of((*SOURCES.iterdir(), *SERVER_SOURCES.iterdir()))
        return cache_folder() / f"rocketmq-remoting-{key}"

    @property
    def source(self) -> str:
        return f"a load, compiled by javac against {RocketmqPrograms().folder}"

    async def fetch(self, into: Path) -> None:
        compiler = needed_program("javac", JDK)
        classes = ("-cp", RocketmqPrograms().classes, "-d", into / "classes")
        await said_by((compiler, *classes, *sorted(SOURCES.glob("*.java"))), folder=into)

    def load(self, folder: Path, nameserver: str, body_bytes: int) -> tuple[str, ...]:
        """Its command; it logs into `folder`."""
        java = needed_program("java", JDK)
        classes = f"{self.folder / 'classes'}:{RocketmqPrograms().classes}"
        command = (java, *LOAD_FLAGS, f"-Duser.home={folder}", "-cp", classes, "RemotingLoad")
        return (*command, nameserver, str(body_bytes), TOPIC, STEADY_TOPIC)


class RocketmqByRemoting:
    """Apache's broker, beside its proxy in one process, which has nothing to do."""

    stages = STAGES
    title = TITLE
    programs = (RocketmqPrograms(), RemotingLoad())

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        assert not sync_flush, "it takes no part in that"
        write_rocketmq_topics(folder / "data")
        async with rocketmq_on(
            folder / "data", folder, java_flags=JAVA_FLAGS, settings=SETTINGS
        ) as running:
            await until_routed(running.address)
            load = RemotingLoad().load(folder, running.nameserver, body_bytes)
            yield Server(running.process.pid, load)


class OwnByRemoting:
    """Our broker."""

    stages = STAGES
    title = OURS

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, body_bytes: int, *, sync_flush: bool
    ) -> AsyncIterator[Server]:
        async with running_cluster() as cluster:
            process_id = cluster.process_of("broker-a", 0)
            assert process_id is not None, "it has said that it is ready"
            await create_topics(cluster.nameserver, folder)
            yield Server(process_id, RemotingLoad().load(folder, cluster.nameserver, body_bytes))
