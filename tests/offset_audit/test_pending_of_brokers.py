"""What waits in a store of a broker that delivered: by its journal and the files that a clean stop
leaves for Apache's broker; or by its log alone, if it was killed before it wrote its queues."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from aerobee.broker.config import TransactionsConfig
from aerobee.client_core import ClusterConnection, MessageQueue, Offsets, Transactions
from aerobee.client_core.message import Message
from aerobee.producer_client import CheckAnswer, Producer, TransactionCheck
from tests.offset_audit.store_rows import store_rows
from tests.support.fake_cluster import BrokerAt, FakeNameserver, FakeTopic
from tests.support.real_brokers import BrokerProcess, RealBroker, RouteServer
from tests.support.waiting import until

QUEUE = MessageQueue("orders", "broker-a", 0)
SOON = timedelta(milliseconds=200)
LATE = timedelta(hours=1)


async def use(root: Path, *, is_clean: bool) -> None:
    """Two messages of each kind are delivered, and one of each waits."""
    broker = await BrokerProcess("broker-a", root, {"orders": 1}).start()
    nameserver = await RouteServer([broker]).start()
    try:
        async with Producer(nameserver.address) as producer:
            for message in (
                *(Message("orders", b"level", delay_level=level) for level in (1, 1, 18)),
                *(Message("orders", b"time", delay=delay) for delay in (SOON, SOON, LATE)),
            ):
                await producer.send(message, queue=QUEUE)
        async with ClusterConnection(nameserver.address) as connection, asyncio.timeout(30):
            offsets = Offsets(connection, timeout_ms=10_000)
            while (await offsets.bounds([QUEUE]))[QUEUE].max_offset_end < 4:
                await asyncio.sleep(0.05)
    finally:
        await nameserver.stop()
        await (broker.end() if is_clean else broker.stop())


@pytest.mark.parametrize("is_clean", [True, False])
async def test_only_what_was_not_delivered_waits(tmp_path: Path, is_clean: bool) -> None:
    await use(tmp_path, is_clean=is_clean)
    rows = [row for row in store_rows("pending", tmp_path) if not row["resolved"]]
    assert sorted((row["kind"], row["queue_id"], row["real_topic"]) for row in rows) == [
        ("DELAY", 17, "orders"),
        ("TIMER", 0, "orders"),
    ]


async def unknown(check: TransactionCheck) -> CheckAnswer:
    return CheckAnswer.UNKNOWN


async def test_transactions_wait_that_are_open_or_set_aside(tmp_path: Path) -> None:
    rules = TransactionsConfig(timeout_ms=1, check_interval_ms=20, checks_max=1)
    broker = await RealBroker("broker-a", tmp_path, {"orders": 1}, transactions=rules).start()
    nameserver = await FakeNameserver(
        brokers={"broker-a": BrokerAt(broker.address)},
        topics={"orders": FakeTopic({"broker-a": 1})},
    ).start()
    try:
        async with ClusterConnection(nameserver.address) as connection:
            transactions = Transactions(connection)

            async def are_aside() -> bool:
                return len((await transactions.list(set_aside=True)).transactions) == 3

            async with Producer(connection=connection, check_transaction=unknown) as producer:
                aside = [await producer.begin(Message("orders", b"aside")) for _ in range(3)]
                await until(are_aside)
            await transactions.rollback("orders", aside[0].transaction_id)
            await transactions.commit("orders", aside[1].transaction_id)
            # Nobody can be asked any more, so these are not set aside.
            async with Producer(connection=connection) as producer:
                open_one = await producer.begin(Message("orders", b"open"))
                await (await producer.begin(Message("orders", b"kept"))).commit()
                await (await producer.begin(Message("orders", b"dropped"))).rollback()
    finally:
        await nameserver.stop()
        await broker.stop()
    rows = [row for row in store_rows("pending", tmp_path) if not row["resolved"]]
    assert sorted((row["kind"], row["unique_key"], row["real_topic"]) for row in rows) == [
        ("ASIDE", aside[2].transaction_id, "orders"),
        ("HALF", open_one.transaction_id, "orders"),
    ]
