"""A fake nameserver, a real broker, and a connection to both."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from aerobee.client_core import ClusterConnection
from tests.support.fake_cluster import BrokerAt, FakeNameserver, FakeTopic
from tests.support.real_brokers import RealBroker


@pytest_asyncio.fixture
async def nameserver() -> AsyncIterator[FakeNameserver]:
    """Knows topic `orders` with two queues on broker-a, which nobody serves."""
    nameserver = await FakeNameserver(
        brokers={"broker-a": BrokerAt("127.0.0.1:1")},
        topics={"orders": FakeTopic({"broker-a": 2})},
    ).start()
    yield nameserver
    await nameserver.stop()


@pytest_asyncio.fixture
async def connection(nameserver: FakeNameserver) -> AsyncIterator[ClusterConnection]:
    async with ClusterConnection(nameserver.address) as connection:
        yield connection


@pytest_asyncio.fixture
async def served(
    nameserver: FakeNameserver, connection: ClusterConnection, tmp_path: Path
) -> AsyncIterator[ClusterConnection]:
    """The connection, with a real broker that serves `orders`."""
    broker = await RealBroker("broker-a", tmp_path / "broker-a", {"orders": 2}).start()
    nameserver.brokers["broker-a"] = BrokerAt(broker.address)
    yield connection
    await broker.stop()
