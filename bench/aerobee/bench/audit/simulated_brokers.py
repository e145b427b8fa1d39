"""Many brokers in one process, as an audit of offsets sees them, and their nameserver.

Each answers `AuditService.Snapshot` at its own address with generated queues and commits. All have
the same rows, made and encoded once: one process must feed Spark as fast as a hundred machines
would, so that the audit is what is measured.

    python -m aerobee.bench.audit.simulated_brokers --brokers 100

prints the nameserver's address and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import uvloop

from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.runtime.clock import SystemClock
from aerobee.v1 import (
    audit_pb2,
    broker_pb2,
    common_pb2,
    nameserver_pb2,
    nameserver_pb2_grpc,
)

CLUSTER = "aerobee"
ROWS_PER_PART = 2_048
END_OFFSET = 1_000_000
LAGGING_EVERY = 1_000
"""One commit in this many lags by more than an audit accepts."""
LAG = 50_000
UNREAD_AGE_MS = 3_600_000

Context = grpc.aio.ServicerContext[Any, Any]
Part = tuple[int, bytes]
"""The number of the table, and the encoded message."""


@dataclass(frozen=True, slots=True)
class Size:
    """What each simulated broker has."""

    topics: int = 2_000
    queues: int = 8
    groups: int = 20

    @property
    def commits(self) -> int:
        return self.topics * self.queues * self.groups


def parts_of(size: Size, now_ms: int) -> list[Part]:
    """The rows of each broker, encoded."""
    parts: list[Part] = [(audit_pb2.SNAPSHOT_TOPICS, _topics(size))]
    parts += [(audit_pb2.SNAPSHOT_QUEUES, part) for part in _queues(size, now_ms)]
    parts += [(audit_pb2.SNAPSHOT_COMMITS, part) for part in _commits(size, now_ms)]
    return parts


def _topic_names(size: Size) -> list[str]:
    return [f"topic-{number:05d}" for number in range(size.topics)]


def _topics(size: Size) -> bytes:
    rows = audit_pb2.TopicRows(
        topics=_topic_names(size),
        read_queue_counts=[size.queues] * size.topics,
        write_queue_counts=[size.queues] * size.topics,
        perms=[6] * size.topics,
        revisions=[1] * size.topics,
    )
    return audit_pb2.SnapshotPart(topics=rows).SerializeToString()


def _pieces(rows: int) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """The numbers of the rows of each part."""
    for start in range(0, rows, ROWS_PER_PART):
        yield np.arange(start, min(start + ROWS_PER_PART, rows))


def _queues(size: Size, now_ms: int) -> Iterator[bytes]:
    names = _topic_names(size)
    for rows in _pieces(size.topics * size.queues):
        topics, queue_ids = np.divmod(rows, size.queues)
        first = int(topics[0])
        count = len(rows)
        part = audit_pb2.QueueRows(
            topics=names[first : int(topics[-1]) + 1],
            topic_codes=(topics - first).tolist(),
            queue_ids=queue_ids.tolist(),
            min_offsets=[0] * count,
            max_offsets=[END_OFFSET] * count,
            last_store_ms=[now_ms - 1_000] * count,
        )
        yield audit_pb2.SnapshotPart(queues=part).SerializeToString()


def _commits(size: Size, now_ms: int) -> Iterator[bytes]:
    names = _topic_names(size)
    for rows in _pieces(size.commits):
        groups, queues = np.divmod(rows, size.topics * size.queues)
        topics, queue_ids = np.divmod(queues, size.queues)
        known_topics, topic_codes = np.unique(topics, return_inverse=True)
        known_groups, group_codes = np.unique(groups, return_inverse=True)
        lags = np.where(rows % LAGGING_EVERY == 0, LAG, 0)
        part = audit_pb2.CommitRows(
            groups=[f"group-{number:03d}" for number in known_groups.tolist()],
            topics=[names[number] for number in known_topics.tolist()],
            clients=[f"10.0.0.{number}@4711" for number in known_groups.tolist()],
            group_codes=group_codes.tolist(),
            topic_codes=topic_codes.tolist(),
            queue_ids=queue_ids.tolist(),
            offsets=(END_OFFSET - lags).tolist(),
            lease_epochs=(rows + (1 << 32)).tolist(),
            committed_at_ms=[now_ms - 1_000] * len(rows),
            client_codes=group_codes.tolist(),
            resets=[False] * len(rows),
            first_unread_ms=np.where(lags > 0, now_ms - UNREAD_AGE_MS, -1).tolist(),
            matching_unread=[-1] * len(rows),
        )
        yield audit_pb2.SnapshotPart(commits=part).SerializeToString()


class SimulatedBroker:
    """One broker's address and identity, with the rows that all of them share."""

    def __init__(self, name: str, parts: Sequence[Part]) -> None:
        self.name = name
        self._parts = parts
        self._clock = SystemClock()
        self._rpc = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.AuditService"])
        self.address = ""

    async def start(self) -> None:
        """Listen on a free port."""
        handler = grpc.unary_stream_rpc_method_handler(
            self._snapshot,
            request_deserializer=audit_pb2.SnapshotRequest.FromString,
            response_serializer=_as_is,
        )
        self._rpc.server.add_registered_method_handlers(
            "aerobee.v1.AuditService", {"Snapshot": handler}
        )
        self.address = f"127.0.0.1:{await self._rpc.start('127.0.0.1:0')}"

    async def stop(self) -> None:
        await self._rpc.stop(0)

    async def _snapshot(
        self, request: audit_pb2.SnapshotRequest, context: Context
    ) -> AsyncIterator[bytes]:
        yield audit_pb2.SnapshotPart(broker=self._broker()).SerializeToString()
        wanted = set(request.tables)
        for table, part in self._parts:
            if not wanted or table in wanted:
                yield part
        yield audit_pb2.SnapshotPart(end=audit_pb2.SnapshotEnd()).SerializeToString()

    def _broker(self) -> audit_pb2.SnapshotBroker:
        now_ms = self._clock.now_ms()
        return audit_pb2.SnapshotBroker(
            stats=broker_pb2.BrokerStats(
                identity=self.identity,
                role=common_pb2.MASTER,
                epoch=1,
                version="simulated",
                flush_mode="async",
                replication_mode="async_master",
            ),
            instance=self.identity.instance,
            incarnation="1",
            commits_read_at_ms=now_ms,
            ends_read_at_ms=now_ms,
            in_sync=[0],
            master_id=0,
        )

    @property
    def identity(self) -> common_pb2.BrokerIdentity:
        return common_pb2.BrokerIdentity(
            cluster=CLUSTER, broker_name=self.name, broker_id=0, instance=f"{self.name}-1"
        )


