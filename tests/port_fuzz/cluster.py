"""The cluster under attack: real processes, and what the campaign asks of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from aerobee.rocketmq_api.times import duration
from aerobee.rpc.core.channel import Channel
from aerobee.rpc.core.tls import TlsFiles, client_context
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.port_fuzz.caller import Orders, Unheard
from tests.port_fuzz.doors import Callers, Kind, Ports
from tests.port_fuzz.odd_calls import GROUPS, TOPICS
from tests.support.local_up import Up, is_alive, running
from tests.support.v2_calls import METADATA, sent_message
from tests.support.waiting import wait_until

WATCHED_TOPIC, WATCHED_GROUP = "watched", "watchmen"
CLUSTER: Final = "aerobee"
LEASE_MS: Final = 20_000
_SERVED: Final = {
    "health": re.compile(r"health is served .*\bport=(\d+)"),
    "metrics": re.compile(r"metrics are served .*\baddress=(\S+)"),
}
_BUGS: Final = ("Traceback (most recent call last)", "because of a bug", "Warning: ")
_ALL_PORTS: Final = {
    f"AEROBEE_{node}_{port}_LISTEN": "127.0.0.1:0"
    for node in ("NAMESERVER", "BROKER")
    for port in ("HEALTH", "METRICS")
} | {"AEROBEE_NAMESERVER_ETCD_CALL_TIMEOUT_MS": str(LEASE_MS // 2)}


@dataclass(frozen=True)
class Shape:
    """How a cluster is protected, and how large it is."""

    access: bool
    tls: bool
    replica_sets: int = 2
    """Of two brokers each."""

    def __str__(self) -> str:
        return f"access {_on(self.access)}, TLS {_on(self.tls)}"


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


class Cluster:
    """Replica sets of two brokers, a nameserver, etcd; with topics and users."""

    def __init__(self, up: Up, shape: Shape) -> None:
        self.up, self.shape = up, shape
        self.address: str = up.document()["nameserver"]
        self.pids: dict[str, int] = up.document()["pids"]
        self.secrets: Path | None = None
        self.environment: dict[str, str] = {}
        """Of a client with all rights."""
        if shape.access:
            self.secrets = up.data / "access"
            up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(self.secrets / "cluster-secret")
            self._create_users(self.secrets)
            self.environment["AEROBEE_CREDENTIALS_FILE"] = str(self.secrets / "watch")
        for name, path in up.document().get("tls", {}).items():
            self.environment[f"AEROBEE_TLS_{name.upper()}"] = path
        self.ca: str = up.document().get("tls", {}).get("ca", "")
        up.run("topic", "create", WATCHED_TOPIC, "--queues", "2")
        up.run("topic", "create", *TOPICS, "--queues", "2", "--type", "MIXED")
        wait_until(lambda: all(map(up.knows, (WATCHED_TOPIC, *TOPICS))), "the topics")
        self.ports = self._ports()

    def _create_users(self, folder: Path) -> None:
        up = self.up
        for name, flags in (("few", ()), ("root", ("--super",)), ("watch", ("--super",))):
            up.run("user", "create", name, "--credentials-file", str(folder / name), *flags)
        up.run("acl", "add", "few", f"Topic:{TOPICS[0]}", "Pub,Sub")
        up.run("acl", "add", "few", f"Group:{GROUPS[0]}", "Sub")

    def _ports(self) -> Ports:
        found: dict[str, list[str]] = {"health": [], "metrics": []}
        for log in self.logs():
            text = log.read_text(errors="replace")
            for kind, pattern in _SERVED.items():
                for port in pattern.findall(text):
                    found[kind].append(port if ":" in port else f"127.0.0.1:{port}")
        brokers = [each["address"] for each in self.up.document()["brokers"]]
        return Ports(self.address, tuple(brokers), tuple(found["health"]), tuple(found["metrics"]))

    def logs(self) -> list[Path]:
        return [path for path in self.up.data.rglob("*.log*") if path.is_file()]

    def orders(self, **chosen: Any) -> Orders:
        queue, handle = asyncio.run(self._received())
        return Orders(
            ports=asdict(self.ports),
            cluster=CLUSTER,
            queue=queue.SerializeToString().hex(),
            handle=handle,
            secrets=str(self.secrets or ""),
            ca=self.ca,
            **chosen,
        )

    async def _received(self) -> tuple[v2.MessageQueue, str]:
        """A queue, and the handle of a message of it, for requests to name."""
        callers, chance = Callers(self.secrets), random.Random(0)
        kind = Kind.ROOT if self.secrets else Kind.STRANGER
        files = TlsFiles(authorities=Path(self.ca)) if self.ca else None
        channel = Channel(
            self.address,
            now=time.monotonic,
            random=chance,
            observer=Unheard(),
            tls=client_context(files) if files else None,
        )

        async def call(name: str, request: Any) -> list[bytes]:
            path = f"/apache.rocketmq.v2.MessagingService/{name}"
            metadata = tuple(METADATA.items()) + callers.metadata(kind, path, chance)
            stream = channel.stream(
                path, request.SerializeToString(), timeout_s=20, metadata=metadata
            )
            answers = []
            while (answer := await stream.read()) is not None:
                answers.append(answer)
            return answers

        topic = v2.Resource(name=TOPICS[0])
        try:
            (answer,) = await call("QueryRoute", service_pb2.QueryRouteRequest(topic=topic))
            queues = service_pb2.QueryRouteResponse.FromString(answer).message_queues
            message = sent_message(TOPICS[0])
            for queue in itertools.cycle(queues):
                await call("SendMessage", service_pb2.SendMessageRequest(messages=[message]))
                request = service_pb2.ReceiveMessageRequest(
                    group=v2.Resource(name=GROUPS[0]),
                    message_queue=queue,
                    batch_size=1,
                    filter_expression=v2.FilterExpression(expression="*"),
                    invisible_duration=duration(10_000),
                )
                for one in await call("ReceiveMessage", request):
                    received = service_pb2.ReceiveMessageResponse.FromString(one)
                    if received.HasField("message"):
                        return queue, received.message.system_properties.receipt_handle
            raise AssertionError("the topic has no queues")
        finally:
            await channel.close()

    # ------------------------------------------------------------------------------- how it fares

    def dead(self) -> list[str]:
        """Processes that have ended since the start, also if others took their place."""
        return [name for name, pid in self.pids.items() if not is_alive(pid)]

    def own_bytes(self) -> dict[str, int]:
        """Memory that is each process's own: of the store's files, which it maps, any part may be
        in memory."""
        found = {}
        for name, pid in self.pids.items():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("RssAnon:"):
                        found[name] = int(line.split()[1]) << 10
        return found

    def cpu_s(self) -> dict[str, float]:
        found = {}
        for name, pid in self.pids.items():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return found

    def log_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.logs())

    def elections(self) -> int:
        """How often a replica set got a master."""
        return sum(log.read_text(errors="replace").count(" master elected ") for log in self.logs())

    def bugs(self) -> list[str]:
        """What the logs have of bugs, each with what follows it."""
        found = []
        for log in self.logs():
            text = log.read_text(errors="replace")
            for word in _BUGS:
                at = text.find(word)
                if at >= 0:
                    found.append(f"{log.name}: {text.count(word)} x {text[at - 200 : at + 2_500]}")
        return found


@contextlib.contextmanager
def cluster(folder: Path, shape: Shape) -> Iterator[Cluster]:
    flags = ["--brokers", str(shape.replica_sets), "--replicas", "2"]
    # A machine with few processors lets a server wait for seconds, which is not the attack.
    flags += ["--broker-set", f"registration_lease_ms={LEASE_MS}"]
    flags += ["--access"] * shape.access + ["--tls"] * shape.tls
    with running(folder, *flags, servers=_ALL_PORTS) as up:
        yield Cluster(up, shape)
