"""Transactions outlive whoever keeps them: committed is visible once, rolled back never, and what
was answered is never undone, when brokers are killed and masters change while transactions end."""

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
from aerobee.runtime.grpcio_channel import build_channel
from aerobee.store_format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import write_topics
from tests.support.etcd import running_etcd
from tests.support.real_brokers import BrokerProcess
from tests.support.replica_group import ReplicaGroup, replica_group
from tests.support.transactions import ORDERS, QUEUES, end, half_message, transactional
from tests.support.v2_calls import V2, codes
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SEGMENT = 1 << 20
COMMITTED = "the transaction was committed before"
ROLLED_BACK = "the transaction was rolled back before"


class Producer:
    """Begins and ends transactions, several at once, and remembers what was answered."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._channels = Channels()
        self._count = 0
        self.begun: dict[str, v2.TransactionResolution] = {}
        """What was answered, and how each is meant to end."""
        self.visible: dict[str, bool] = {}
        """Of those whose end was answered."""

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

    async def _one(self, client: V2) -> None:
        self._count += 1
        name = f"T-{self._count}"
        answer = await client.send(half_message(name, name.encode()))
        if codes(answer.entries) != [v2.OK]:
            await asyncio.sleep(0.02)
            return
        self.begun[name] = self._chance.choice((v2.COMMIT, v2.COMMIT, v2.ROLLBACK))
        if self._chance.random() < 0.1:
            return  # left open
        for _ in range(self._chance.choice((1, 1, 2))):
            await self.end(client, name)

    async def end(self, client: V2, name: str) -> bool:
        """Whether it was answered. The answer never changes."""
        wanted = self.begun[name]
        status = await end(client, name, wanted)
        if status.code != v2.OK:
            return False
        is_visible = wanted == v2.COMMIT if status.message == "OK" else status.message == COMMITTED
        assert status.message in ("OK", COMMITTED, ROLLED_BACK)
        assert self.visible.setdefault(name, is_visible) == is_visible, name
        return True

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
            with suppress(errors.MqError):
                seen = await self.seen(address)
                return {name for name, so in self.visible.items() if so} <= seen.keys()
            return False

        await until(is_whole, "every committed message is visible")
        seen = await self.seen(address)
        assert max(seen.values(), default=0) <= 1, [n for n, count in seen.items() if count > 1]
        assert seen.keys() == {name for name, so in self.visible.items() if so}

    async def seen(self, address: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                request = broker_pb2.PullRequest(
                    topic=ORDERS,
                    queue_id=queue_id,
                    offset=offset,
                    max_bytes=SEGMENT,
                    max_messages=1_000,
                )
                answer = await self._channels.call(address, PULL, request)
                if answer.code != common_pb2.OK:
                    break
                for record in iterate_records(answer.records):
                    found[bytes(record.body).decode()] += 1
                    offset = record.queue_offset + 1
        return found

    async def close(self) -> None:
        await self._channels.close()


@pytest.mark.parametrize("seed", range(2))
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
