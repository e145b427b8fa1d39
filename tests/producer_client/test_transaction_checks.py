"""Producers are asked how transactions end that nobody ended, whoever began them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aerobee.broker.config import TransactionsConfig
from aerobee.client_core import ClusterConnection, Transactions
from aerobee.cluster_view.methods import PULL, WATCH_CHECKS
from aerobee.producer_client import (
    BlockingProducer,
    CheckAnswer,
    Message,
    Producer,
    TransactionCheck,
)
from aerobee.runtime import errors
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2
from tests.support.fake_cluster import BrokerAt, FakeNameserver, FakeTopic
from tests.support.real_brokers import RealBroker
from tests.support.waiting import until, wait_until

SOON = {"timeout_ms": 1, "check_interval_ms": 50, "checks_max": 1_000}


class Cluster:
    """One broker that asks soon, with `orders` on one queue."""

    def __init__(self, broker: RealBroker, nameserver: str, connection: ClusterConnection) -> None:
        self.broker = broker
        self.nameserver = nameserver
        self.connection = connection
        self.transactions = Transactions(connection)

    async def seen(self) -> list[bytes]:
        request = broker_pb2.PullRequest(topic="orders", group="g", max_bytes=1 << 20)
        answer = await self.connection.channels.call(self.broker.address, PULL, request)
        return [record.body for record in iterate_records(answer.records)]

    async def until_none_is_open(self) -> None:
        async def is_so() -> bool:
            found = await self.transactions.list()
            return not found.transactions and not found.unanswered

        await until(is_so)

    async def until_seen(self, *bodies: bytes) -> None:
        """A transaction may end a moment before its message can be read."""

        async def is_so() -> bool:
            return await self.seen() == list(bodies)

        await until(is_so, account=self.seen)


@asynccontextmanager
async def running(folder: Path, settings: Mapping[str, int] = SOON) -> AsyncIterator[Cluster]:
    broker = await RealBroker(
        "a", folder, {"orders": 1}, transactions=TransactionsConfig(**settings)
    ).start()
    nameserver = await FakeNameserver(
        brokers={"a": BrokerAt(broker.address)}, topics={"orders": FakeTopic({"a": 1})}
    ).start()
    try:
        async with ClusterConnection(nameserver.address) as connection:
            yield Cluster(broker, nameserver.address, connection)
    finally:
        await nameserver.stop()
        await broker.stop()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running(tmp_path / "a") as cluster:
        yield cluster


class Application:
    """Answers as it was told, and keeps what it was asked."""

    def __init__(self, *answers: CheckAnswer | Exception) -> None:
        """One answer after the other, and the last one again and again."""
        self.asked: list[TransactionCheck] = []
        self._answers = answers

    async def check(self, check: TransactionCheck) -> CheckAnswer:
        self.asked.append(check)
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def left_open(cluster: Cluster, body: bytes = b"1") -> str:
    """By a producer that is gone."""
    async with Producer(cluster.nameserver) as producer:
        message = Message("orders", body, tag="new", keys=["k"], properties={"colour": "red"})
        return (await producer.begin(message)).transaction_id


async def test_another_producer_of_the_topic_says_commit(cluster: Cluster) -> None:
    transaction_id = await left_open(cluster, b"x" * 9_000)
    application = Application(CheckAnswer.COMMIT)
    async with Producer(
        cluster.nameserver, check_transaction=application.check, transaction_topics=["orders"]
    ):
        await cluster.until_none_is_open()
    await until(cluster.seen)
    asked = application.asked[0]
    assert (asked.topic, asked.transaction_id, asked.checks) == ("orders", transaction_id, 1)
    message = asked.message
    assert (message.topic, message.body, message.tag) == ("orders", b"x" * 9_000, "new")
    assert (message.message_id, message.properties["colour"]) == (transaction_id, "red")
    assert not {"REAL_TOPIC", "TRAN_MSG"} & set(message.properties)


async def test_it_says_rollback(cluster: Cluster) -> None:
    await left_open(cluster)
    application = Application(CheckAnswer.ROLLBACK)
    async with Producer(
        cluster.nameserver, check_transaction=application.check, transaction_topics=["orders"]
    ):
        await cluster.until_none_is_open()
    assert await cluster.seen() == []


async def test_who_does_not_know_or_fails_is_asked_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    transaction_id = await left_open(cluster)
    application = Application(CheckAnswer.UNKNOWN, ZeroDivisionError(), CheckAnswer.COMMIT)
    async with Producer(
        cluster.nameserver, check_transaction=application.check, transaction_topics=["orders"]
    ):
        await cluster.until_none_is_open()
    await cluster.until_seen(b"1")
    assert [each.transaction_id for each in application.asked[:3]] == [transaction_id] * 3
    assert "check_transaction failed" in caplog.text


async def test_a_topic_counts_from_its_first_transaction_on(cluster: Cluster) -> None:
    application = Application(CheckAnswer.COMMIT)
    async with Producer(cluster.nameserver, check_transaction=application.check) as producer:
        await producer.begin(Message("orders", b"1"))
        await cluster.until_none_is_open()
    await cluster.until_seen(b"1")


async def test_nobody_is_asked_about_a_block_that_runs(cluster: Cluster) -> None:
    running_ids: set[str] = set()

    async def check(check: TransactionCheck) -> CheckAnswer:
        assert check.transaction_id not in running_ids
        other_is_asked.set()
        return CheckAnswer.ROLLBACK

    other_is_asked = asyncio.Event()
    async with Producer(cluster.nameserver, check_transaction=check) as producer:
        async with producer.transaction(Message("orders", b"1")) as transaction:
            running_ids.add(transaction.transaction_id)

            async def was_checked() -> bool:
                (found,) = (await cluster.transactions.list()).transactions
                return found.checks > 2

            await until(was_checked)
        await producer.begin(Message("orders", b"2"))
        await other_is_asked.wait()
        await cluster.until_none_is_open()
    await cluster.until_seen(b"1")


async def test_nobody_is_asked_before_the_time_that_the_producer_says(cluster: Cluster) -> None:
    application = Application(CheckAnswer.COMMIT)
    async with Producer(cluster.nameserver, check_transaction=application.check) as producer:
        left_alone = await producer.begin(Message("orders", b"1"), check_after_s=3_600)
        await producer.begin(Message("orders", b"2"))

        async def is_seen() -> bool:
            return await cluster.seen() == [b"2"]

        await until(is_seen)
        with pytest.raises(errors.InvalidArgument, match="check_after_s must be at least 1"):
            await producer.begin(Message("orders", b"3"), check_after_s=0)
    (found,) = (await cluster.transactions.list()).transactions
    assert (found.transaction_id, found.checks) == (left_alone.transaction_id, 0)


async def test_a_broker_that_comes_back_asks_again(cluster: Cluster) -> None:
    application = Application(CheckAnswer.UNKNOWN)
    async with Producer(
        cluster.nameserver, check_transaction=application.check, transaction_topics=["orders"]
    ) as producer:
        await producer.begin(Message("orders", b"1"))
        await until(lambda: bool(application.asked))
        await cluster.broker.stop()
        await cluster.broker.start()
        application.asked.clear()
        application._answers = (CheckAnswer.COMMIT,)

        async def is_seen() -> bool:
            try:
                return await cluster.seen() == [b"1"]
            except errors.AerobeeError:
                return False

        await until(is_seen)


async def test_what_nobody_knows_is_set_aside_for_an_operator(tmp_path: Path) -> None:
    settings = {"timeout_ms": 1, "check_interval_ms": 20, "checks_max": 2}
    async with running(tmp_path / "a", settings) as cluster:
        transaction_id = await left_open(cluster)
        application = Application(CheckAnswer.UNKNOWN)
        async with Producer(
            cluster.nameserver, check_transaction=application.check, transaction_topics=["orders"]
        ):

            async def is_aside() -> bool:
                return bool((await cluster.transactions.list(set_aside=True)).transactions)

            await until(is_aside)
        assert (await cluster.transactions.list()).transactions == ()
        (aside,) = (await cluster.transactions.list("orders", set_aside=True)).transactions
        assert aside.transaction_id == transaction_id
        assert (await cluster.transactions.message(aside)).body == b"1"
        assert await cluster.seen() == []
        await cluster.transactions.commit("orders", transaction_id)
        assert (await cluster.transactions.list(set_aside=True)).transactions == ()
        await cluster.until_seen(b"1")


DIES = """
import asyncio, sys
from aerobee.producer_client import Message, Producer

