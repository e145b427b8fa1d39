"""Transactions of our own producer at real brokers: a message is seen once it is committed, once,
or never."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aerobee.client_core import ClusterConnection, MessageQueue, Transactions
from aerobee.cluster_view.methods import (
    END_TRANSACTION,
    END_TRANSACTIONS,
    LIST_TRANSACTIONS,
    PULL,
)
from aerobee.producer_client import (
    Message,
    Producer,
    ProducerConfig,
    TransactionEnded,
    TransactionOutcome,
    TransactionUnanswered,
)
from aerobee.runtime import errors
from aerobee.store.format.message_id import UniqueIdGenerator
from aerobee.store.format.record import iterate_records
from aerobee.v1 import broker_pb2, common_pb2
from tests.support.fake_cluster import BrokerAt, FakeNameserver, FakeTopic
from tests.support.real_brokers import RealBroker
from tests.support.waiting import until

NAMES = ("a", "b")
QUEUES = 2


@dataclass
class Cluster:
    """`orders` and `bills` on two brokers."""

    brokers: dict[str, RealBroker]
    nameserver: str
    connection: ClusterConnection
    producer: Producer

    @property
    def transactions(self) -> Transactions:
        return Transactions(self.connection, timeout_ms=2_000)

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()

    async def open_ones(self) -> list[str]:
        return [each.transaction_id for each in (await self.transactions.list()).transactions]

    async def until_open(self, *transaction_ids: str) -> None:
        """Until just these are open: a broker that was started reads them first."""

        async def is_so() -> bool:
            with suppress(errors.AerobeeError):
                found = await self.transactions.list()
                ids = tuple(each.transaction_id for each in found.transactions)
                return ids == transaction_ids and not found.unanswered
            return False

        await until(is_so)

    async def seen(self, topic: str = "orders") -> list[bytes]:
        """What consumers see."""
        found: list[bytes] = []
        for broker in self.brokers.values():
            for queue_id in range(QUEUES):
                request = broker_pb2.PullRequest(
                    topic=topic, queue_id=queue_id, group="g", max_messages=1_000, max_bytes=1 << 20
                )
                answer = await self.connection.channels.call(broker.address, PULL, request)
                if answer.code == common_pb2.OK:
                    found += [record.body for record in iterate_records(answer.records)]
        return sorted(found)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    topics = {"orders": QUEUES, "bills": QUEUES}
    brokers = {name: await RealBroker(name, tmp_path / name, topics).start() for name in NAMES}
    nameserver = await FakeNameserver(
        brokers={name: BrokerAt(broker.address) for name, broker in brokers.items()},
        topics={topic: FakeTopic(dict.fromkeys(NAMES, QUEUES)) for topic in topics},
    ).start()
    try:
        async with (
            ClusterConnection(nameserver.address) as connection,
            Producer(connection=connection) as producer,
        ):
            yield Cluster(brokers, nameserver.address, connection, producer)
    finally:
        await nameserver.stop()
        for broker in brokers.values():
            await broker.stop()


def order(body: bytes) -> Message:
    return Message("orders", body, tag="new", keys=["k"])


# ------------------------------------------------------------------------------------ ending


async def test_a_block_commits_when_it_ends_and_rolls_back_when_it_fails(cluster: Cluster) -> None:
    async with cluster.producer.transaction(order(b"kept")) as kept:
        assert kept.outcome is None
        assert await cluster.seen() == []
        assert await cluster.open_ones() == [kept.transaction_id]
    assert kept.outcome is TransactionOutcome.COMMITTED
    with pytest.raises(ZeroDivisionError):
        async with cluster.producer.transaction(order(b"dropped")) as dropped:
            raise ZeroDivisionError
    assert dropped.outcome is TransactionOutcome.ROLLED_BACK
    assert await cluster.seen() == [b"kept"]
    assert await cluster.open_ones() == []


async def test_producers_that_make_the_same_id_end_their_own_transactions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = MessageQueue("orders", "a", 0)
    monkeypatch.setattr(UniqueIdGenerator, "next_ids", lambda self, now_ms, count: ["AB"] * count)
    one = await cluster.producer.begin(order(b"1"), queue=queue)
    two = await cluster.producer.begin(order(b"2"), queue=queue)
    assert one.receipt.message_id == two.receipt.message_id == one.transaction_id
    assert await cluster.open_ones() == [one.transaction_id, two.transaction_id]
    await one.rollback()
    await two.commit()
    assert await cluster.seen() == [b"2"]


async def test_a_block_may_end_its_transaction_itself(cluster: Cluster) -> None:
    async with cluster.producer.transaction(order(b"1")) as rolled_back:
        await rolled_back.rollback()
    with suppress(ZeroDivisionError):
        async with cluster.producer.transaction(order(b"2")) as committed:
            await committed.commit()
            raise ZeroDivisionError
    assert committed.outcome is TransactionOutcome.COMMITTED
    assert await cluster.seen() == [b"2"]


async def test_a_block_that_is_cancelled_does_not_wait_for_its_rollback(cluster: Cluster) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with cluster.producer.transaction(order(b"1")):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    await cluster.stop()
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await task
    for broker in cluster.brokers.values():
        await broker.start()
    await cluster.producer.flush()
    await cluster.until_open()
    assert await cluster.seen() == []


async def test_the_message_arrives_as_it_was_sent_to_its_queue(cluster: Cluster) -> None:
    queue = MessageQueue("orders", "b", 1)
    message = Message("orders", b"x" * 9_000, tag="t", keys=["k"], properties={"colour": "red"})
    transaction = await cluster.producer.begin(message, queue=queue)
    assert transaction.receipt.queue == queue
    assert transaction.receipt.queue_offset == -1
    await transaction.commit()
    await cluster.producer.send(message, queue=queue)
    request = broker_pb2.PullRequest(topic="orders", queue_id=1, group="g", max_bytes=1 << 20)
    answer = await cluster.connection.channels.call(cluster.brokers["b"].address, PULL, request)
    ours, plain = iterate_records(answer.records)
    assert ours.unique_key == transaction.transaction_id
    assert (ours.body, ours.flag, ours.tag) == (plain.body, plain.flag, plain.tag)
    assert ours.properties["colour"] == "red"
    assert ours.properties["KEYS"] == plain.properties["KEYS"]


async def test_an_end_is_answered_as_the_first_one_whoever_asks(cluster: Cluster) -> None:
    transaction = await cluster.producer.begin(order(b"1"))
    name = ("orders", transaction.transaction_id)
    await cluster.transactions.commit(*name)
    await cluster.transactions.commit(*name)
    with pytest.raises(TransactionEnded, match="was committed before") as refused:
        await transaction.rollback()
    assert refused.value.outcome is TransactionOutcome.COMMITTED
    assert transaction.outcome is TransactionOutcome.COMMITTED
    await transaction.commit()
    with pytest.raises(TransactionEnded, match="was committed before"):
        await cluster.transactions.rollback(*name)
    assert await cluster.seen() == [b"1"]


async def test_many_at_once_end_as_each_says(cluster: Cluster) -> None:
    wanted: dict[bytes, bool] = {b"%03d" % number: number % 3 > 0 for number in range(120)}

    async def one(body: bytes) -> None:
        with suppress(ZeroDivisionError):
            async with cluster.producer.transaction(order(body)):
                if not wanted[body]:
                    raise ZeroDivisionError

    await asyncio.gather(*map(one, wanted), cluster.producer.send(order(b"plain")))
    assert await cluster.seen() == [*(body for body in wanted if wanted[body]), b"plain"]
    assert await cluster.open_ones() == []


async def test_at_a_broker_of_an_older_version_each_ends_in_a_call_of_its_own(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/aerobee.v1.TransactionService/NotThereYet"
    unknown = replace(END_TRANSACTIONS, path=path)
    monkeypatch.setattr("aerobee.producer_client.ends.END_TRANSACTIONS", unknown)
    bodies = [b"%d" % number for number in range(9)]
    begun = await asyncio.gather(*(cluster.producer.begin(order(body)) for body in bodies))
    await asyncio.gather(*(each.commit() for each in begun))
    assert await cluster.seen() == bodies


async def test_what_no_transaction_can_be_is_refused_before_it_is_stored(cluster: Cluster) -> None:
    with pytest.raises(errors.MessageIllegal, match="delivered when it is committed"):
        await cluster.producer.begin(Message("orders", b"1", delay=5))
    with pytest.raises(errors.QueueNotFound):
        await cluster.producer.begin(order(b"1"), queue=MessageQueue("orders", "a", 7))
    assert await cluster.open_ones() == []


# ------------------------------------------------------------------------------------ brokers away


async def test_an_end_waits_for_its_broker_to_come_back(cluster: Cluster) -> None:
    transaction = await cluster.producer.begin(order(b"1"), queue=MessageQueue("orders", "a", 0))
    await cluster.brokers["a"].stop()
    committing = asyncio.create_task(transaction.commit(timeout=60))
    await asyncio.sleep(0.2)
    assert not committing.done()
    await cluster.brokers["a"].start()
    await committing
    assert await cluster.seen() == [b"1"]


async def test_an_end_that_nobody_answers_says_what_will_happen(cluster: Cluster) -> None:
    transaction = await cluster.producer.begin(order(b"1"), queue=MessageQueue("orders", "a", 0))
    await cluster.brokers["a"].stop()
    with pytest.raises(TransactionUnanswered, match="its broker asks the topic's producers"):
        await transaction.commit(timeout=0.3)
    assert transaction.outcome is None
    await cluster.brokers["a"].start()
    await transaction.commit(timeout=60)
    assert await cluster.seen() == [b"1"]


async def test_a_commit_that_failed_in_a_block_is_not_rolled_back(cluster: Cluster) -> None:
    with suppress(TransactionUnanswered):
        async with cluster.producer.transaction(order(b"1")) as transaction:
            await cluster.stop()
            await transaction.commit(timeout=0.3)
            pytest.fail("nobody can have answered")
    for broker in cluster.brokers.values():
        await broker.start()
    await cluster.until_open(transaction.transaction_id)


async def test_a_rollback_that_fails_leaves_the_error_of_the_block(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with suppress(ZeroDivisionError):
        async with cluster.producer.transaction(order(b"1"), timeout=1):
            await cluster.stop()
            raise ZeroDivisionError
    assert "a check decides" in caplog.text


async def test_it_ends_on_its_own_event_loop_alone(cluster: Cluster) -> None:
    transaction = await cluster.producer.begin(order(b"1"))

    def elsewhere() -> None:
        with pytest.raises(errors.InvalidArgument, match="on another event loop"):
            asyncio.run(transaction.commit())

    await asyncio.to_thread(elsewhere)
    await transaction.commit()
    assert await cluster.seen() == [b"1"]


async def test_a_closed_producer_ends_nothing(cluster: Cluster) -> None:
    config = ProducerConfig(close_timeout_ms=5_000)
    async with Producer(cluster.nameserver, config=config) as producer:
        transaction = await producer.begin(order(b"1"))
        committed = await producer.begin(order(b"2"))
        ending = asyncio.create_task(committed.commit())
        await asyncio.sleep(0)
    await ending
    with pytest.raises(errors.ShuttingDown, match="end its transactions before"):
        await transaction.commit()
    assert await cluster.open_ones() == [transaction.transaction_id]
    assert await cluster.seen() == [b"2"]


# ------------------------------------------------------------------------------------ lists


async def test_open_ones_are_listed_by_topic_id_and_time(cluster: Cluster) -> None:
    first = await cluster.producer.begin(order(b"1"), queue=MessageQueue("orders", "b", 1))
    second = await cluster.producer.begin(Message("bills", b"2"))
    (listed,) = (await cluster.transactions.list("orders")).transactions
    assert (listed.transaction_id, listed.queue) == (first.transaction_id, first.receipt.queue)
    assert (listed.checks, listed.producer_group) == (0, "orders")
    assert (await cluster.transactions.message(listed)).body == b"1"

    async def found(**wanted: object) -> list[str]:
        answer = await cluster.transactions.list(**wanted)  # type: ignore[arg-type]
        return [each.transaction_id for each in answer.transactions]

    both = [first.transaction_id, second.transaction_id]
    assert await found() == both
    assert await found(transaction_id=both[1]) == both[1:]
    assert await found(topic="orders", transaction_id=both[1]) == []
    assert await found(topic="bills", transaction_id=both[1]) == both[1:]
    assert await found(begin_ms=listed.born_timestamp_ms) == both
    assert await found(end_ms=listed.born_timestamp_ms) == []
    with pytest.raises(errors.InvalidArgument, match="is not before the end"):
        await found(begin_ms=5, end_ms=5)


async def test_a_list_comes_page_by_page(cluster: Cluster) -> None:
    queue = MessageQueue("orders", "a", 0)
    begun = [
        (await cluster.producer.begin(order(b"%d" % number), queue=queue)).transaction_id
        for number in range(7)
    ]
    request, pages = broker_pb2.ListTransactionsRequest(transactions_max=3), []
    while True:
        answer = await cluster.connection.channels.call(
            cluster.brokers["a"].address, LIST_TRANSACTIONS, request
        )
        pages.append([each.transaction_id for each in answer.transactions])
        if not answer.after:
            break
        request.after = answer.after
    assert pages == [begun[:3], begun[3:6], begun[6:]]
    cut = await cluster.transactions.list(max_transactions=5)
    assert ([each.transaction_id for each in cut.transactions], cut.more) == (begun[:5], True)
    whole = await cluster.transactions.list(max_transactions=7)
    assert (len(whole.transactions), whole.more) == (7, False)


async def test_brokers_that_are_down_are_named(cluster: Cluster) -> None:
    await cluster.brokers["b"].stop()
    assert (await cluster.transactions.list()).unanswered == ("b",)


async def test_what_is_open_is_listed_after_a_restart(cluster: Cluster) -> None:
    transaction = await cluster.producer.begin(order(b"1"), queue=MessageQueue("orders", "a", 0))
    await cluster.brokers["a"].stop()
    await cluster.brokers["a"].start()
    await cluster.until_open(transaction.transaction_id)
    await cluster.transactions.rollback("orders", transaction.transaction_id)
    assert await cluster.seen() == []


async def test_nonsense_is_refused(cluster: Cluster) -> None:
    with pytest.raises(errors.MessageNotFound, match="no broker has transaction 'nonsense'"):
        await cluster.transactions.commit("orders", "nonsense")
    call, address = cluster.connection.channels.call, cluster.brokers["a"].address
    with pytest.raises(errors.InvalidArgument, match="COMMITTED or ROLLED_BACK"):
        await call(address, END_TRANSACTION, broker_pb2.EndTransactionRequest(topic="orders"))
    with pytest.raises(errors.InvalidArgument, match="not the end of a page"):
        await call(address, LIST_TRANSACTIONS, broker_pb2.ListTransactionsRequest(after=-1))
