"""What waits in a store of a broker that delivered: by its journal and the files that a clean stop
leaves for Apache's broker; or by its log alone, if it was killed before it wrote its queues."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from aerobee.client_core import ClusterConnection, MessageQueue, Offsets
from aerobee.client_core.message import Message
from aerobee.producer_client import Producer
from tests.offset_audit.store_rows import store_rows
from tests.support.real_brokers import BrokerProcess, RouteServer

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