async def main():
    async with Producer(sys.argv[1]) as producer:
        async with producer.transaction(Message("orders", b"of the dead")) as transaction:
            print(transaction.transaction_id, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("answer", [CheckAnswer.COMMIT, CheckAnswer.ROLLBACK])
async def test_a_producer_that_is_killed_leaves_the_end_to_the_next(
    cluster: Cluster, answer: CheckAnswer
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DIES, cluster.nameserver), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    transaction_id = (await process.stdout.readline()).decode().strip()
    process.kill()
    await process.wait()
    assert await cluster.seen() == []
    application = Application(answer)
    async with Producer(
        cluster.nameserver, check_transaction=application.check, transaction_topics=["orders"]
    ):
        await cluster.until_none_is_open()
    assert {each.transaction_id for each in application.asked} == {transaction_id}
    await cluster.until_seen(*([b"of the dead"] if answer is CheckAnswer.COMMIT else []))


async def test_a_script_has_transactions_and_is_asked_in_a_thread(cluster: Cluster) -> None:
    asked: list[str] = []

    def check(check: TransactionCheck) -> CheckAnswer:
        asked.append(check.transaction_id)
        return CheckAnswer.COMMIT

    def script() -> None:
        with BlockingProducer(cluster.nameserver, check_transaction=check) as producer:
            with producer.transaction(Message("orders", b"1")):
                pass
            for error in (ZeroDivisionError, KeyboardInterrupt):
                with pytest.raises(error), producer.transaction(Message("orders", b"2")):
                    raise error
            transaction = producer.begin(Message("orders", b"3"))
            transaction.rollback()
            assert transaction.outcome == "rolled_back"
            open_one = producer.begin(Message("orders", b"4"))
            wait_until(lambda: open_one.transaction_id in asked)
            open_one.commit()

    await asyncio.to_thread(script)
    await cluster.until_seen(b"1", b"4")


async def test_what_cannot_be_is_refused(cluster: Cluster) -> None:
    with pytest.raises(errors.InvalidArgument, match="give both"):
        Producer(cluster.nameserver, transaction_topics=["orders"])
    with pytest.raises(errors.IllegalName):
        Producer(
            cluster.nameserver,
            check_transaction=Application(CheckAnswer.COMMIT).check,
            transaction_topics=["a/b"],
        )
    stream = cluster.connection.channels.open_server_stream(
        cluster.broker.address, WATCH_CHECKS, broker_pb2.WatchChecksRequest()
    )
    with pytest.raises(errors.InvalidArgument, match="name the topics"):
        await stream.read()
