"""A healthy cluster under load, audited again and again while it works: nothing above INFO.

During two of the audits another replica becomes master: once between the registry and the brokers,
once between the brokers and their journals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aerobee.client_core import Admin, ClusterConnection
from aerobee.cluster_view.methods import CREATE_TOPIC, DESCRIBE_CLUSTER
from aerobee.consumer_client import ConsumerOptions, PushConsumer, ReceivedMessage, StartFrom
from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.request import AuditRequest
from aerobee.producer_client import Message, Producer
from aerobee.v1 import nameserver_pb2
from tests.faults.clusters import ClusterProcess
from tests.offset_audit.damages.auditing import audit
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STAGES = ("brokers", "offset journals")
"""At whose beginnings the master changes, in two of the audits."""
TOPICS = {"orders": 4, "payments": 2}
GROUPS = {
    "billing": ("orders", "*"),
    "mailer": ("orders", "tag-1 || tag-2"),
    "book": ("payments", "*"),
}
SENT_AT_ONCE = 25
PAUSE_S = 0.2


@dataclass
class Load:
    """A producer and three groups that never rest."""

    nameserver: str
    sent: int = 0
    handled: dict[str, int] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        self.tasks.append(asyncio.create_task(self._produce(), name="producer"))
        for group in GROUPS:
            self.tasks.append(asyncio.create_task(self._consume(group), name=f"group:{group}"))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        ended = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended

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

        def listener(messages: Sequence[ReceivedMessage]) -> None:
            self.handled[group] = self.handled.get(group, 0) + len(messages)

        consumer = PushConsumer(
            self.nameserver,
            group,
            listener,
            consume_batch_max=50,
            start_from=StartFrom.FIRST,
            options=ConsumerOptions(commit_interval_ms=500),
        )
        await consumer.subscribe(topic, expression).run()


async def in_sync(connection: ClusterConnection, nameserver: str) -> None:
    """Until the slave is in the in-sync set of its master."""

    async def holds() -> bool:
        answer = await connection.channels.call(
            nameserver,
            DESCRIBE_CLUSTER,
            nameserver_pb2.DescribeClusterRequest(cluster="aerobee"),
        )
        return any(len(group.in_sync) == 2 for group in answer.groups)

    await until(holds, "two replicas in sync")


async def audits_under_load(
    spark: SparkSession, folder: Path, runs: int, hand_overs: Mapping[int, str]
) -> list[Summary]:
    """`hand_overs`: by the number of an audit, the stage at whose beginning the master changes."""
    async with AsyncExitStack() as stack:
        process = ClusterProcess(folder, "--replicas", "2")
        await process.start()
        stack.push_async_callback(process.close)
        connection = await stack.enter_async_context(ClusterConnection(process.nameserver))
        for topic, queues in TOPICS.items():
            await connection.channels.call(
                process.nameserver,
                CREATE_TOPIC,
                nameserver_pb2.CreateTopicRequest(cluster="aerobee", name=topic, queues=queues),
            )
        await in_sync(connection, process.nameserver)
        load = Load(process.nameserver)
        load.start()
        stack.push_async_callback(load.stop)
        await until(lambda: len(load.handled) == len(GROUPS), "all groups at work")
        request = AuditRequest(nameservers=process.nameserver, history=str(folder / "history"))
        loop = asyncio.get_running_loop()
        masters = []

        def hand_over() -> None:
            done = Admin(connection).hand_over("broker-a", timeout_ms=30_000)
            masters.append(asyncio.run_coroutine_threadsafe(done, loop).result(60).master_id)

        summaries = []
        for run in range(runs):
            meanwhile = {hand_overs[run]: hand_over} if run in hand_overs else {}
            if meanwhile:
                await in_sync(connection, process.nameserver)
            summaries.append(await asyncio.to_thread(audit, spark, request, meanwhile))
            await load.goes_on()
        assert sorted(masters) == [0, 1]
        return summaries


def assert_nothing_found(summaries: Sequence[Summary]) -> None:
    for summary in summaries:
        assert [one for one in summary.findings if one["severity"] != "INFO"] == []
        assert summary.exit_code == 0
        assert (summary.brokers_total, summary.brokers_answered) == (2, 2)
        assert {one["role"] for one in summary.brokers} == {"MASTER", "SLAVE"}
        assert summary.states["OK"] == sum(TOPICS[topic] for topic, _ in GROUPS.values())
    assert len({summary.run_id for summary in summaries}) == len(summaries)


def test_audits_of_a_busy_cluster_find_nothing_above_info(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A hand-over in each; the second has a run before it to compare with."""
    hand_overs = dict(enumerate(STAGES))
    assert_nothing_found(asyncio.run(audits_under_load(spark, tmp_path, 2, hand_overs)))


@pytest.mark.long
def test_ten_audits_of_a_busy_cluster_find_nothing_above_info(
    spark: SparkSession, tmp_path: Path
) -> None:
    hand_overs = {3: STAGES[0], 6: STAGES[1]}
    assert_nothing_found(asyncio.run(audits_under_load(spark, tmp_path, 10, hand_overs)))
