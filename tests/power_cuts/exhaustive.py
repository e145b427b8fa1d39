"""Short lives of a broker, cut after each single operation of the disk.

Where a seed samples, this tries everything: each script runs once to count its operations and then
again for each of them as the last one, with each of the simple fates and a few drawn ones; and the
start that follows is cut at each of its operations as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from aerobee.broker.store.tables.config_tables import TOPICS_PATH, TopicConfig, TopicTable
from tests.power_cuts.driver import Variant
from tests.power_cuts.machine import Figures, Machine
from tests.power_cuts.model import Violation
from tests.power_cuts.scenario import TINY
from tests.support.power_failure import KEEP_ALL, LOSE_ALL, SIMPLE_FATES, Fate, draw_fate
from tests.support.simulated_disk import SimulatedDisk
from tests.support.simulated_power import PowerCut

Script = Callable[[Machine], None]
_DRAWN_FATES = 3
_SECOND_CUTS_EVERY = 11


def _flush(machine: Machine) -> None:
    machine.clock.advance_ms(1_000)
    machine.driver.begin_flush()
    machine.driver.threads.drain(machine.disk)
    machine.driver.confirm()


def _first_life(machine: Machine) -> None:
    """From an empty folder over two rolls and two checkpoints to a clean stop."""
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
    """A clean stop in between, so that a marked-closed folder is opened and used again."""
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
    """A config file that comes to be, and is replaced by a shorter and a longer one."""
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


def run_exhaustively(name: str, variant: Variant) -> Figures:
    """Raises Violation, with the script, the cut and the fate that lead to it."""
    figures = Figures()
    script = SCRIPTS[name]
    machine = _machine(variant)
    script(machine)
    figures.add(machine.figures)
    operations = machine.disk.steps
    machine.scrap()
    for cut in range(operations + 1):
        fates: list[Fate | int] = [*SIMPLE_FATES, *range(_DRAWN_FATES)]
        for fate in fates:
            figures.add(_run_cut(script, variant, cut, fate, None))
        if cut % _SECOND_CUTS_EVERY == 0:
            for fate in (LOSE_ALL, KEEP_ALL):
                second = 0
                while (more := _run_cut(script, variant, cut, fate, second)).cut_starts:
                    figures.add(more)
                    second += 1
    return figures


def _machine(variant: Variant) -> Machine:
    config = replace(TINY, checkpoint_interval_ms=1_000)
    return Machine(SimulatedDisk(), config, random.Random(0), variant=variant, trace=None)


def _run_cut(
    script: Script, variant: Variant, cut: int, fate: Fate | int, second_cut: int | None
) -> Figures:
    """The script with its power ending after `cut` operations, and that of the start that follows
    after `second_cut`; a number as fate is the seed of a drawn one."""
    machine = _machine(variant)
    try:
        machine.cut_after(cut)
        try:
            script(machine)
        except PowerCut:
            machine.figures.cut_starts = 0
        machine.lose_power(_fate_of(fate, machine))
        try:
            machine.start(steps_max=second_cut)
        except PowerCut:
            machine.figures.cut_starts += 1
            machine.lose_power(_fate_of(fate, machine))
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
    return machine.figures


def _fate_of(fate: Fate | int, machine: Machine) -> Fate:
    if isinstance(fate, Fate):
        return fate
    promised, end = machine.disk.sequence_range
    return draw_fate(random.Random(fate), promised=promised, end=end, has_journal=fate % 2 == 0)