class SimulatedNameserver(nameserver_pb2_grpc.NameserverServiceServicer):
    """Knows the brokers, their groups and their topics."""

    def __init__(self, brokers: Sequence[SimulatedBroker], size: Size) -> None:
        self._brokers = brokers
        self._size = size

    async def DescribeCluster(
        self, request: nameserver_pb2.DescribeClusterRequest, context: Context
    ) -> nameserver_pb2.ClusterDescription:
        return nameserver_pb2.ClusterDescription(
            cluster=CLUSTER,
            version=1,
            brokers=[
                nameserver_pb2.BrokerEndpoint(
                    identity=broker.identity,
                    address=broker.address,
                    role=common_pb2.MASTER,
                    epoch=1,
                    writable=True,
                )
                for broker in self._brokers
            ],
            heartbeat_age_ms=[100] * len(self._brokers),
            groups=[
                nameserver_pb2.GroupRecord(
                    broker_name=broker.name,
                    epoch=1,
                    master_id=0,
                    master_instance=broker.identity.instance,
                    in_sync=[nameserver_pb2.ReplicaName(broker_id=0, incarnation="1")],
                    replicas=[0],
                    revision=1,
                )
                for broker in self._brokers
            ],
        )

    async def ListTopics(
        self, request: nameserver_pb2.ListTopicsRequest, context: Context
    ) -> nameserver_pb2.ListTopicsResponse:
        queues = {broker.name: self._size.queues for broker in self._brokers}
        return nameserver_pb2.ListTopicsResponse(
            version=1,
            topics=[
                common_pb2.TopicConfig(name=name, perm=6, queues_by_broker=queues)
                for name in _topic_names(self._size)
            ],
        )


def _as_is(message: bytes) -> bytes:
    return message


async def serve(brokers: int, size: Size) -> None:
    """Print the nameserver's address, serve until standard input ends."""
    parts = parts_of(size, SystemClock().now_ms())
    simulated = [SimulatedBroker(f"broker-{number:03d}", parts) for number in range(brokers)]
    for broker in simulated:
        await broker.start()
    nameserver = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.NameserverService"])
    nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(
        SimulatedNameserver(simulated, size), nameserver.server
    )
    print(f"127.0.0.1:{await nameserver.start('127.0.0.1:0')}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for broker in simulated:
        await broker.stop()
    await nameserver.stop(0)


def _main() -> None:
    usual = Size()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--topics", type=int, default=usual.topics)
    parser.add_argument("--queues", type=int, default=usual.queues)
    parser.add_argument("--groups", type=int, default=usual.groups)
    given = parser.parse_args()
    uvloop.run(serve(given.brokers, Size(given.topics, given.queues, given.groups)))


if __name__ == "__main__":
    _main()
