"""A real broker group: replicas in separate processes, a nameserver in this one, a real etcd.

A replica can be killed, suspended with SIGSTOP, and restarted over its folder; it keeps its port.
Its log is in a file beside its folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from aerobee.broker.app import serve_broker
from aerobee.broker.cluster.registration import RegistrationConfig
from aerobee.broker.config import BrokerConfig, TransactionsConfig
from aerobee.broker.replication.config import ReplicationConfig, ReplicationMode
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import (
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    GET_STATS,
    HAND_OVER,
    PULL,
    SEND_STREAM,
)
from aerobee.nameserver.app import serve_nameserver
from aerobee.nameserver.config import BrokerLeaseConfig, EtcdConfig, NameserverConfig, TopicPolicy
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock, system_random
from aerobee.runtime.log import configure_logging
from aerobee.runtime.supervise import Lifecycle, run_service
from aerobee.store.engine.config import FlushMode, StoreConfig
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.format.record import HostAddress, encode_batch, iterate_records
from aerobee.store.tier.config import TierConfig
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2
from tests.support.hanging_disk import make_syncs_hang
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until

MIB = 1024 * 1024
BORN_HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)
GROUP = "broker-a"
LEASE_MS = 2_000


@dataclass
class Replica:
    """One replica's process."""

    broker_id: int
    folder: Path
    settings: dict[str, Any]
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.folder.with_suffix(".log").read_text()

    @property
    def hang_mark(self) -> Path:
        """While it exists the disk does not respond; for replicas with `may_hang`."""
        return self.folder.with_suffix(".hangs")

    async def start(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            **self.settings,
            "broker_id": self.broker_id,
            "listen": self.address,
            "store_root": str(self.folder),
            "hang_mark": str(self.hang_mark),
        }
        with self.folder.with_suffix(".log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.replica_group", json.dumps(settings)),
                cwd=Path(__file__).parents[2],
                stdout=log,
                stderr=log,
            )
        return self

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            await self.process.wait()
            self.process = None

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        process, self.process = self.process, None
        assert process is not None
        process.terminate()
        return await process.wait()


