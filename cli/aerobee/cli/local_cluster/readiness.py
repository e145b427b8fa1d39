"""When a local cluster serves: the nameserver answers, and every broker is registered and answers.

A registration alone proves little: after a kill the registry shows a dead broker until its lease
ends. So each broker is asked itself, and must be the instance that the nameserver knows.
"""

from __future__ import annotations

import asyncio

import grpc

from aerobee.cli.local_cluster.plan import ClusterPlan

# The bare stubs, not `client_core`: it would load numpy while the services load theirs, and the
# start of all of them competes for the same cores.
from aerobee.runtime.rpc import build_channel
from aerobee.v1 import broker_pb2, broker_pb2_grpc, nameserver_pb2, nameserver_pb2_grpc

POLL_INTERVAL_S = 0.03
CALL_TIMEOUT_S = 1.0


async def wait_until_serving(plan: ClusterPlan) -> None:
    """Returns once the whole cluster serves; bounded by the caller's patience, not by itself."""
    async with asyncio.TaskGroup() as tasks:
        for name in plan.brokers:
            tasks.create_task(wait_until_broker_serves(plan, name), name=f"ready:{name}")


async def wait_until_broker_serves(plan: ClusterPlan, name: str) -> None:
    """Returns once the nameserver knows the instance that answers on the broker's port."""
    while True:
        if await _serves(plan, name):
            return
        await asyncio.sleep(POLL_INTERVAL_S)


async def _serves(plan: ClusterPlan, name: str) -> bool:
    # Fresh channels: one that failed before its server listened would back off.
    async with (
        build_channel(plan.nameserver_address) as nameserver,
        build_channel(plan.brokers[name]) as broker,
    ):
        admin = broker_pb2_grpc.AdminServiceStub(broker)
        registry = nameserver_pb2_grpc.NameserverServiceStub(nameserver)
        try:
            stats = await admin.GetStats(broker_pb2.GetStatsRequest(), timeout=CALL_TIMEOUT_S)
            described = await registry.DescribeCluster(
                nameserver_pb2.DescribeClusterRequest(cluster=plan.cluster), timeout=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError:
            return False
    identity = stats.identity
    return identity.broker_name == name and any(
        endpoint.identity == identity for endpoint in described.brokers
    )
