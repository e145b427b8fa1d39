"""Transactions outlive whoever keeps them: committed is visible once, rolled back never, what was
answered is never undone, and what was left open is asked about, when brokers are killed and masters
change while transactions end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import CREATE_TOPIC, PULL
from aerobee.runtime import errors
from aerobee.store.format.record import Record, iterate_records
from aerobee.store.format.transaction_records import ASIDE_TOPIC
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import write_topics
from tests.support.etcd import running_etcd
from tests.support.grpcio_client import build_channel
from tests.support.real_brokers import BrokerProcess
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.transactions import (
    ORDERS,
    QUEUES,
    Asked,
    end,
    half_message,
    transactional,
)
from tests.support.v2_calls import V2, codes
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SEGMENT = 1 << 20
COMMITTED = "the transaction was committed before"
ROLLED_BACK = "the transaction was rolled back before"
SET_ASIDE = "the transaction was set aside before: an operator decides"


class Producer:
    """Begins and ends transactions, several at once, and remembers what was answered."""

    def __init__(self, seed: int, left_open: float = 0.1, pause_s: float = 0) -> None:
        self._chance = random.Random(seed)
        self._left_open = left_open
        self._pause_s = pause_s
        self._channels = Channels()
        self._count = 0
        self.begun: dict[str, v2.TransactionResolution] = {}
        """What was answered, and how each is meant to end."""
        self.visible: dict[str, bool] = {}
        """Of those whose end was answered."""
        self.unsure: set[str] = set()
        """Those that may have ended: the answer got lost."""

    async def work(self, address: str, seconds: float, workers: int = 8) -> None:
        """Until the time is over or the broker is gone."""
        async with build_channel(address) as channel, asyncio.TaskGroup() as tasks:
            client = V2(channel)
            for _ in range(workers):
                tasks.create_task(self._work(client, seconds))

    async def _work(self, client: V2, seconds: float) -> None:
        with suppress(grpc.aio.AioRpcError, TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._one(client)
                    await asyncio.sleep(self._pause_s)

    async def _one(self, client: V2) -> None:
        self._count += 1
        name = f"T-{self._count}"
        answer = await client.send(half_message(name, name.encode()))
        if codes(answer.entries) != [v2.OK]:
            await asyncio.sleep(0.02)
            return
        self.begun[name] = self._chance.choice((v2.COMMIT, v2.COMMIT, v2.ROLLBACK))
        if self._chance.random() < self._left_open:
            return
        for _ in range(self._chance.choice((1, 1, 2))):
            await self.end(client, name)

    async def end(self, client: V2, name: str) -> bool:
        """Whether it was answered. The answer never changes."""
        wanted = self.begun[name]
        if name not in self.visible:
            self.unsure.add(name)
        status = await end(client, name, wanted)
        if status.code != v2.OK:
            return False
        is_visible = wanted == v2.COMMIT if status.message == "OK" else status.message == COMMITTED
        assert status.message in ("OK", COMMITTED, ROLLED_BACK, SET_ASIDE)
        assert self.visible.setdefault(name, is_visible) == is_visible, name
        self.unsure.discard(name)
        return True

    @property
    def open(self) -> set[str]:
        """What nobody has ended yet."""
        return self.begun.keys() - self.visible.keys() - self.unsure

    async def end_all(self, address: str) -> None:
        """All that was begun ends, if it has not."""
        async with build_channel(address) as channel:
            client = V2(channel)

            async def ended(name: str) -> None:
                async def is_answered() -> bool:
                    return await self.end(client, name)

                await until(is_answered, f"{name} ends")

            for name in self.begun:
                if name not in self.visible:
                    await ended(name)

    async def check(self, address: str) -> None:
        """Exactly what was committed is visible, each once."""

        async def is_whole() -> bool:
            with suppress(errors.AerobeeError):
                seen = await self.seen(address)
                return {name for name, so in self.visible.items() if so} <= seen.keys()
            return False

        await until(is_whole, "every committed message is visible")
        seen = await self.seen(address)
        assert max(seen.values(), default=0) <= 1, [n for n, count in seen.items() if count > 1]
        assert seen.keys() == {name for name, so in self.visible.items() if so}

    async def seen(self, address: str) -> Counter[str]:
        records = await self.records(address, ORDERS, QUEUES)
        return Counter(bytes(record.body).decode() for record in records)

    async def records(
        self, address: str, topic: str = ASIDE_TOPIC, queues: int = 1
    ) -> list[Record]:
        found: list[Record] = []
        for queue_id in range(queues):
            offset = 0
            while True:
                request = broker_pb2.PullRequest(
                    topic=topic,
                    queue_id=queue_id,
                    offset=offset,
                    max_bytes=SEGMENT,
                    max_messages=1_000,
                )
                answer = await self._channels.call(address, PULL, request)
                if answer.code != common_pb2.OK:
                    break
                for record in iterate_records(answer.records):
                    found.append(record)
                    offset = record.queue_offset + 1
        return found

    async def close(self) -> None:
        await self._channels.close()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
async def test_kill_minus_9_undoes_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    producer, chance = Producer(seed), random.Random(seed)
    options = {"segment_bytes": SEGMENT, "checkpoint_interval_ms": 100}
    write_topics(tmp_path / "store", {ORDERS: transactional()})
    broker = BrokerProcess("broker-a", tmp_path / "store", {}, options)
    try:
        for _ in range(5):
            await broker.start()
            working = asyncio.create_task(producer.work(broker.address, 10))
            await asyncio.sleep(0.3 + chance.random())
            await broker.stop()
            await working
        await broker.start()
        await producer.end_all(broker.address)
        assert len(producer.visible) > 100
        await producer.check(broker.address)
    finally:
        await producer.close()
        await broker.stop()


class Answers(Asked):
    """Of a producer that ends most of what it is asked about."""

    def __init__(self, client: V2, producer: Producer) -> None:
        super().__init__(client, ORDERS)
        self._producer = producer

    async def answer(self, transaction_id: str) -> None:
        # It does not know of messages whose answer it never got.
        if transaction_id in self._producer.begun and len(self.asked) % 4:
            await self._producer.end(self.client, transaction_id)


@pytest.mark.thorough
async def test_kill_minus_9_loses_no_check(tmp_path: Path) -> None:
    producer, chance = Producer(3, left_open=0.7, pause_s=0.03), random.Random(3)
    options = {"segment_bytes": SEGMENT, "checkpoint_interval_ms": 100}
    write_topics(tmp_path / "store", {ORDERS: transactional()})
    checks = {"timeout_ms": 1, "check_interval_ms": 50, "checks_max": 1_000}
    broker = BrokerProcess("broker-a", tmp_path / "store", {}, options, checks)
    try:
        for run in range(5):
            await broker.start()
            async with build_channel(broker.address) as channel:
                answers = await Answers(V2(channel), producer).open()
                if run < 4:
                    working = asyncio.create_task(producer.work(broker.address, 10))
                    await asyncio.sleep(0.3 + chance.random())
                    await broker.stop()
                    await working
                else:
                    # Nobody else ends what is open.
                    await until(lambda: not producer.open)
                    await producer.end_all(broker.address)
                await answers.close()
        assert len(producer.visible) > 100
        await producer.check(broker.address)
    finally:
        await producer.close()
        await broker.stop()


@pytest.mark.thorough
async def test_kill_minus_9_sets_nothing_aside_that_is_delivered(tmp_path: Path) -> None:
    producer, chance = Producer(4, left_open=0.8, pause_s=0.1), random.Random(4)
    options = {"segment_bytes": SEGMENT, "checkpoint_interval_ms": 100}
    write_topics(tmp_path / "store", {ORDERS: transactional()})
    checks = {"timeout_ms": 1, "check_interval_ms": 20, "checks_max": 2}
    broker = BrokerProcess("broker-a", tmp_path / "store", {}, options, checks)
    try:
        for _ in range(5):
            await broker.start()
            async with build_channel(broker.address) as channel:
                # A producer that never knows.
                silent = await Asked(V2(channel), ORDERS).open()
                working = asyncio.create_task(producer.work(broker.address, 10))
                await asyncio.sleep(1 + chance.random())
                await broker.stop()
                await working
                await silent.close()
        await broker.start()
        await producer.end_all(broker.address)
        assert len(producer.visible) > 100
        await producer.check(broker.address)
        aside = {record.unique_key for record in await producer.records(broker.address)}
        assert len(aside & producer.begun.keys()) > 10
        # What is visible was not set aside, but for what a death cut off.
        visible = {name for name, so in producer.visible.items() if so}
        assert len(aside & visible) <= 5
    finally:
        await producer.close()
        await broker.stop()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


async def create_topic(group: ReplicaGroup) -> None:
    await group.channels.call(
        group.nameserver,
        CREATE_TOPIC,
        nameserver_pb2.CreateTopicRequest(
            cluster=group.cluster,
            name=ORDERS,
            queues=QUEUES,
            attributes={"message.type": "TRANSACTION"},
        ),
    )


@pytest.mark.thorough
async def test_a_new_master_goes_on_where_the_last_one_was(tmp_path: Path, etcd: str) -> None:
    producer = Producer(7)
    async with replica_group(tmp_path, etcd, (0, 1), segment_bytes=SEGMENT) as group:
        await group.in_sync(0, 1)
        await create_topic(group)
        for _ in range(3):
            master = await group.master()
            address = group.replicas[master].address
            working = asyncio.create_task(producer.work(address, 10))
            await asyncio.sleep(1)
            await group.replicas[master].kill()
            await working
            await group.master(not_id=master)
            await group.replicas[master].start()
            await group.in_sync(0, 1)
        master = await group.master()
        address = group.replicas[master].address
        working = asyncio.create_task(producer.work(address, 2))
        await asyncio.sleep(0.5)
        await group.hand_over(master)
        await working
        heir = group.replicas[await group.master(not_id=master)].address
        await producer.end_all(heir)
        assert len(producer.visible) > 100
        await producer.check(heir)
        await group.logs_equal(0, 1)
    await producer.close()


@pytest.mark.thorough
async def test_a_new_master_asks_on_also_through_the_node_that_a_producer_knows(
    tmp_path: Path, etcd: str
) -> None:
    producer = Producer(8, left_open=0.7, pause_s=0.03)
    checks = {"timeout_ms": 1, "check_interval_ms": 100, "checks_max": 1_000}
    async with (
        replica_group(tmp_path, etcd, (0, 1), segment_bytes=SEGMENT, transactions=checks) as group,
        build_channel(group.nameserver) as channel,
    ):
        await group.in_sync(0, 1)
        await create_topic(group)
        answers = await Answers(V2(channel), producer).open()
        for _ in range(2):
            master = await group.master()
            working = asyncio.create_task(producer.work(group.replicas[master].address, 10))
            await asyncio.sleep(1)
            await group.replicas[master].kill()
            await working
            await group.master(not_id=master)
            await group.replicas[master].start()
            await group.in_sync(0, 1)
        master = await group.master()
        working = asyncio.create_task(producer.work(group.replicas[master].address, 1))
        await asyncio.sleep(0.5)
        await group.hand_over(master)
        await working
        heir = group.replicas[await group.master(not_id=master)].address
        await until(lambda: not producer.open)
        await producer.end_all(heir)
        assert len(producer.visible) > 50
        await producer.check(heir)
        await answers.close()
        await group.logs_equal(0, 1)
    await producer.close()
