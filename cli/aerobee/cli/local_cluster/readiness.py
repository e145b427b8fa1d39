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


async def wait_until_serving(plan: ClusterPlan) -> dict[str, str]:
    """Returns once the whole cluster serves; bounded by the caller's patience, not by itself.

    The brokers that take no messages as it begins, and why.
    """
    async with asyncio.TaskGroup() as tasks:
        waits = {
            name: tasks.create_task(wait_until_broker_serves(plan, name), name=f"ready:{name}")
            for name in plan.brokers
        }
    reasons = {name: wait.result() for name, wait in waits.items()}
    return {name: reason for name, reason in reasons.items() if reason}


async def wait_until_broker_serves(plan: ClusterPlan, name: str) -> str:
    """Returns once the nameserver knows the instance that answers on the broker's port: why it
    takes no messages, empty if it does."""
    while True:
        if (stats := await _stats_if_serving(plan, name)) is not None:
            return "" if stats.writable else stats.not_writable_reason
        await asyncio.sleep(POLL_INTERVAL_S)


async def _stats_if_serving(plan: ClusterPlan, name: str) -> broker_pb2.BrokerStats | None:
    """None while the broker does not serve."""
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
            return None
    identity = stats.identity
    is_known = any(endpoint.identity == identity for endpoint in described.brokers)
    return stats if identity.broker_name == name and is_known else None
