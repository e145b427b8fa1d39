"""Several messages in one transaction: each is seen once, or none is, even after crashes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import Message
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import LIST_TRANSACTIONS, PULL
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client import (
    BlockingProducer,
    CheckAnswer,
    Producer,
    ProducerConfig,
    TransactionCheck,
    TransactionEnded,
    TransactionUnanswered,
)
from aerobee.runtime import errors
from aerobee.store.format.record import iterate_records
from aerobee.testing import VirtualCluster, faults
from aerobee.v1 import broker_pb2, common_pb2
from tests.producer_client.dying_with_several import STEPS
from tests.support.real_brokers import BrokerProcess, RouteServer
from tests.support.waiting import until

TOPICS = ("orders", "bills")
LOOKS = 10


@dataclass
class Scene:
    cluster: VirtualCluster
    admin: AdminClient
    producer: Producer
    answer: CheckAnswer = CheckAnswer.UNKNOWN
    checked: list[bytes] = field(default_factory=list)
    """Bodies of the messages about which the application was asked."""

    async def check(self, check: TransactionCheck) -> CheckAnswer:
        self.checked.append(check.message.body)
        return self.answer

    async def seen(self) -> list[bytes]:
        found: list[bytes] = []
        for topic in TOPICS:
            for place in (await self.admin.topics.describe(topic)).queues:
                page = await self.admin.messages.from_queue(place.queue, 0)
                found += [each.body for each in page.messages]
        return sorted(found)

    async def open_ones(self) -> int:
        return len((await self.admin.transactions.list()).transactions)


ORDER = Message("orders", b"order")
BILL = Message("bills", b"bill")
AT_A = MessageQueue("orders", "broker-a", 0)
AT_B = MessageQueue("bills", "broker-b", 0)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    scenes: list[Scene] = []

    async def check(question: TransactionCheck) -> CheckAnswer:
        return await scenes[0].check(question)

    async with (
        VirtualCluster(groups=2, seed=1) as cluster,
        AdminClient(cluster.nameservers) as admin,
        Producer(
            cluster.nameservers,
            check_transaction=check,
            transaction_topics=TOPICS,
            config=ProducerConfig(send_timeout_ms=2_000),
        ) as producer,
    ):
        for topic in TOPICS:
            await cluster.create_topic(topic, queues=2)
        scenes.append(Scene(cluster, admin, producer))
        yield scenes[0]


async def test_all_are_seen_once_the_block_is_left_and_none_before() -> None:
    async with scene() as here:
        async with here.producer.transaction() as tx:
            receipt = await tx.send(ORDER, queue=AT_A)
            assert receipt.queue == AT_A
            await asyncio.gather(*(tx.send(BILL) for _ in range(5)))
            await here.cluster.settle()
            assert await here.seen() == []
            assert len(tx.transactions) == 6
        assert await here.seen() == [b"bill"] * 5 + [b"order"]
        await here.cluster.advance(minutes=2)
        assert await here.open_ones() == 0
        assert here.checked == []
        with pytest.raises(errors.InvalidArgument, match="left"):
            await tx.send(BILL)


async def test_none_is_seen_if_an_exception_leaves_the_block() -> None:
    async with scene() as here:
        with suppress(ZeroDivisionError):
            async with here.producer.transaction() as tx:
                await tx.send(ORDER)
                await tx.send(BILL)
                print(1 / 0)
        assert await here.open_ones() == 0
        async with here.producer.transaction():
            pass  # without a message
        assert await here.seen() == []


async def test_none_is_seen_if_one_could_not_be_stored_whatever_the_block_makes_of_it() -> None:
    async with scene() as here:

        async def block() -> None:
            async with here.producer.transaction() as tx:
                await tx.send(ORDER)
                with suppress(errors.AerobeeError):
                    await tx.send(Message("orders", b"x" * (5 << 20)))

        with pytest.raises(errors.InvalidArgument, match="could not be stored"):
            await block()
        assert await here.seen() == []
        assert await here.open_ones() == 0


async def test_a_cancelled_block_is_rolled_back() -> None:
    async with scene() as here:

        async def block() -> None:
            async with here.producer.transaction() as tx:
                await tx.send(ORDER)
                await tx.send(BILL)
                await asyncio.sleep(3_600)

        task = asyncio.ensure_future(block())
        await here.cluster.advance(seconds=1)
        task.cancel()
        await here.cluster.advance(seconds=1)
        assert task.cancelled()
        assert (await here.seen(), await here.open_ones()) == ([], 0)


@pytest.mark.parametrize("broker", ["broker-a", "broker-b"])
@pytest.mark.parametrize("answer", [CheckAnswer.COMMIT, CheckAnswer.ROLLBACK])
async def test_a_broker_that_is_killed_before_the_end_changes_no_decision(
    broker: str, answer: CheckAnswer
) -> None:
    async with scene() as here:
        here.answer = answer
        ended: Exception | None = None
        try:
            async with here.producer.transaction() as tx:
                await tx.send(ORDER, queue=AT_A)
                await tx.send(BILL, queue=AT_B)
                faults.kill(here.cluster, broker)
        except TransactionUnanswered as error:
            ended = error
        assert (ended is not None) == (broker == "broker-a"), "the first message's broker decides"
        await here.cluster.start_broker(broker)
        await here.cluster.advance(minutes=3)
        assert await here.open_ones() == 0
        is_committed = ended is None or answer is CheckAnswer.COMMIT
        assert await here.seen() == ([b"bill", b"order"] if is_committed else [])
        assert here.checked == ([] if ended is None else [b"order"]), "one check answers for all"


async def test_a_check_that_decides_during_the_block_decides_for_all_of_it() -> None:
    async with scene() as here:
        async with Producer(
            here.cluster.nameservers,
            check_transaction=lambda _: _rolled_back(),
            transaction_topics=TOPICS,
        ):

            async def block() -> None:
                async with here.producer.transaction() as tx:
                    await tx.send(ORDER, queue=AT_A)
                    await tx.send(BILL, queue=AT_B)
                    await here.cluster.advance(minutes=3)

            with pytest.raises(TransactionEnded):
                await block()
        assert await here.seen() == []
        assert await here.open_ones() == 0


async def _rolled_back() -> CheckAnswer:
    return CheckAnswer.ROLLBACK


async def test_a_lead_that_ended_long_ago_is_known_by_its_message() -> None:
    """The brokers remember 20,000 ends; of older ones the index tells."""
    async with scene() as here:
        with suppress(TransactionUnanswered):
            async with here.producer.transaction() as tx:
                await tx.send(ORDER, queue=AT_A)
                await tx.send(BILL, queue=AT_B)
                faults.kill(here.cluster, "broker-a")
                faults.kill(here.cluster, "broker-b")
        lead, _ = tx.transactions
        assert lead.outcome is None
        await here.cluster.start_broker("broker-a")
        await here.cluster.advance(seconds=5)
        await here.admin.transactions.commit("orders", lead.transaction_id)
        for _ in range(2):  # a start remembers no ends before its progress
            await here.cluster.stop_broker("broker-a")
            await here.cluster.start_broker("broker-a")
            await here.cluster.advance(seconds=5)
        await here.cluster.start_broker("broker-b")
        await here.cluster.advance(minutes=2)
        assert await here.seen() == [b"bill", b"order"]
        assert here.checked == []


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
async def test_a_producer_that_is_killed_leaves_all_or_none(tmp_path: Path, step: int) -> None:
    rules = {"timeout_ms": 300, "check_interval_ms": 300, "checks_max": 1_000}
    topics = dict.fromkeys(TOPICS, 1)
    brokers = [
        await BrokerProcess(name, tmp_path / name, topics, {}, rules).start() for name in "ab"
    ]
    routes = await RouteServer(brokers).start()
    database, checked = tmp_path / "database", Counter[bytes]()

    async def check(question: TransactionCheck) -> CheckAnswer:
        checked[question.message.body] += 1
        return CheckAnswer.COMMIT if database.exists() else CheckAnswer.ROLLBACK

    channels, empty = Channels(), 0
    wanted = {b"order": 1, b"other": 1, b"bill": 1} if step >= 2 else {}

    async def seen() -> Counter[bytes]:
        found = Counter[bytes]()
        for broker in brokers:
            for topic in TOPICS:
                request = broker_pb2.PullRequest(topic=topic, queue_id=0, max_messages=100)
                answer = await channels.call(broker.address, PULL, request)
                if answer.code == common_pb2.OK:
                    found.update(record.body for record in iterate_records(answer.records))
        return found

    try:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.producer_client.dying_with_several"),
            *(routes.address, str(database), str(step)),
            cwd=Path(__file__).parents[2],
        )
        assert await program.wait() == -9
        async with Producer(routes.address, check_transaction=check, transaction_topics=TOPICS):

            async def is_ended() -> bool:
                nonlocal empty
                request = broker_pb2.ListTransactionsRequest()
                answers = [
                    await channels.call(broker.address, LIST_TRANSACTIONS, request)
                    for broker in brokers
                ]
                # One that is being asked about is not listed for a moment.
                empty = 0 if any(answer.transactions for answer in answers) else empty + 1
                return empty >= LOOKS and await seen() == wanted

            await until(is_ended, "all messages have ended as they should")
        assert checked.keys() <= {b"order"}, "the application is asked about the first alone"
        assert not (checked and step >= 3), "what was decided is not asked about"
    finally:
        await channels.close()
        await routes.stop()
        for broker in brokers:
            await broker.stop()


def test_a_blocking_producer_has_it_too(tmp_path: Path) -> None:
    async def prepare() -> tuple[BrokerProcess, RouteServer]:
        broker = await BrokerProcess("a", tmp_path, dict.fromkeys(TOPICS, 1)).start()
        return broker, await RouteServer([broker]).start()

    with asyncio.Runner() as runner:
        broker, routes = runner.run(prepare())
        try:
            runner.run(asyncio.to_thread(_send_blocking, routes.address))
        finally:
            runner.run(routes.stop())
            runner.run(broker.stop())


def _send_blocking(address: str) -> None:
    with BlockingProducer(address) as producer:
        with producer.transaction() as tx:
            assert tx.send(ORDER).transaction_id
            tx.send(BILL)
        with suppress(ZeroDivisionError), producer.transaction() as tx:
            tx.send(ORDER)
            print(1 / 0)
