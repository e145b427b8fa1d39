"""A machine with a broker: started, cut off or killed, and checked at each new start."""

from __future__ import annotations

import random
from dataclasses import dataclass

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.testing.power_failure import Fate
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.simulation import campaign
from tests.simulation.power_cuts.checks import (
    check_closed_cleanly,
    check_documents,
    check_opened,
    check_second_start,
)
from tests.simulation.power_cuts.driver import Driver, Trace, Variant
from tests.simulation.power_cuts.model import Model
from tests.simulation.power_cuts.raw_files import check_checkpoint_is_not_ahead


@dataclass(slots=True)
class Figures(campaign.Figures):
    power_cuts: int = 0
    cut_starts: int = 0
    kills: int = 0
    clean_stops: int = 0
    records: int = 0
    steps: int = 0

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.power_cuts} power cuts, {self.cut_starts} starts cut short, "
            f"{self.kills} kills, {self.clean_stops} clean stops, {self.records} records, "
            f"{self.steps} disk operations"
        )


class Machine:
    """Any method may raise Violation; anything else it raises is a defect as well."""

    def __init__(
        self,
        disk: SimulatedDisk,
        config: StoreConfig,
        chance: random.Random,
        *,
        variant: Variant,
        trace: Trace | None,
    ) -> None:
        self.config = config
        self.clock = ManualClock()
        self.model = Model()
        self.figures = Figures(runs=1)
        self._trace = trace
        disk.now_ms = self.clock.now_ms
        self.driver = Driver(
            disk, self.clock, config, self.model, chance, variant=variant, trace=trace
        )

    @property
    def disk(self) -> SimulatedDisk:
        return self.driver.disk

    def cut_after(self, steps: int | None) -> None:
        """The power ends after this many more disk operations; None: it stays on."""
        self.disk.power_ends_at = None if steps is None else self.disk.steps + steps

    def start(self, *, steps_max: int | None = None) -> None:
        """Open the store and check it; PowerCut after this many disk operations."""
        disk, model = self.disk, self.model
        check_documents(disk, model)
        was_closed, model.is_closed = model.is_closed, False
        if steps_max is not None:
            self.cut_after(steps_max)
        store = self.driver.open()
        if steps_max is not None:
            self.cut_after(None)
        if was_closed:
            check_closed_cleanly(store, model)
        check_opened(store, model)
        model.was_killed = model.lost_power = model.lost_cache = False
        # Consumers may have seen it by now.
        model.acknowledged_end = store.appended_end

    def check_second_start(self) -> None:
        store = self.driver.store
        assert store is not None
        check_second_start(self.disk, self.clock, self.config, store)

    def lose_power(self, fate: Fate) -> None:
        """`fate` decides what becomes of everything unsynced."""
        self._end_process()
        self._note(f"power failure: {fate.description}")
        self.driver.use(self.disk.after_power_failure(fate))
        self.model.lost_power = self.model.lost_cache = True
        self.figures.power_cuts += 1
        check_checkpoint_is_not_ahead(self.disk.contents(), self.model)

    def kill(self, *, keeps_all: bool = True) -> None:
        """The process is gone, but the page cache is not; with `keeps_all` it has all that was
        written."""
        self._end_process()
        self._note("killed: what was written stays")
        self.disk.steps = 0
        self.disk.revive()
        self.model.was_killed = True
        self.model.lost_cache |= not keeps_all
        self.figures.kills += 1

    def _end_process(self) -> None:
        self.disk.end_power()
        self.driver.abandon()
        self.figures.steps += self.disk.steps

    def scrap(self) -> None:
        """The very end: threads stop, whatever they were doing."""
        self.disk.is_dead = True
        self.driver.abandon()
        self.driver.threads.close()

    def _note(self, text: str) -> None:
        if self._trace is not None:
            self._trace(text)
