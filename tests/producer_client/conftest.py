"""A cluster of fakes for the producer; see tests/support/fake_cluster.py."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.fake_cluster import FakeBroker, FakeNameserver, FakeTopic


@pytest_asyncio.fixture
async def broker_a() -> AsyncIterator[FakeBroker]:
    broker = await FakeBroker("broker-a").start()
    yield broker
    await broker.stop()


@pytest_asyncio.fixture
async def broker_b() -> AsyncIterator[FakeBroker]:
    broker = await FakeBroker("broker-b").start()
    yield broker
    await broker.stop()


@pytest_asyncio.fixture
async def nameserver(broker_a: FakeBroker) -> AsyncIterator[FakeNameserver]:
    """Knows broker-a and the topic `orders` with four queues on it."""
    nameserver = await FakeNameserver(
        brokers={"broker-a": broker_a}, topics={"orders": FakeTopic({"broker-a": 4})}
    ).start()
    yield nameserver
    await nameserver.stop()


@pytest_asyncio.fixture
async def two_brokers(nameserver: FakeNameserver, broker_b: FakeBroker) -> FakeNameserver:
    """The same with broker-b, and two queues of `orders` on each."""
    nameserver.brokers["broker-b"] = broker_b
    nameserver.topics["orders"] = FakeTopic({"broker-a": 2, "broker-b": 2})
    return nameserver
