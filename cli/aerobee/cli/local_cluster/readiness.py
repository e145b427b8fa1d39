"""When a local cluster serves: the nameserver answers, every broker is registered and answers, and
every broker group has a master that all its replicas follow.

A registration alone proves little: after a kill the registry shows a dead broker until its lease
ends. So each broker is asked itself, and must be the instance that the nameserver knows.
"""

from __future__ import annotations

import asyncio

from aerobee.access.credentials import (
    CLUSTER_SECRET_VARIABLE,
    Credentials,
    credentials_of_environment,
)
from aerobee.cli.local_cluster.plan import ClusterPlan, Replica

# Not `client_core`: it would load numpy while the services load theirs, and the start of all of
# them competes for the same cores.
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import DESCRIBE_CLUSTER, GET_STATS
from aerobee.rpc.tls import dialled_tls
from aerobee.runtime import errors
from aerobee.v1 import broker_pb2, common_pb2, nameserver_pb2

POLL_INTERVAL_S = 0.03
CALL_TIMEOUT_MS = 1_000


async def wait_until_serving(plan: ClusterPlan) -> dict[str, str]:
    """Returns once the whole cluster serves; bounded by the caller's patience, not by itself.

    The broker groups that take no messages as it begins, and why.
    """
    async with asyncio.TaskGroup() as tasks:
        waits = {
            name: tasks.create_task(wait_until_group_serves(plan, replicas), name=f"ready:{name}")
            for name, replicas in plan.groups.items()
        }
    reasons = {name: wait.result() for name, wait in waits.items()}
    return {name: reason for name, reason in reasons.items() if reason}


async def wait_until_group_serves(plan: ClusterPlan, replicas: list[Replica]) -> str:
    """Why its master takes no messages; empty if it does."""
    while True:
        answers = [await _stats_if_serving(plan, replica) for replica in replicas]
        masters = [stats for stats in answers if stats is not None and _leads(stats, replicas)]
        if None not in answers and masters:
            return "" if masters[0].writable else masters[0].not_writable_reason
        await asyncio.sleep(POLL_INTERVAL_S)


def _leads(stats: broker_pb2.BrokerStats, replicas: list[Replica]) -> bool:
    """Whether it is the master, with all other replicas in sync."""
    in_sync = sum(1 for replica in stats.replicas if replica.in_sync)
    return stats.role == common_pb2.MASTER and stats.epoch > 0 and in_sync >= len(replicas) - 1


async def _stats_if_serving(plan: ClusterPlan, replica: Replica) -> broker_pb2.BrokerStats | None:
    """None while the broker does not serve."""
    # Fresh channels: one that failed before its server listened would back off.
    channels = Channels(credentials=_credentials(plan), tls=dialled_tls(plan.client_tls))
    try:
        stats = await channels.call(
            plan.brokers[replica],
            GET_STATS,
            broker_pb2.GetStatsRequest(),
            timeout_ms=CALL_TIMEOUT_MS,
        )
        described = await channels.call(
            plan.nameserver_address,
            DESCRIBE_CLUSTER,
            nameserver_pb2.DescribeClusterRequest(cluster=plan.cluster),
            timeout_ms=CALL_TIMEOUT_MS,
        )
    except errors.AerobeeError:
        return None
    finally:
        await channels.close()
    identity = stats.identity
    is_asked = (identity.broker_name, identity.broker_id) == (
        replica.broker_name,
        replica.broker_id,
    )
    is_known = any(endpoint.identity == identity for endpoint in described.brokers)
    return stats if is_asked and is_known else None


def _credentials(plan: ClusterPlan) -> Credentials | None:
    """An operator's; None: those of the environment."""
    if not plan.access:
        return None
    return credentials_of_environment({CLUSTER_SECRET_VARIABLE: str(plan.cluster_secret_file)})
