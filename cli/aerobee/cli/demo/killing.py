"""The kills of the demo: one consumer, and with replicas a master broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aerobee import AdminClient
from aerobee.cli.demo.consumers import ConsumerProcess
from aerobee.cli.demo.sightings import Sighting
from aerobee.cli.failures import Failure
from aerobee.cli.local_cluster.cluster import LocalCluster
from aerobee.cli.local_cluster.plan import Replica


class Killing:
    """Kills `victim` once, and notices when another consumer reads from one of its queues."""

    def __init__(self, victim: ConsumerProcess) -> None:
        self.victim = victim
        self.queues: frozenset[str] = frozenset()
        """What it held, as `topic@broker:queue`."""
        self.takeover_s: float | None = None
        """From the kill to the first sighting of somebody else in one of its queues."""
        self._killed_s: float | None = None

    @property
    def is_done(self) -> bool:
        return self._killed_s is not None

    async def execute(self, holders: Mapping[str, str], *, now_s: float) -> None:
        """kill -9. `holders`: queue -> client id, just before."""
        self.queues = frozenset(
            queue for queue, client_id in holders.items() if client_id == self.victim.name
        )
        self._killed_s = now_s
        await self.victim.kill()

    def on_sightings(
        self, found: Iterable[tuple[ConsumerProcess, Sighting]], *, now_s: float
    ) -> bool:
        """True when these are the first that show the takeover."""
        if self._killed_s is None or self.takeover_s is not None:
            return False
        for consumer, sighting in found:
            position = sighting.position
            suffix = f"@{position.broker_name}:{position.queue_id}"
            if consumer is not self.victim and any(queue.endswith(suffix) for queue in self.queues):
                self.takeover_s = now_s - self._killed_s
                return True
        return False


@dataclass(slots=True)
class BrokerKilling:
    """Kills the master of the cluster's first broker group, once."""

    cluster: LocalCluster
    victim: Replica | None = None

    async def execute(self, admin: AdminClient) -> Replica:
        """kill -9; the local cluster starts the process again, and it rejoins as a slave.

        Raises:
            Failure: the group has no master.
        """
        group = next(iter(self.cluster.plan.groups))
        for broker in (await admin.cluster()).brokers:
            if broker.broker_name == group and broker.is_master:
                self.victim = Replica(group, broker.broker_id)
                self.cluster.brokers[self.victim].kill()
                return self.victim
        raise Failure(f"broker group {group} has no master to kill")
