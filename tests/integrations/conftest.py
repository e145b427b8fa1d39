"""Frameworks on the cluster that all tests share."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from aerobee.consumer_client import ConsumerConfig
from aerobee.testing import RealCluster
from tests.support.own_topic import OwnTopic


@pytest_asyncio.fixture
async def own(
    aerobee_cluster: RealCluster, aerobee_topic: str, aerobee_group: str
) -> AsyncIterator[OwnTopic]:
    """A topic and a group of four queues."""
    quick = ConsumerConfig(session_timeout_ms=1_000, commit_interval_ms=50)
    own = OwnTopic(aerobee_cluster, aerobee_topic, aerobee_group, quick)
    yield own
    await own.channels.close()
