"""A cluster in real time is started when it says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import GET_STATS
from aerobee.testing import RealCluster
from aerobee.v1 import broker_pb2, common_pb2


def test_a_started_clusters_masters_take_messages_at_once(tmp_path: Path) -> None:
    """Clients wait for a master, and hide one that is not ready; calls to it do not."""

    async def roles(cluster: RealCluster) -> list[common_pb2.BrokerRole]:
        channels = Channels()
        try:
            return [
                (
                    await channels.call(
                        cluster.broker(name).address, GET_STATS, broker_pb2.GetStatsRequest()
                    )
                ).role
                for name in ("broker-a", "broker-b")
            ]
        finally:
            await channels.close()

    for turn in range(3):
        with RealCluster(tmp_path / str(turn), groups=2) as cluster:
            assert asyncio.run(roles(cluster)) == [common_pb2.MASTER] * 2
