"""The kill of one consumer, and how long its queues were without an owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aerobee.cli.demo.consumers import ConsumerProcess
from aerobee.cli.demo.sightings import Sighting


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
