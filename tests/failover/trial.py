"""One cluster, its clients and a judge: harm goes in, a verdict and figures come out.

`Trial.judged` is how every scenario runs: messages flow while the scenario harms the cluster; then
all is healed, all sends end, the consumers catch up, and the whole history since the trial began is
judged, the replicas' files compared.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.failover.checker import Verdict, judge, lost
from tests.failover.clients import FAILING_GROUP, Clients, open_clients
from tests.failover.history import RETRIES_MAX, failures_of, is_failing
from tests.failover.log_files import failed_messages, log_bytes, stored_messages
from tests.failover.world import TOPIC, Settings, World, open_world


@dataclass(slots=True)
class Figures:
    """Of one trial, for the line at its end."""

    fail_overs: int = 0
    acknowledged: int = 0
    arrived_later: int = 0
    delivered: int = 0
    came_again: int = 0
    dead_letters: int = 0
    stored: int = 0
    failed_sends: int = 0
    lost: int = 0
    pauses_s: list[tuple[str, float]] = field(default_factory=list)

    def percentile_s(self, share: float) -> float:
        pauses_s = sorted(pause_s for _, pause_s in self.pauses_s)
        return pauses_s[min(len(pauses_s) - 1, int(share * len(pauses_s)))] if pauses_s else 0.0

    def __str__(self) -> str:
        pauses = ""
        if self.pauses_s:
            pauses = (
                f"; pauses: median {self.percentile_s(0.5):.2f} s, "
                f"p95 {self.percentile_s(0.95):.2f} s, longest {self.percentile_s(1.0):.2f} s"
            )
        return (
            f"{self.acknowledged} acknowledged, {self.arrived_later} of them to arrive later, "
            f"{self.stored} stored, {self.lost} lost, "
            f"{self.came_again} came again, {self.dead_letters} dead letters, "
            f"{self.delivered} delivered, {self.failed_sends} sends failed, "
            f"{self.fail_overs} fail-overs{pauses}"
        )


class Trial:
    """Use `open_trial`."""

    def __init__(self, world: World, clients: Clients, chance: random.Random) -> None:
        self.world = world
        self.clients = clients
        self.chance = chance
        self.figures = Figures()
        self.may_lose: list[tuple[float, float]] = []
        """See `judge`; a scenario says it, where replication is asynchronous."""
        self.is_sound = True
        """Nothing was found so far."""

    @asynccontextmanager
    async def judged(self) -> AsyncIterator[None]:
        """Messages flow inside; at the end no send has failed and the verdict is clean."""
        self.is_sound = False
        self.clients.resume()
        await self.clients.acknowledged_after(time.monotonic())
        yield
        await self.world.healthy()
        await self.clients.acknowledged_after(time.monotonic())
        await self.clients.pause()
        verdict = await self.verdict()
        assert not verdict.violations, str(verdict)
        assert not self.clients.history.failed, self.clients.history.failed[:5]
        # No death, pause or split makes a log lack what was confirmed and on its disk.
        for broker in self.world.brokers.values():
            assert "this log lacks what it once had" not in broker.log, broker.name
        self.is_sound = True

    async def verdict(self) -> Verdict:
        """Of all since the trial began; the cluster is healthy and no sends are under way."""
        world, history = self.world, self.clients.history
        await self.clients.nothing_waits(self.may_lose)
        master = await world.master()
        end = await world.equal_ends()
        stored = stored_messages(log_bytes(world.folder(master), end), TOPIC)
        if not self.may_lose:
            await self.clients.failures_end()
            await self._dead_letters()
        await self.clients.caught_up({one.place for one in stored})
        # With the offsets that the consumers committed meanwhile.
        end = await world.equal_ends()
        replicas = {
            f"replica {one}": log_bytes(world.folder(one), end) for one in world.settings.replicas
        }
        stored = stored_messages(replicas[f"replica {master}"], TOPIC)
        failed = failed_messages(replicas[f"replica {master}"], FAILING_GROUP)
        self.figures.came_again = len(failed.attempts)
        self.figures.dead_letters = len(failed.dead_letters)
        self.figures.acknowledged = len(history.acknowledged)
        self.figures.arrived_later = sum(
            (one.lane, one.number) in history.due_ms for one in history.acknowledged
        )
        self.figures.delivered = len(history.delivered)
        self.figures.stored = len(stored)
        self.figures.failed_sends = len(history.failed)
        self.figures.lost = len(lost(history, stored))
        return judge(history, stored, replicas, failed=failed, may_lose=self.may_lose)

    async def _dead_letters(self) -> None:
        """Until the log has the letter of everything that fails for ever."""
        history, world = self.clients.history, self.world
        expected = {
            (one.lane, one.number)
            for one in history.acknowledged
            if is_failing(one.lane) and failures_of(one.number) > RETRIES_MAX
        }

        async def holds() -> bool:
            end = await world.equal_ends()
            log = log_bytes(world.folder(await world.master()), end)
            return expected <= set(failed_messages(log, FAILING_GROUP).dead_letters)

        await world.until(holds, "dead letters")

    async def paused(self, what: str, fault_s: float) -> float:
        """Until writes are acknowledged again after a fault; notes how long that took."""
        pause_s = await self.clients.acknowledged_after(fault_s)
        self.figures.pauses_s.append((what, pause_s))
        return pause_s

    def stood_still(self, what: str, fault_s: float) -> float:
        """Notes the longest time without an acknowledgement since a fault that does not stop
        writes at once."""
        pause_s = self.clients.history.gap_s(fault_s, time.monotonic())
        self.figures.pauses_s.append((what, pause_s))
        return pause_s

    async def stopped_clean(self) -> None:
        """Ends every broker by SIGTERM, slaves first; their files must be equal."""
        master = await self.world.master()
        end = await self.world.equal_ends()
        order = [one for one in self.world.settings.replicas if one != master] + [master]
        for broker_id in order:
            assert await self.world.brokers[broker_id].stop() == 0
        logs = {log_bytes(self.world.folder(one), end) for one in order}
        assert len(logs) == 1, "the replicas' files differ after a clean stop"


@asynccontextmanager
async def open_trial(
    root: Path, settings: Settings | None = None, *, seed: int = 1, pace_s: float = 0.03
) -> AsyncIterator[Trial]:
    chance = random.Random(seed)
    async with (
        open_world(root, settings) as world,
        open_clients(world, chance, pace_s=pace_s, with_failures=True) as clients,
    ):
        yield Trial(world, clients, chance)
