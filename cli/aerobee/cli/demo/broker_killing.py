"""The kill of a broker group's master, when the demo runs with replicas."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.cli.failures import Failure
from aerobee.cli.local_cluster.cluster import LocalCluster
from aerobee.cli.local_cluster.plan import Replica
from aerobee.client_core import Admin
from aerobee.v1 import common_pb2


@dataclass(slots=True)
class BrokerKilling:
    """Kills the master of the cluster's first broker group, once."""

    cluster: LocalCluster
    victim: Replica | None = None

    async def execute(self, admin: Admin) -> Replica:
        """kill -9; the local cluster starts the process again, and it rejoins as a slave.

        Raises:
            Failure: the group has no master.
        """
        group = next(iter(self.cluster.plan.groups))
        for broker in (await admin.describe_cluster()).brokers:
            if broker.identity.broker_name == group and broker.role == common_pb2.MASTER:
                self.victim = Replica(group, broker.identity.broker_id)
                self.cluster.brokers[self.victim].kill()
                return self.victim
        raise Failure(f"broker group {group} has no master to kill")