@dataclass
class ReplicaGroup:
    """The replicas of one group, and helpers to send and inspect."""

    replicas: dict[int, Replica]
    nameserver: str
    cluster: str
    restart_nameserver: Callable[[], Awaitable[None]]
    channels: Channels = field(default_factory=Channels)

    async def record(self) -> nameserver_pb2.GroupRecord:
        """The group's record at the nameserver."""
        try:
            answer = await self.channels.call(
                self.nameserver,
                DESCRIBE_CLUSTER,
                nameserver_pb2.DescribeClusterRequest(cluster=self.cluster),
            )
        except errors.RegistryUnavailable:
            return nameserver_pb2.GroupRecord(master_id=-1)
        found = [group for group in answer.groups if group.broker_name == GROUP]
        return found[0] if found else nameserver_pb2.GroupRecord(master_id=-1)

    async def stats(self, broker_id: int) -> broker_pb2.BrokerStats:
        return await self.channels.call(
            self.replicas[broker_id].address, GET_STATS, broker_pb2.GetStatsRequest()
        )

    async def create_topic(self, name: str, queues: int = 2, **attributes: str) -> None:
        await self.channels.call(
            self.nameserver,
            CREATE_TOPIC,
            nameserver_pb2.CreateTopicRequest(
                cluster=self.cluster, name=name, queues=queues, attributes=attributes
            ),
        )

    async def in_sync(self, *broker_ids: int, timeout_s: float = PATIENCE_S) -> None:
        """Until exactly these are in sync, under a live master."""

        async def holds() -> bool:
            record = await self.record()
            return sorted(name.broker_id for name in record.in_sync) == sorted(broker_ids)

        await until(holds, timeout_s=timeout_s)

    async def master(self, *, timeout_s: float = PATIENCE_S, not_id: int = -1) -> int:
        """The id of the master that takes messages."""
        found = -1

        async def holds() -> bool:
            nonlocal found
            record = await self.record()
            if record.master_id in (-1, not_id):
                return False
            found = record.master_id
            try:
                return (await self.stats(found)).writable
            except errors.AerobeeError:
                return False

        await until(holds, timeout_s=timeout_s)
        return found

    async def send(
        self, broker_id: int, topic: str, body: bytes, *, timeout_ms: int = 2_000
    ) -> broker_pb2.SendAck:
        """One message to queue 0, through one replica. Raises AerobeeError if the stream fails."""
        records, sizes = encode_batch(
            topic=topic.encode(),
            bodies=[body],
            properties=[b""],
            born_timestamp_ms=1_700_000_000_000,
            born_host=BORN_HOST,
        )
        batch = broker_pb2.RecordBatch(
            sequence=1,
            topic=topic,
            queue_id=0,
            records=records,
            record_sizes=sizes,
            timeout_ms=timeout_ms,
        )
        stream = self.channels.open_stream(self.replicas[broker_id].address, SEND_STREAM)
        try:
            await stream.write(broker_pb2.SendFrame(batches=[batch]))
            answer = await stream.read()
        finally:
            stream.cancel()
        if answer is None:
            raise errors.Unreachable("the stream ended without an answer")
        return answer.acks[0]

    async def send_until_stored(
        self, topic: str, body: bytes, timeout_s: float = PATIENCE_S
    ) -> int:
        """To the current master; returns its id once one has acknowledged."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            for broker_id in self.replicas:
                with contextlib.suppress(errors.AerobeeError):
                    ack = await self.send(broker_id, topic, body, timeout_ms=1_000)
                    if ack.code == common_pb2.OK:
                        return broker_id
            assert time.monotonic() < deadline_s, "nobody has taken the message"
            await asyncio.sleep(0.01)

    async def pull_all(self, broker_id: int, topic: str) -> list[bytes]:
        """The bodies in queue 0 at one replica, as soon as it can serve them."""
        while True:
            try:
                return await self._pull(broker_id, topic)
            except (errors.ReplicaBehind, errors.Unreachable):
                await asyncio.sleep(0.02)

    async def _pull(self, broker_id: int, topic: str) -> list[bytes]:
        found: list[bytes] = []
        while True:
            request = broker_pb2.PullRequest(
                topic=topic,
                queue_id=0,
                offset=len(found),
                max_bytes=MIB,
                max_messages=1_000,
            )
            answer = await self.channels.call(self.replicas[broker_id].address, PULL, request)
            if answer.code != common_pb2.OK:
                return found
            found += [bytes(record.body) for record in iterate_records(answer.records)]

    async def hand_over(
        self, broker_id: int, successor_id: int | None = None, timeout_ms: int = 5_000
    ) -> broker_pb2.HandOverResponse:
        return await self.channels.call(
            self.replicas[broker_id].address,
            HAND_OVER,
            broker_pb2.HandOverRequest(successor_id=successor_id, timeout_ms=timeout_ms),
            # The broker measures the time, and reports the result.
            timeout_ms=timeout_ms + 20_000,
        )

    async def logs_equal(self, *broker_ids: int, timeout_s: float = PATIENCE_S) -> None:
        """Until their logs are equal and have equal ends."""

        async def holds() -> bool:
            try:
                ends = {(await self.stats(one)).log_appended_end for one in broker_ids}
            except errors.AerobeeError:
                return False
            return len(ends) == 1

        await until(holds, timeout_s=timeout_s)
        end = (await self.stats(broker_ids[0])).log_appended_end
        contents = {self._log_bytes(one, end) for one in broker_ids}
        assert len(contents) == 1, "replicas' logs differ"

    def _log_bytes(self, broker_id: int, end: int) -> bytes:
        if end == 0:
            return b""  # the folder may not exist yet
        folder = self.replicas[broker_id].folder / "commitlog"
        parts = []
        for path in sorted(folder.iterdir()):
            if path.name.isdecimal():
                data = path.read_bytes()
                parts.append(data[: max(0, end - int(path.name))])
        return b"".join(parts)


@asynccontextmanager
async def replica_group(
    root: Path,
    etcd_endpoint: str,
    ids: Sequence[int] = (0, 1, 2),
    *,
    unclean_election: bool = False,
    **settings: Any,
) -> AsyncIterator[ReplicaGroup]:
    """A group with running replicas; `settings` are those of `_config_of`."""
    cluster = f"test-{random.randrange(10**12)}"
    config = NameserverConfig(
        cluster=cluster,
        listen="127.0.0.1:0",
        stop_grace_ms=100,
        etcd=EtcdConfig(endpoints=(etcd_endpoint,), call_timeout_ms=1_000, reconnect_max_ms=200),
        topics=TopicPolicy(),
        broker_lease=BrokerLeaseConfig(default_ms=LEASE_MS),
        unclean_election=unclean_election,
    )
    async with asyncio.TaskGroup() as tasks:

        async def serve(listen: str) -> tuple[str, Lifecycle, asyncio.Task[None]]:
            lifecycle = Lifecycle()
            listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            service = serve_nameserver(
                replace(config, listen=listen),
                lifecycle,
                clock=SystemClock(),
                chance=system_random(),
                on_listening=listening.set_result,
            )
            task = tasks.create_task(service)
            return f"127.0.0.1:{await listening}", lifecycle, task

        nameserver, lifecycle, task = await serve(config.listen)

        async def restart() -> None:
            nonlocal lifecycle, task
            lifecycle.stop.set()
            await task
            _, lifecycle, task = await serve(nameserver)

        settings = {**settings, "cluster": cluster, "nameservers": [nameserver]}
        replicas = {one: Replica(one, root / f"replica-{one}", settings) for one in ids}
        group = ReplicaGroup(replicas, nameserver, cluster, restart)
        try:
            for replica in replicas.values():
                await replica.start()
            yield group
        finally:
            for replica in replicas.values():
                if replica.process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        replica.signal(signal.SIGCONT)
                await replica.kill()
            await group.channels.close()
            lifecycle.stop.set()


def _config_of(settings: dict[str, Any]) -> BrokerConfig:
    """From what a test passed on the command line."""
    return BrokerConfig(
        cluster=settings["cluster"],
        broker_name=GROUP,
        broker_id=settings["broker_id"],
        listen=settings["listen"],
        nameservers=tuple(settings["nameservers"]),
        store_root=Path(settings["store_root"]),
        registration_lease_ms=settings.get("lease_ms", LEASE_MS),
        stop_grace_ms=100,
        store=StoreConfig(
            disk_free_bytes_min=0,
            # Tests must not depend on how full this machine's disk is.
            retention=RetentionConfig(
                enabled=False, clean_interval_ms=settings.get("clean_interval_ms", 10_000)
            ),
            flush_mode=FlushMode(settings.get("flush", "async")),
            disk_hung_after_ms=settings.get("disk_hung_after_ms", 0),
            segment_bytes=settings.get("segment_bytes", 4 * MIB),
        ),
        replication=ReplicationConfig(
            mode=ReplicationMode(settings.get("mode", "sync_master")),
            min_insync_replicas=settings.get("min_insync_replicas", 1),
            in_sync_lag_max_ms=settings.get("in_sync_lag_max_ms", 1_000),
            heartbeat_interval_ms=settings.get("heartbeat_interval_ms", 200),
            slave_read_bytes=settings.get("slave_read_bytes", 0),
            slow_handover_interval_ms=settings.get("slow_handover_interval_ms", 0),
        ),
        transactions=TransactionsConfig(**settings.get("transactions", {})),
        tier=TierConfig(url=settings.get("tier_url", "")),
    )


def _main(arguments: Sequence[str]) -> int:
    settings = json.loads(arguments[0])
    config = _config_of(settings)
    if "duplicate_wait_ms" in settings:
        # It has no setting: half a minute is right for machines that restart.
        RegistrationConfig.__init__.__kwdefaults__.update(  # type: ignore[union-attr]
            duplicate_wait_ms=settings["duplicate_wait_ms"]
        )
    configure_logging()
    if settings.get("may_hang"):
        make_syncs_hang(Path(settings["hang_mark"]))

    async def service(lifecycle: Lifecycle) -> None:
        await serve_broker(config, lifecycle, clock=SystemClock(), chance=system_random())

    return int(run_service("broker", service))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
