"""A busy cluster that three more brokers join, and what clients and fate do to it.

`broker-a` does the work; `broker-b` will be lost; `broker-old` has small segments, so that
retention can be asked for; `broker-fast` has a clock that is wrong from its first moment.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.client_core import ClusterConnection
from aerobee.cluster_view.methods import (
    CLEAN_STORE,
    COMMIT_OFFSETS,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    MEMBERSHIP,
    QUERY_BOUNDS,
    RESET_OFFSETS,
)
from aerobee.consumer_client import ConsumerConfig, PushConsumer, ReceivedMessage, StartFrom
from aerobee.producer_client import Message, MessageQueue, Producer
from aerobee.runtime import errors
from aerobee.store.engine.config import StoreConfig
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2
from tests.faults.serving import BrokerProcess
from tests.offset_audit.damages.busy_cluster import CLUSTER, A, BusyCluster
from tests.offset_audit.damages.joined_broker import ShiftedClock, joined_broker, registered_as
from tests.support.gapped_log import write_gapped_log
from tests.support.waiting import until

B, OLD, FAST = "broker-b", "broker-old", "broker-fast"
GAPPED = "broker-gapped"
GROUPS_OF_BROKERS = (A, B, OLD, FAST)
HOUR_MS = 3_600_000
BEAT_S = 2.0
QUICK = ConsumerConfig(session_timeout_ms=10_000, commit_interval_ms=100)


@dataclass
class LiveCluster:
    """A connection, and hands to do things with."""

    busy: BusyCluster
    lost: BrokerProcess
    stack: AsyncExitStack
    addresses: dict[str, str] = field(default_factory=dict)
    """Of masters, once they were seen registered."""
    consumers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.busy.folder

    @property
    def nameserver(self) -> str:
        return self.busy.nameserver

    @property
    def connection(self) -> ClusterConnection:
        return self.busy.connection

    async def create_topic(self, name: str, each: int = 1) -> None:
        """`each` queues on every broker group."""
        await self.busy.create_topic(name, each * len(GROUPS_OF_BROKERS))

    async def topics_are_there(self, *names: str) -> None:
        """Until every broker has its queues of them."""

        async def holds() -> bool:
            for name in GROUPS_OF_BROKERS:
                answer = await self.connection.channels.call(
                    self.addresses[name],
                    QUERY_BOUNDS,
                    broker_pb2.QueryBoundsRequest(
                        queues=[broker_pb2.TopicQueue(topic=one, queue_id=0) for one in names]
                    ),
                )
                if any(bounds.status.code != common_pb2.OK for bounds in answer.bounds):
                    return False
            return True

        await until(holds, f"topics {names}")

    async def delete_topic(self, name: str) -> None:
        await self.connection.channels.call(
            self.nameserver,
            DELETE_TOPIC,
            nameserver_pb2.DeleteTopicRequest(cluster=CLUSTER, name=name),
        )

    async def send(
        self, topic: str, count: int, *, broker: str = A, queue_id: int = 0, body: bytes = b"body"
    ) -> None:
        queue = MessageQueue(topic, broker, queue_id)
        async with Producer(connection=self.connection) as producer:
            at_once = max(1, 4_000 // len(body))
            for begin in range(0, count, at_once):
                messages = [Message(topic, body)] * min(at_once, count - begin)
                await producer.send_batch(messages, queue=queue)

    async def commit(
        self, group: str, topic: str, offset: int, *, broker: str = A, queue_id: int = 0
    ) -> None:
        """As a tool without a lease does it, which nobody forbids while no member holds one."""
        answer = await self.connection.channels.call(
            self.addresses[broker],
            COMMIT_OFFSETS,
            broker_pb2.CommitOffsetsRequest(
                group=group,
                client_id="a-tool",
                offsets=[broker_pb2.QueueOffset(topic=topic, queue_id=queue_id, offset=offset)],
            ),
        )
        assert [one.code for one in answer.results] == [common_pb2.OK], answer

    async def reset(self, group: str, topic: str, offset: int) -> None:
        await self.connection.channels.call(
            self.addresses[A],
            RESET_OFFSETS,
            broker_pb2.ResetOffsetsRequest(
                group=group,
                offsets=[broker_pb2.QueueOffset(topic=topic, queue_id=0, offset=offset)],
            ),
        )

    def consume(self, group: str, topic: str, pause_s: float | None = 0.0) -> None:
        """A member that takes `pause_s` for a message; None: it never comes back with one."""

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            if pause_s is None:
                await asyncio.Event().wait()
            elif pause_s:
                await asyncio.sleep(pause_s)

        consumer = PushConsumer(
            group,
            listener,
            nameservers=self.nameserver,
            max_concurrency=1,
            consume_batch_max=1 if pause_s else 100,
            start_from=StartFrom.FIRST,
            client_id=f"{group}-1",
            config=QUICK,
        ).subscribe(topic)
        self.consumers.append(asyncio.create_task(consumer.run(), name=f"consumer:{group}"))

    async def committed(self, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
        """Until the group's offset on broker-a is at least this."""

        async def holds() -> bool:
            try:
                found = await self.connection.channels.call(
                    self.addresses[A], DESCRIBE_GROUP, broker_pb2.DescribeGroupRequest(group=group)
                )
            except errors.GroupNotFound:
                return False
            return any(
                one.topic == topic and one.queue_id == queue_id and one.committed_offset >= offset
                for one in found.queues
            )

        await until(holds, f"{group} has come to {offset} of {topic}")

    async def join_without_leases(self, group: str, topic: str) -> None:
        """A member that subscribes, beats, and never asks for a queue."""
        stream = self.connection.channels.open_stream(self.addresses[A], MEMBERSHIP)
        await stream.write(
            broker_pb2.MemberEvent(
                join=broker_pb2.Join(
                    group=group,
                    client_id=f"{group}-1",
                    instance="an-instance",
                    subscriptions=[broker_pb2.Subscription(topic=topic)],
                    session_timeout_ms=60_000,
                )
            )
        )
        await stream.read()
        self.stack.callback(stream.cancel)

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT_S)
                await stream.write(broker_pb2.MemberEvent(heartbeat=broker_pb2.Heartbeat()))

        self.consumers.append(asyncio.create_task(beat(), name=f"beats:{group}"))

    async def clean(self, broker: str) -> int:
        """As the operator who insists; gives how many segments went."""
        answer = await self.connection.channels.call(
            self.addresses[broker], CLEAN_STORE, broker_pb2.CleanStoreRequest(unread=True)
        )
        return answer.removed_segments

    async def first_offset(self, topic: str, broker: str) -> int:
        answer = await self.connection.channels.call(
            self.addresses[broker],
            QUERY_BOUNDS,
            broker_pb2.QueryBoundsRequest(queues=[broker_pb2.TopicQueue(topic=topic, queue_id=0)]),
        )
        return answer.bounds[0].min_offset

    async def add_second_master(self) -> None:
        """A broker that was started by hand as master, and said to be a replica of broker-a."""
        address = await self.stack.enter_async_context(
            joined_broker(A, self.folder / "rogue", (), broker_id=2)
        )
        await self.stack.enter_async_context(registered_as(self.nameserver, A, 2, address))

    async def add_gapped_broker(self) -> None:
        """A broker that makes its queues from a log in which messages are missing."""
        folder, segment_bytes = self.folder / GAPPED, 1 << 20
        config = StoreConfig(segment_bytes=segment_bytes, disk_free_bytes_min=0)
        write_gapped_log(folder, config, topic="gapped", messages=10, gap_at=6, missing=3)
        await self.stack.enter_async_context(
            joined_broker(GAPPED, folder, (self.nameserver,), segment_bytes=segment_bytes)
        )
        await self.registered(GAPPED)

    def freeze_the_lost(self) -> None:
        """Its process is there and does nothing any more, as on a machine that hangs."""
        self.lost.send_signal(signal.SIGSTOP)

    async def registered(self, *names: str) -> None:
        """Until the nameserver knows a live master of each."""

        async def holds() -> bool:
            answer = await self.connection.channels.call(
                self.nameserver,
                DESCRIBE_CLUSTER,
                nameserver_pb2.DescribeClusterRequest(cluster=CLUSTER),
            )
            self.addresses = {
                one.identity.broker_name: one.address
                for one in answer.brokers
                if one.role == common_pb2.MASTER
            }
            return self.addresses.keys() >= set(names)

        await until(holds, f"masters {names}")


@asynccontextmanager
async def joined_by_others(busy: BusyCluster) -> AsyncIterator[LiveCluster]:
    """All brokers are registered; nothing was sent to the new ones yet."""
    nameservers = (busy.nameserver,)
    settings = {"broker-name": B, "nameservers": busy.nameserver}
    lost = BrokerProcess(busy.folder / B, busy.folder / f"{B}.log", settings)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(lost.close)
        await lost.start()
        await stack.enter_async_context(
            joined_broker(OLD, busy.folder / OLD, nameservers, segment_bytes=8192)
        )
        await stack.enter_async_context(
            joined_broker(FAST, busy.folder / FAST, nameservers, clock=ShiftedClock(HOUR_MS))
        )
        cluster = LiveCluster(busy, lost, stack)
        await cluster.registered(*GROUPS_OF_BROKERS)
        try:
            yield cluster
        finally:
            for task in cluster.consumers:
                task.cancel()
            await asyncio.gather(*cluster.consumers, return_exceptions=True)
