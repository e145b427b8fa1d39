"""A healthy cluster under load: a master, its slave, a producer and three groups that never rest.

It is audited while it works, and while its other replica becomes master.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.client_core import BrokerAdmin, ClusterConnection
from aerobee.client_core.audit import Audit
from aerobee.cluster_view.methods import CREATE_TOPIC, DESCRIBE_CLUSTER
from aerobee.consumer_client import ConsumerConfig, PushConsumer, ReceivedMessage, StartFrom
from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.engine import RunEngine
from aerobee.offset_audit.run.request import AuditRequest
from aerobee.producer_client import Message, Producer
from aerobee.store.format.dead_letter_fields import retry_topic
from aerobee.v1 import audit_pb2, common_pb2, nameserver_pb2
from tests.faults.clusters import ClusterProcess
from tests.offset_audit.damages.auditing import audit
from tests.support.waiting import until

CLUSTER = "aerobee"
A = "broker-a"
TOPICS = {"orders": 4, "payments": 2}
GROUPS = {
    "billing": ("orders", "*"),
    "mailer": ("orders", "tag-1 || tag-2"),
    "book": ("payments", "*"),
}
SENT_AT_ONCE = 25
PAUSE_S = 0.2
SLOW_S = 2.0
"""What a group that was slowed down takes for at most 50 messages."""


@dataclass
class Load:
    """A producer and three groups that never rest."""

    nameserver: str
    sent: int = 0
    handled: dict[str, int] = field(default_factory=dict)
    slowed: set[str] = field(default_factory=set)
    producing: list[asyncio.Task[None]] = field(default_factory=list)
    consuming: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        self.producing.append(asyncio.create_task(self._produce(), name="producer"))
        for group in GROUPS:
            self.consuming.append(asyncio.create_task(self._consume(group), name=f"group:{group}"))

    async def stop(self) -> None:
        await self.stop_producing()
        await _cancelled(self.consuming)

    async def stop_producing(self) -> None:
        """The groups stay, and come to the end."""
        await _cancelled(self.producing)

    async def goes_on(self) -> None:
        """Until more was sent, and every group has handled more."""
        sent, handled = self.sent, dict(self.handled)
        await until(
            lambda: self.sent > sent and all(self.handled[one] > handled[one] for one in GROUPS),
            "messages",
        )

    async def _produce(self) -> None:
        async with Producer(self.nameserver) as producer:
            while True:
                await asyncio.gather(
                    *(
                        producer.send(
                            Message(topic, b"x" * 200, tag=f"tag-{number % 4}", keys=(f"{number}",))
                        )
                        for number in range(SENT_AT_ONCE)
                        for topic in TOPICS
                    )
                )
                self.sent += SENT_AT_ONCE * len(TOPICS)
                await asyncio.sleep(PAUSE_S)

    async def _consume(self, group: str) -> None:
        topic, expression = GROUPS[group]

        async def listener(messages: Sequence[ReceivedMessage]) -> None:
            if group in self.slowed:
                await asyncio.sleep(SLOW_S)
            self.handled[group] = self.handled.get(group, 0) + len(messages)

        consumer = PushConsumer(
            group,
            listener,
            nameservers=self.nameserver,
            max_concurrency=1,
            consume_batch_max=50,
            start_from=StartFrom.FIRST,
            config=ConsumerConfig(commit_interval_ms=500),
        )
        await consumer.subscribe(topic, expression).run()


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    """They ended because of this, and not before."""
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()
    assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


@dataclass
class BusyCluster:
    """What runs, and hands to change its master with."""

    folder: Path
    nameserver: str
    connection: ClusterConnection
    load: Load
    process: ClusterProcess

    @property
    def request(self) -> AuditRequest:
        return AuditRequest(nameservers=self.nameserver, history=str(self.folder / "history"))

    async def in_sync(self) -> int:
        """Once the slave is in the in-sync set of its master: the number of the master."""

        async def master() -> list[int]:
            answer = await self._described()
            return [group.master_id for group in answer.groups if len(group.in_sync) == 2]

        (master_id,) = await until(master, "two replicas in sync")
        return int(master_id)

    async def retry_topics_are_copied(self) -> None:
        """A slave gets its master's table of topics at most once a second: one that took over
        before would not know the groups' retry topics until their members come."""

        async def are_everywhere() -> bool:
            for broker in (await self._described()).brokers:
                parts = Audit(self.connection.channels).snapshot(
                    broker.address, audit_pb2.SnapshotRequest()
                )
                topics = {name async for part in parts for name in part.topics.topics}
                if not topics.issuperset(map(retry_topic, GROUPS)):
                    return False
            return True

        await until(are_everywhere, "the groups' retry topics on both replicas")

    async def led_by_the_first(self) -> None:
        """Whoever of the two registered first was elected; the damages know replica 0 as master."""
        if await self.in_sync() != 0:
            await BrokerAdmin(self.connection).hand_over(A, successor_id=0, timeout=30.0)
            await self.in_sync()

    async def master_address(self) -> str:
        """Of the one that there is."""

        async def masters() -> list[str]:
            found = await self._described()
            return [one.address for one in found.brokers if one.role == common_pb2.MASTER]

        return str((await until(masters, "a master"))[0])

    async def _described(self) -> nameserver_pb2.ClusterDescription:
        return await self.connection.channels.call(
            self.nameserver,
            DESCRIBE_CLUSTER,
            nameserver_pb2.DescribeClusterRequest(cluster=CLUSTER),
        )

    async def create_topic(self, name: str, queues: int) -> None:
        await self.connection.channels.call(
            self.nameserver,
            CREATE_TOPIC,
            nameserver_pb2.CreateTopicRequest(cluster=CLUSTER, name=name, queues=queues),
        )


@asynccontextmanager
async def busy_cluster(folder: Path, *arguments: str) -> AsyncIterator[BusyCluster]:
    """In sync, and every group is at work."""
    async with AsyncExitStack() as stack:
        process = ClusterProcess(folder, "--replicas", "2", *arguments)
        await process.start()
        stack.push_async_callback(process.close)
        connection = await stack.enter_async_context(ClusterConnection(process.nameserver))
        load = Load(process.nameserver)
        cluster = BusyCluster(folder, process.nameserver, connection, load, process)
        for topic, queues in TOPICS.items():
            await cluster.create_topic(topic, queues)
        await cluster.led_by_the_first()
        load.start()
        stack.push_async_callback(load.stop)
        await until(lambda: len(load.handled) == len(GROUPS), "all groups at work")
        await cluster.retry_topics_are_copied()
        yield cluster


async def audits_under_load(
    engine: RunEngine, cluster: BusyCluster, runs: int, hand_overs: Mapping[int, str]
) -> list[Summary]:
    """`hand_overs`: by the number of an audit, the stage at whose beginning the master changes.
    There are two of them, so that the first master is it again at the end."""
    loop = asyncio.get_running_loop()
    masters = []

    def hand_over() -> None:
        done = BrokerAdmin(cluster.connection).hand_over(A, timeout=30.0)
        masters.append(asyncio.run_coroutine_threadsafe(done, loop).result(60).master_id)

    summaries = []
    for run in range(runs):
        meanwhile = {hand_overs[run]: hand_over} if run in hand_overs else {}
        if meanwhile:
            await cluster.in_sync()
        summaries.append(await asyncio.to_thread(audit, engine, cluster.request, meanwhile))
        await cluster.load.goes_on()
    assert masters == [1, 0], masters
    return summaries
