"""Short lives of a broker, cut after every single disk operation.

Seeds only sample; this tries everything: each script runs once to count its operations and then
again for each of them as the last one, with each of the simple fates and a few random ones; and the
following start is cut at each of its operations as well.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from aerobee.store.engine.tables.config_tables import TOPICS_PATH, TopicConfig, TopicTable
from aerobee.testing.power_failure import KEEP_ALL, LOSE_ALL, SIMPLE_FATES, Fate, draw_fate
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.simulated_power import PowerCut
from tests.simulation.judge import Violation
from tests.simulation.power_cuts.driver import Variant
from tests.simulation.power_cuts.machine import Figures, Machine
from tests.simulation.power_cuts.scenario import TINY

Script = Callable[[Machine], None]
_DRAWN_FATES = 3
_SECOND_CUTS_EVERY = 11


def _flush(machine: Machine) -> None:
    machine.clock.advance_ms(1_000)
    machine.driver.begin_flush()
    machine.driver.threads.drain(machine.disk)
    machine.driver.confirm()


def _first_life(machine: Machine) -> None:
    """From an empty folder, through two rolls and two checkpoints, to a clean stop."""
    driver = machine.driver
    machine.start()
    driver.append("Orders", 0, [100, 100], 0)
    _flush(machine)
    driver.append("Orders", 0, [300], 0)
    driver.append("T", 1, [300], 0)
    driver.prepare_segment()
    driver.threads.drain(machine.disk)
    driver.append("Orders", 0, [200, 10], 0)
    _flush(machine)
    driver.append("T", 1, [500], 0x4)
    _flush(machine)
    driver.close()


def _two_lives(machine: Machine) -> None:
    """A clean stop in between, so that a folder marked as closed is opened and used again."""
    driver = machine.driver
    machine.start()
    driver.append("Orders", 0, [400], 0)
    _flush(machine)
    driver.close()
    machine.start()
    driver.append("Orders", 0, [400], 0)
    _flush(machine)
    driver.append("Orders", 0, [30, 30, 30], 0)
    driver.close()


def _documents(machine: Machine) -> None:
    """A config file that is created, and replaced by a shorter and a longer one."""
    machine.start()
    for count in (3, 1, 8):
        table = TopicTable()
        for number in range(count):
            table.put(TopicConfig(name=f"Topic{number}"))
        machine.driver.replace_document(TOPICS_PATH, table.snapshot_bytes(count))
        machine.driver.threads.drain(machine.disk)
    machine.driver.close()


SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {"first life": _first_life, "two lives": _two_lives, "documents": _documents}
)


@dataclass(slots=True)
class _Tried:
    """`folders` are those on which a start was tried, each with the model's state. Most cuts and
    fates leave one that another has left before, and a start depends on nothing else."""

    variant: Variant
    figures: Figures = field(default_factory=Figures)
    folders: set[tuple[object, str]] = field(default_factory=set)

    def is_new(self, machine: Machine) -> bool:
        folder = machine.disk.state(), repr(machine.model)
        if folder in self.folders:
            return False
        self.folders.add(folder)
        return True


def run_exhaustively(name: str, variant: Variant) -> Figures:
    """Raises Violation, with the script, the cut and the fate that lead to it."""
    tried = _Tried(variant)
    script = SCRIPTS[name]
    machine = _machine(variant)
    script(machine)
    tried.figures.add(machine.figures)
    operations = machine.disk.steps
    machine.scrap()
    for cut in range(operations + 1):
        ended = _ended(script, variant, cut)
        fates: list[Fate | int] = [*SIMPLE_FATES, *range(_DRAWN_FATES)]
        for fate in fates:
            _try_start(tried, ended, cut, fate, None)
        if cut % _SECOND_CUTS_EVERY == 0:
            for fate in (LOSE_ALL, KEEP_ALL):
                second = 0
                while _try_start(tried, ended, cut, fate, second):
                    second += 1
    return tried.figures


def _machine(variant: Variant) -> Machine:
    config = replace(TINY, checkpoint_interval_ms=1_000)
    return Machine(SimulatedDisk(), config, random.Random(0), variant=variant, trace=None)


def _ended(script: Script, variant: Variant, cut: int) -> Machine:
    """The script with the power ending after `cut` operations, and nothing lost yet."""
    machine = _machine(variant)
    machine.cut_after(cut)
    with contextlib.suppress(PowerCut):
        script(machine)
    machine.scrap()
    return machine


def _twin(ended: Machine, variant: Variant) -> Machine:
    """Another machine in the same state. They share the disk, of which each power failure makes a
    new one."""
    machine = _machine(variant)
    machine.clock = machine.driver.clock = ended.clock
    machine.model = machine.driver.model = copy.deepcopy(ended.model)
    machine.driver.use(ended.disk)
    return machine


def _try_start(
    tried: _Tried, ended: Machine, cut: int, fate: Fate | int, second_cut: int | None
) -> bool:
    """Start on what `fate` leaves; a number is the seed of a random one. With `second_cut` the
    power ends again after this many operations of that start; returns False if it needs no more."""
    machine = _twin(ended, tried.variant)
    try:
        machine.lose_power(_fate_of(fate, machine))
        if second_cut is not None:
            try:
                machine.start(steps_max=second_cut)
            except PowerCut:
                machine.figures.cut_starts += 1
                machine.lose_power(_fate_of(fate, machine))
            else:
                return False
        if tried.is_new(machine):
            machine.start()
            machine.check_second_start()
    except Exception as error:
        raise Violation(
            f"cut after operation {cut}, start cut after {second_cut}, "
            f"fate {fate if isinstance(fate, int) else fate.description}: "
            f"{type(error).__name__}: {error}"
        ) from error
    finally:
        machine.scrap()
    tried.figures.add(machine.figures)
    return True


def _fate_of(fate: Fate | int, machine: Machine) -> Fate:
    if isinstance(fate, Fate):
        return fate
    promised, end = machine.disk.sequence_range
    return draw_fate(random.Random(fate), promised=promised, end=end, has_journal=fate % 2 == 0)
