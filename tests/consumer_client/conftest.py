"""What consumers read: a topic of a test's own in a shared cluster, or brokers of its own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from aerobee.consumer_client import ConsumerConfig
from aerobee.testing import RealCluster as SharedCluster
from tests.support.own_topic import OwnTopic
from tests.support.real_brokers import RealCluster, start_cluster


@pytest_asyncio.fixture
async def own(
    aerobee_cluster: SharedCluster, aerobee_topic: str, aerobee_group: str, quick: ConsumerConfig
) -> AsyncIterator[OwnTopic]:
    """A topic and a group: four queues, or as the marker `aerobee_topic` says."""
    own = OwnTopic(aerobee_cluster, aerobee_topic, aerobee_group, quick)
    yield own
    await own.channels.close()


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """One broker with topic `orders` of four queues and `single` of one."""
    cluster = await start_cluster(tmp_path, {"broker-a": {"orders": 4, "single": 1}})
    yield cluster
    await cluster.stop()


@pytest_asyncio.fixture
async def two_brokers(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """Topic `orders` with two queues on each of two brokers."""
    cluster = await start_cluster(tmp_path, {"broker-a": {"orders": 2}, "broker-b": {"orders": 2}})
    yield cluster
    await cluster.stop()


@pytest.fixture
def quick() -> ConsumerConfig:
    """Short times, so that tests are."""
    return ConsumerConfig(
        session_timeout_ms=1_000,
        commit_interval_ms=100,
        release_timeout_ms=2_000,
        close_timeout_ms=5_000,
    )
