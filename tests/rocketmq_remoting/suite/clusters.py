"""The clusters that the suite runs against: ours, and Apache's own servers. Both have two brokers,
`broker-a` and `broker-b`, and a nameserver, and create no topics by themselves unless told so."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from peers.fetching import needed_program
from peers.rocketmq import RocketmqPrograms
from tests.support.local_up import Up, is_alive, running
from tests.support.ports import free_port
from tests.support.waiting import wait_until

BROKERS = ("broker-a", "broker-b")
NAMESERVER = "nameserver"
CREATING = "creating"
"""A cluster that creates a topic when somebody sends to it."""
_START_S = 120.0
_APACHE_BROKER = """\
brokerClusterName=DefaultCluster
brokerName={name}
brokerId=0
brokerIP1=127.0.0.1
listenPort={port}
haListenPort={replicas}
storePathRootDir={data}
storePathCommitLog={data}/commitlog
namesrvAddr={nameserver}
autoCreateTopicEnable={creates}
enablePropertyFilter=true
recallMessageEnable=true
mappedFileSizeCommitLog=67108864
maxHashSlotNum=250000
maxIndexNum=1000000
diskMaxUsedSpaceRatio=99
flushConsumerOffsetInterval=500
transactionTimeOut=1000
transactionCheckInterval=1000
transactionOpBatchInterval=300
"""
_JAVA_FLAGS = ("-Xms256m", "-Xmx768m", "-XX:MaxDirectMemorySize=1g", "-XX:+UseSerialGC")


class Cluster(Protocol):
    """What the suite does to one."""

    @property
    def address(self) -> str:
        """Of its nameserver."""
        ...

    def kill(self, name: str) -> None:
        """Signal 9; the node starts again by itself."""
        ...

    def restart(self, name: str) -> None:
        """As operators stop it; returns once it has ended, and it starts again by itself."""
        ...


class OwnCluster:
    """See `Cluster`."""

    def __init__(self, up: Up) -> None:
        self._up = up

    @property
    def address(self) -> str:
        address: str = self._up.document()["nameserver"]
        return address

    def kill(self, name: str) -> None:
        self._end(name, signal.SIGKILL)

    def restart(self, name: str) -> None:
        self._end(name, signal.SIGTERM)

    def _end(self, name: str, how: signal.Signals) -> None:
        process_id = wait_until(lambda: self._process_id(name), f"{name} to run")
        os.kill(process_id, how)
        wait_until(lambda: not is_alive(process_id), f"the end of {name}")

    def _process_id(self, name: str) -> int | None:
        document = self._up.document()
        found: dict[str, Any] = {each["name"]: each["pid"] for each in document["brokers"]}
        found[NAMESERVER] = document["pids"][NAMESERVER]
        process_id: int | None = found[name]
        return process_id if process_id is not None and is_alive(process_id) else None


@contextlib.contextmanager
def own_cluster(folder: Path, kind: str, topics: Mapping[str, int]) -> Iterator[Cluster]:
    """`topics`: how many queues each has, on both brokers together."""
    rules = {"timeout_ms": 1_000, "check_interval_ms": 1_000, "checks_max": 1_000}
    settings = [f"--broker-set=transactions.{name}={value}" for name, value in rules.items()]
    with running(folder, "--brokers", str(len(BROKERS)), *settings) as up:
        for count in sorted(set(topics.values())):
            names = [name for name, queues in topics.items() if queues == count]
            up.run("topic", "create", *names, "--queues", str(count))
        last = list(topics)[-1:]
        wait_until(lambda: all(up.knows(topic) for topic in last), "the topics")
        yield OwnCluster(up)


class ApacheCluster:
    """See `Cluster`."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        configuration = folder / "namesrv.conf"
        configuration.write_text(f"listenPort={port}\n")
        self._starts: dict[str, tuple[int, tuple[str | Path, ...]]] = {
            NAMESERVER: (
                port,
                ("-Xmx256m", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", configuration),
            )
        }
        for name in BROKERS:
            broker = folder / f"{name}.conf"
            port = free_port()
            told = {"name": name, "port": port, "replicas": free_port(), "data": folder / name}
            told |= {"nameserver": self.address, "creates": str(kind == CREATING).lower()}
            broker.write_text(_APACHE_BROKER.format(**told))
            command = (*_JAVA_FLAGS, "org.apache.rocketmq.broker.BrokerStartup", "-c", broker)
            self._starts[name] = port, command
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        _, command = self._starts[name]
        homes = (f"-Drocketmq.home.dir={self._folder}", f"-Duser.home={self._folder / name}")
        classes = ("-cp", RocketmqPrograms().classes)
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [needed_program("java", "install a JDK"), *homes, *classes, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    def write_topics(self, topics: Mapping[str, int]) -> None:
        """Before the first start."""
        for number, name in enumerate(BROKERS):
            table = {}
            for topic, count in topics.items():
                queues = (count + len(BROKERS) - 1 - number) // len(BROKERS)
                if queues:
                    table[topic] = {
                        "topicName": topic,
                        "readQueueNums": queues,
                        "writeQueueNums": queues,
                        "perm": 6,
                        "topicFilterType": "SINGLE_TAG",
                        "topicSysFlag": 0,
                        "order": False,
                        "attributes": {},
                    }
            folder = self._folder / name / "config"
            folder.mkdir(parents=True)
            version = {"counter": 1, "timestamp": 1}
            document = {"dataVersion": version, "topicConfigTable": table}
            (folder / "topics.json").write_text(json.dumps(document))

    def wait_listening(self, name: str) -> None:
        port, _ = self._starts[name]
        with contextlib.suppress(AssertionError):
            wait_until(lambda: _accepts(port), timeout_s=_START_S)
            return
        raise AssertionError((self._folder / f"{name}.log").read_text(errors="replace")[-2_000:])

    def kill(self, name: str) -> None:
        self._end(name, signal.SIGKILL)
        self.start(name)

    def restart(self, name: str) -> None:
        self._end(name, signal.SIGTERM)
        self.start(name)

    def _end(self, name: str, how: signal.Signals) -> None:
        self.wait_listening(name)
        self._processes[name].send_signal(how)
        self._processes[name].wait(_START_S)

    def end_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def apache_cluster(folder: Path, kind: str, topics: Mapping[str, int]) -> Iterator[Cluster]:
    """`topics`: how many queues each has, on both brokers together."""
    cluster = ApacheCluster(folder, kind)
    cluster.write_topics(topics)
    try:
        for name in (NAMESERVER, *BROKERS):
            cluster.start(name)
            cluster.wait_listening(name)
        yield cluster
    finally:
        cluster.end_all()


CLUSTERS = {"aerobee": own_cluster, "apache": apache_cluster}
