"""Transactions of our producer while brokers are killed and masters change: no end fails, what was
committed is seen once, what was rolled back never, and checks end what is left open."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import LIST_TRANSACTIONS, PULL
from aerobee.producer_client import (
    CheckAnswer,
    Message,
    Producer,
    ProducerConfig,
    TransactionCheck,
)
from aerobee.runtime import errors
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.etcd import running_etcd
from tests.support.real_brokers import BrokerProcess, RouteServer
from tests.support.replica_group import replica_group
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUEUES = 3
SEGMENT = 1 << 20
PATIENT = ProducerConfig(send_timeout_ms=60_000)


class RolledBack(Exception):
    """Leaves a block."""


class Application:
    """Decides how each transaction ends before it begins, and stands by that."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._count = 0
        self.wanted: dict[bytes, bool] = {}
        """By body: whether it is committed."""
        self.left: set[bytes] = set()
        """Those that it did not end."""
        self.checks = 0

    async def work(self, producer: Producer, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._count += 1
            body = b"%d" % self._count
            is_kept = self.wanted[body] = self._chance.random() < 0.7
            if self._chance.random() < 0.1:
                self.left.add(body)
                await producer.begin(Message("orders", body))
                continue
            with suppress(RolledBack):
                async with producer.transaction(Message("orders", body)):
                    await asyncio.sleep(self._chance.random() * 0.01)
                    if not is_kept:
                        raise RolledBack

    async def check(self, check: TransactionCheck) -> CheckAnswer:
        self.checks += 1
        if self._chance.random() < 0.2:
            return CheckAnswer.UNKNOWN
        return CheckAnswer.COMMIT if self.wanted[check.message.body] else CheckAnswer.ROLLBACK

    def committed(self, *, with_left: bool) -> set[bytes]:
        return {
            body
            for body, is_kept in self.wanted.items()
            if is_kept and (with_left or body not in self.left)
        }


async def seen(channels: Channels, address: str) -> Counter[bytes]:
    """What consumers see, and how often."""
    found: Counter[bytes] = Counter()
    for queue_id in range(QUEUES):
        offset = 0
        while True:
            request = broker_pb2.PullRequest(
                topic="orders",
                queue_id=queue_id,
                offset=offset,
                max_bytes=SEGMENT,
                max_messages=1_000,
            )
            answer = await channels.call(address, PULL, request)
            if answer.code != common_pb2.OK:
                break
            for record in iterate_records(answer.records):
                found[record.body] += 1
                offset = record.queue_offset + 1
    return found


async def open_count(channels: Channels, address: str) -> int:
    request = broker_pb2.ListTransactionsRequest(transactions_max=1_000)
    while True:
        with suppress(errors.ReplicaBehind):
            answer = await channels.call(address, LIST_TRANSACTIONS, request)
            return len(answer.transactions)
        await asyncio.sleep(0.05)


async def until_seen(channels: Channels, address: str, expected: set[bytes]) -> None:
    """Each of these once, and nothing else."""

    async def is_so() -> bool:
        with suppress(errors.AerobeeError):
            return (await seen(channels, address)).keys() >= expected
        return False

    await until(is_so, "everything that was committed is seen", timeout_s=60)
    found = await seen(channels, address)
    assert {body for body, count in found.items() if count > 1} == set()
    assert found.keys() == expected


@pytest.mark.thorough
async def test_a_broker_that_is_killed_again_and_again(tmp_path: Path) -> None:
    application, chance, channels = Application(1), random.Random(1), Channels()
    options = {"checkpoint_interval_ms": 300, "segment_bytes": SEGMENT}
    broker = await BrokerProcess("a", tmp_path, {"orders": QUEUES}, options).start()
    routes = await RouteServer([broker]).start()
    stop = asyncio.Event()
    try:
        async with (
            Producer(routes.address, config=PATIENT) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(6):
                tasks.create_task(application.work(producer, stop))
            for _ in range(4):
                await asyncio.sleep(0.3 + chance.random() * 0.5)
                await broker.stop()
                await routes.publish()
                await broker.start()
                await routes.publish()
            await asyncio.sleep(0.3)
            stop.set()
        assert len(application.wanted) > 100
        await until_seen(channels, broker.address, application.committed(with_left=False))
        assert await open_count(channels, broker.address) == len(application.left) > 0
    finally:
        await channels.close()
        await routes.stop()
        await broker.stop()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process.endpoint


@pytest.mark.thorough
async def test_masters_change_while_transactions_end_and_are_checked(
    tmp_path: Path, etcd: str
) -> None:
    application, channels, stop = Application(2), Channels(), asyncio.Event()
    # The first check comes within what an ordinary end takes, so that both race.
    rules = {"timeout_ms": 50, "check_interval_ms": 200, "checks_max": 1_000}
    async with replica_group(
        tmp_path, etcd, (0, 1), segment_bytes=SEGMENT, transactions=rules
    ) as group:
        await group.in_sync(0, 1)
        await group.create_topic("orders", QUEUES)
        async with Producer(
            group.nameserver,
            group.cluster,
            check_transaction=application.check,
            config=PATIENT,
        ) as producer:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(6):
                    tasks.create_task(application.work(producer, stop))
                for _ in range(2):
                    await asyncio.sleep(1)
                    master = await group.master()
                    await group.replicas[master].kill()
                    await group.master(not_id=master)
                    await group.replicas[master].start()
                    await group.in_sync(0, 1)
                await group.hand_over(await group.master())
                await asyncio.sleep(0.5)
                stop.set()
            address = group.replicas[await group.master()].address

            async def is_all_ended() -> bool:
                with suppress(errors.AerobeeError):
                    return await open_count(channels, address) == 0
                return False

            await until(is_all_ended, "checks have ended what was left open", timeout_s=60)
        assert application.left
        assert application.checks
        await until_seen(channels, address, application.committed(with_left=True))
        await group.logs_equal(0, 1)
    await channels.close()
