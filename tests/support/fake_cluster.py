"""A nameserver and brokers for client tests: real gRPC, memory instead of disks and etcd.

They check what they receive as strictly as the real ones and keep it for tests to inspect. Faults
are attributes that a test sets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import grpc

from aerobee.rpc import own_protocol
from aerobee.rpc import serving as rpc
from aerobee.rpc.core.status import RpcError, Status
from aerobee.runtime import errors
from aerobee.store.format.record import Record, iterate_records
from aerobee.v1 import (
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
    nameserver_pb2,
    nameserver_pb2_grpc,
)

Refusal = Callable[[broker_pb2.RecordBatch], broker_pb2.SendAck | None]


@dataclass
class StoredRecord:
    """One record as a broker got it, with the offset assigned to it."""

    topic: str
    queue_id: int
    queue_offset: int
    record: Record


class FakeBroker(broker_pb2_grpc.SendServiceServicer):
    """Acknowledges batches and remembers their records."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stored: list[StoredRecord] = []
        self.batches: list[broker_pb2.RecordBatch] = []
        self.frames = 0
        self.store_host_ipv6 = False
        self.refuse: Refusal = lambda batch: None
        self.hold_acks = asyncio.Event()
        self.hold_acks.set()
        self.cut_after_store = 0
        """Break the stream instead of acknowledging, this many times."""
        self.status = common_pb2.OK
        """The status of what is stored."""
        self.durability = broker_pb2.PAGE_CACHE
        self.producer_bases: dict[tuple[str, int, int], dict[int, tuple[int, int]]] = {}
        """By topic, queue and producer: each stored batch's first number, its count and offset."""
        self.duplicates = 0
        self.ends: dict[tuple[str, int], int] = {}
        self._log_end = 0
        self._server: rpc.RpcServer | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> Self:
        """On a free port at first, later on the same one."""
        self._server = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.SendService"])
        broker_pb2_grpc.add_SendServiceServicer_to_server(self, self._server.server)
        self.port = await self._server.start(f"127.0.0.1:{self.port}")
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def bodies(self, topic: str, queue_id: int | None = None) -> list[bytes]:
        return [
            stored.record.body
            for stored in self.stored
            if stored.topic == topic and queue_id in (None, stored.queue_id)
        ]

    def lose_end(self, count: int) -> None:
        """A crash leaves only `count` records of the largest batch, the last of its queue, and
        another producer's message follows them."""
        batch = max(self.batches, key=lambda batch: len(batch.record_sizes))
        queue = batch.topic, batch.queue_id
        known = self.producer_bases[*queue, batch.producer_id]
        _, base = known[batch.producer_sequence]
        known[batch.producer_sequence] = count, base
        end = self.ends[queue] = base + count
        self.stored = [
            each
            for each in self.stored
            if (each.topic, each.queue_id) != queue or each.queue_offset < end
        ]
        self.ends[queue] += 1

    async def SendStream(
        self, request_iterator: AsyncIterator[broker_pb2.SendFrame], context: Any
    ) -> None:
        while (frame := await context.read()) is not grpc.aio.EOF:
            self.frames += 1
            acks = [self._take(batch) for batch in frame.batches]
            if self.cut_after_store:
                self.cut_after_store -= 1
                raise RpcError(Status.UNAVAILABLE, "connection cut by the test")
            await self.hold_acks.wait()
            await context.write(broker_pb2.SendAckFrame(acks=acks))

    def _take(self, batch: broker_pb2.RecordBatch) -> broker_pb2.SendAck:
        self.batches.append(batch)
        refusal = self.refuse(batch)
        if refusal is not None:
            refusal.sequence = batch.sequence
            return refusal
        records = list(iterate_records(batch.records))
        assert [record.size for record in records] == list(batch.record_sizes)
        queue = batch.topic, batch.queue_id
        base = self.ends.get(queue, 0)
        # A delayed message is looked up where it waits.
        properties = records[0].properties
        waits = "DELAY" in properties or "TIMER_DELIVER_MS" in properties
        numbered_in = ("waiting", 0) if waits else queue
        known = self.producer_bases.setdefault((*numbered_in, batch.producer_id), {})
        if batch.producer_id and batch.producer_sequence in known:
            count, base = known[batch.producer_sequence]
            assert count <= len(records), "a batch comes again as it was"
            self.duplicates += 1
            ack = self._ack(batch, base, 0)
            if count < len(records):
                ack.stored_count = count
            return ack
        known[batch.producer_sequence] = len(records), base
        for index, record in enumerate(records):
            record.check()
            assert record.topic == batch.topic
            assert bool(record.sys_flag & 0x20) == self.store_host_ipv6
            self.stored.append(StoredRecord(batch.topic, batch.queue_id, base + index, record))
        self.ends[queue] = base + len(records)
        base_physical_offset = self._log_end
        self._log_end += len(batch.records)
        return self._ack(batch, base, base_physical_offset)

    def _ack(
        self, batch: broker_pb2.RecordBatch, base: int, base_physical_offset: int
    ) -> broker_pb2.SendAck:
        return broker_pb2.SendAck(
            sequence=batch.sequence,
            code=self.status,
            base_queue_offset=base,
            base_physical_offset=base_physical_offset,
            store_timestamp_ms=1_700_000_000_123,
            durability=self.durability,
        )


class BrokerPlace(Protocol):
    """What a route needs to know of a broker."""

    @property
    def address(self) -> str: ...

    @property
    def store_host_ipv6(self) -> bool: ...


@dataclass
class BrokerAt:
    """A broker running elsewhere."""

    address: str
    store_host_ipv6: bool = False


@dataclass
class FakeTopic:
    """What the nameserver knows of a topic."""

    queues_by_broker: dict[str, int]
    perm: int = 6


@dataclass
class FakeNameserver(nameserver_pb2_grpc.NameserverServiceServicer):
    """Routes over brokers that the test adds; pushes every `publish`."""

    brokers: dict[str, BrokerPlace] = field(default_factory=dict)
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    replicas: list[tuple[str, int, int, bool]] | None = None
    """Used instead of the brokers: broker name, broker id, epoch, whether it is master."""
    addresses: dict[int, str] = field(default_factory=dict)
    """Their addresses, by broker id."""
    auto_create: bool = True
    version: int = 1
    stale: bool = False
    hangs: bool = False
    queries: int = 0
    watches: int = 0
    port: int = 0
    refuse: errors.AerobeeError | None = None

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()
        self._server: rpc.RpcServer | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> Self:
        self._server = rpc.RpcServer(own_protocol.say_error, ["aerobee.v1.NameserverService"])
        nameserver_pb2_grpc.add_NameserverServiceServicer_to_server(self, self._server.server)
        self.port = await self._server.start(f"127.0.0.1:{self.port}")
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def publish(self) -> None:
        """Push the test's changes to all watchers."""
        self.version += 1
        async with self._changed:
            self._changed.notify_all()

    def route(self, name: str) -> nameserver_pb2.TopicRoute:
        topic = self.topics.get(name)
        if topic is None:
            status = common_pb2.Status(
                code=common_pb2.TOPIC_NOT_FOUND, message=f"topic {name!r} does not exist"
            )
            return nameserver_pb2.TopicRoute(status=status)
        return nameserver_pb2.TopicRoute(
            status=common_pb2.Status(code=common_pb2.OK),
            topic=common_pb2.TopicConfig(
                name=name, perm=topic.perm, queues_by_broker=topic.queues_by_broker
            ),
            brokers=[
                endpoint
                for endpoint in self.endpoints()
                if endpoint.identity.broker_name in topic.queues_by_broker
            ],
        )

    def endpoints(self) -> list[nameserver_pb2.BrokerEndpoint]:
        if self.replicas is not None:
            return [
                nameserver_pb2.BrokerEndpoint(
                    identity=common_pb2.BrokerIdentity(broker_name=name, broker_id=broker_id),
                    address=self.addresses.get(broker_id, f"127.0.0.1:{broker_id + 1}"),
                    role=common_pb2.MASTER if is_master else common_pb2.SLAVE,
                    epoch=epoch,
                    writable=True,
                )
                for name, broker_id, epoch, is_master in self.replicas
            ]
        return [
            nameserver_pb2.BrokerEndpoint(
                identity=common_pb2.BrokerIdentity(broker_name=broker_name),
                address=broker.address,
                role=common_pb2.MASTER,
                store_host_ipv6=broker.store_host_ipv6,
                writable=True,
            )
            for broker_name, broker in self.brokers.items()
        ]

    def answer(self, topics: list[str]) -> nameserver_pb2.QueryRouteResponse:
        return nameserver_pb2.QueryRouteResponse(
            version=self.version, stale=self.stale, routes=[self.route(topic) for topic in topics]
        )

    async def QueryRoute(
        self, request: nameserver_pb2.QueryRouteRequest, context: Any
    ) -> nameserver_pb2.QueryRouteResponse:
        self.queries += 1
        while self.hangs:
            await asyncio.sleep(0.01)
        if self.refuse is not None:
            raise self.refuse
        for topic in request.topics:
            if request.create_missing and self.auto_create and topic not in self.topics:
                self.topics[topic] = FakeTopic(dict.fromkeys(self.brokers, 4))
        return self.answer(list(request.topics))

    async def WatchRoutes(
        self, request: nameserver_pb2.WatchRoutesRequest, context: Any
    ) -> AsyncIterator[nameserver_pb2.QueryRouteResponse]:
        self.watches += 1
        topics = list(request.topics)
        while True:
            version = self.version
            yield self.answer(topics)
            async with self._changed:
                while self.version == version:
                    await self._changed.wait()

    async def DescribeCluster(
        self, request: nameserver_pb2.DescribeClusterRequest, context: Any
    ) -> nameserver_pb2.ClusterDescription:
        brokers = self.endpoints()
        return nameserver_pb2.ClusterDescription(
            cluster=request.cluster,
            version=self.version,
            brokers=brokers,
            heartbeat_age_ms=[0] * len(brokers),
        )

    async def CreateTopic(
        self, request: nameserver_pb2.CreateTopicRequest, context: Any
    ) -> common_pb2.TopicConfig:
        if request.name in self.topics:
            raise errors.TopicExists(f"topic {request.name!r} exists")
        self.topics[request.name] = FakeTopic(
            dict.fromkeys(self.brokers, request.queues or 4), perm=request.perm or 6
        )
        return self.route(request.name).topic

    async def UpdateTopic(
        self, request: nameserver_pb2.UpdateTopicRequest, context: Any
    ) -> common_pb2.TopicConfig:
        topic = self.topics.get(request.name)
        if topic is None:
            raise errors.TopicNotFound(f"topic {request.name!r} does not exist")
        if request.HasField("perm"):
            topic.perm = request.perm
        assert not request.HasField("queues")
        return self.route(request.name).topic

    async def DeleteTopic(
        self, request: nameserver_pb2.DeleteTopicRequest, context: Any
    ) -> nameserver_pb2.DeleteTopicResponse:
        if self.topics.pop(request.name, None) is None:
            raise errors.TopicNotFound(f"topic {request.name!r} does not exist")
        return nameserver_pb2.DeleteTopicResponse()

    async def ListTopics(
        self, request: nameserver_pb2.ListTopicsRequest, context: Any
    ) -> nameserver_pb2.ListTopicsResponse:
        return nameserver_pb2.ListTopicsResponse(
            version=self.version, topics=[self.route(name).topic for name in self.topics]
        )
