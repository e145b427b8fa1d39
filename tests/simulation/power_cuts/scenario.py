"""One seed: a broker's random life with power cuts in it, checked after each of them.

Everything follows from the seed: the sizes of the files, what the broker does and in which order
its threads progress, after which disk operation the power ends, what the disk then has, and whether
the next start is cut as well.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import replace

from aerobee.runtime.errors import StoreFailed
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.errors import StoreUnusable
from aerobee.store.engine.retention.retention_config import RetentionConfig
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    TOPICS_PATH,
    ConsumerOffsetTable,
    TopicConfig,
    TopicTable,
)
from aerobee.testing.power_failure import draw_fate
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.simulated_power import PowerCut
from tests.simulation.power_cuts.driver import Trace, Variant
from tests.simulation.power_cuts.machine import Figures, Machine

TINY = StoreConfig(
    segment_bytes=1024,
    consume_queue_entries_per_file=3,
    index_slots_max=7,
    index_entries_max=20,
    warm_up_segments=True,
    disk_free_bytes_min=0,
    retention=RetentionConfig(file_reserved_hours=0),
)
_TOPICS = ("Orders", "Payments", "T")
_PREPARED, _COMMITTED, _ROLLED_BACK = 0x4, 0x8, 0xC
_STARTS_CUT_MAX = 4
_MANY_QUEUES = 36
_FAULT_SHARE = 0.01

Fault = Callable[[str, str], OSError | None]


def draw_config(chance: random.Random, *, has_journal: bool) -> StoreConfig:
    """Small files, so that a few records roll them.

    Without a journal a second segment may reach the disk before the first, if neither is flushed;
    with default sizes that never happens, as the limit of unflushed bytes is smaller than a
    segment."""
    segment_bytes = chance.choice((1024, 1024, 1500, 4096, 12_288))
    return replace(
        TINY,
        segment_bytes=segment_bytes,
        unflushed_bytes_max=256 << 20 if has_journal else segment_bytes * 3 // 4,
        consume_queue_entries_per_file=chance.choice((2, 3, 10)),
        index_slots_max=chance.choice((3, 50)),
        index_entries_max=chance.choice((5, 20, 300)),
        index_pending_bytes_max=chance.choice((200, 16 << 20)),
        queue_checks_at_start_max=chance.choice((0, 2, 1_000)),
        queue_tail_bytes_max=chance.choice((60, 100, 8 << 20)),
        checkpoint_interval_ms=chance.choice((1, 1_000, 5_000)),
        recovery_chunk_bytes=chance.choice((150, 1 << 20)),
        recovery_tail_bytes_max=chance.choice((60, 64 << 20)),
    )


class Scenario:
    def __init__(self, seed: int, *, variant: Variant, trace: Trace | None = None) -> None:
        self._chance = chance = random.Random(seed)
        self._has_journal = chance.random() < 0.5
        disk = SimulatedDisk()
        disk.finds_holes = chance.random() < 0.8
        disk.syncs_all = chance.random() < 0.5
        self.config = draw_config(chance, has_journal=self._has_journal)
        self.machine = Machine(disk, self.config, chance, variant=variant, trace=trace)
        self._driver = driver = self.machine.driver
        driver.confirms_appended = chance.random() < 0.3
        driver.threads.intrusion = chance.choice((0.0, 0.1, 0.4))
        self._has_faults = chance.random() < 0.1
        self._had_fault = False
        self._trace = trace
        self._offsets = ConsumerOffsetTable()
        self._topics = TopicTable()
        self._size_max = min(3_000, self.config.segment_bytes // 4)
        self._actions: list[tuple[Callable[[], None], int]] = [
            (self._append, chance.choice((6, 12))),
            (driver.confirm, 4),
            (driver.begin_flush, 4),
            (driver.advance_threads, chance.choice((4, 10))),
            (driver.deliver, 5),
            (driver.prepare_segment, chance.choice((0, 2))),
            (self._end_topic, chance.choice((0, 0, 1, 2))),
            (self._append_to_many, chance.choice((0, 0, 0, 0, 0, 0, 1))),
            (driver.clean, chance.choice((0, 0, 2))),
            (self._pass_time, 2),
            (self._replace_document, chance.choice((0, 1))),
        ]
        journal = "a journal" if self._has_journal else "no journal"
        faults = "operations that fail" if self._has_faults else "no failing operations"
        self._note(f"{journal}, {faults}, {self.config}")

    def run(self) -> Figures:
        """Raises Violation; anything else raised is a defect as well."""
        machine = self.machine
        try:
            for _ in range(self._chance.choice((1, 2, 2, 3, 4))):
                self._start()
                try:
                    self._work()
                    self._stop()
                except (PowerCut, StoreFailed) as end:
                    self._end(end)
            self._set_fault(None)
            machine.start()
            machine.check_second_start()
        finally:
            machine.scrap()
        return machine.figures

    # ------------------------------------------------------------------------------ life

    def _start(self) -> None:
        """Open the store, however often that is interrupted."""
        for _ in range(self._chance.choice((0, 0, 0, 1, 1, 2, _STARTS_CUT_MAX))):
            try:
                self.machine.start(steps_max=self._chance.randint(0, 25))
            except (PowerCut, StoreUnusable) as end:
                self.machine.figures.cut_starts += 1
                self._end(end)
            else:
                break
        else:
            self._set_fault(None)
            self.machine.start()
        if self._has_faults:
            self._set_fault(self._fault)
        # A start on a full disk keeps in memory what a later one writes.
        if self._chance.random() < 0.1 and not self._had_fault:
            self.machine.check_second_start()

    def _stop(self) -> None:
        """The end of this part of the scenario if the power did not end before."""
        how = self._chance.random()
        if how < 0.4:
            raise PowerCut
        if how < 0.7:
            self.machine.cut_after(self._chance.randint(0, 40))
        self._driver.close()
        self.machine.cut_after(None)
        # With a full disk the last entries may have stayed in memory.
        self.machine.model.is_closed = not self._had_fault
        self.machine.figures.clean_stops += 1
        if self._chance.random() < 0.7:
            raise PowerCut

    def _end(self, cause: BaseException) -> None:
        """The process is gone, and usually the page cache with it."""
        if not isinstance(cause, PowerCut) and not self._had_fault:
            raise cause
        had_fault, self._had_fault = self._had_fault, False
        if self._chance.random() < (0.6 if self._has_faults else 0.15):
            # What a failed sync left only in the page cache is not shown again.
            self.machine.kill(keeps_all=not had_fault)
            return
        promised, end = self.machine.disk.sequence_range
        fate = draw_fate(self._chance, promised=promised, end=end, has_journal=self._has_journal)
        self.machine.lose_power(fate)

    # ------------------------------------------------------------------------------ faults

    def _note(self, text: str) -> None:
        if self._trace is not None:
            self._trace(text)

    def _set_fault(self, fault: Fault | None) -> None:
        self._driver.fault = self.machine.disk.fault = fault

    def _fault(self, operation: str, path: str) -> OSError | None:
        """Sometimes the disk is full, or a sync fails."""
        if self._chance.random() >= _FAULT_SHARE:
            return None
        number = errno.EIO if "sync" in operation else errno.ENOSPC
        self._had_fault = True
        self._note(f"{operation} of {path or 'the root'} fails: {errno.errorcode[number]}")
        return OSError(number, os.strerror(number), path)

    # ------------------------------------------------------------------------------ actions

    def _work(self) -> None:
        if self._chance.random() < 0.6:
            self.machine.cut_after(self._chance.randint(0, 150))
        actions, weights = zip(*self._actions, strict=True)
        for act in self._chance.choices(actions, weights, k=self._chance.choice((5, 20, 60))):
            act()
            self._driver.check_not_failed()
        self.machine.figures.records += len(self.machine.model.sent)

    def _append(self) -> None:
        chance = self._chance
        count = chance.choice((1, 1, 1, 2, 3, 10))
        size_max = max(0, min(self._size_max, self.config.segment_bytes * 3 // 4 // count - 200))
        self._driver.append(
            chance.choice(_TOPICS),
            chance.choice((0, 0, 0, 1, 2)),
            [chance.randint(0, size_max) for _ in range(count)],
            chance.choice((0, 0, 0, _PREPARED, _COMMITTED, _ROLLED_BACK)),
        )

    def _append_to_many(self) -> None:
        """So many queues that they are not synced one by one."""
        for queue_id in range(_MANY_QUEUES):
            self._driver.append("Wide", queue_id, [self._chance.randint(0, 20)], 0)

    def _end_topic(self) -> None:
        self._driver.end_topic(self._chance.choice((*_TOPICS, "Wide")))

    def _pass_time(self) -> None:
        if self._chance.random() < 0.1:
            self.machine.clock.step_wall_ms(self._chance.randint(-5_000, 5_000))
        else:
            self.machine.clock.advance_ms(self._chance.choice((0, 1, 500, 4_000)))

    def _replace_document(self) -> None:
        now_ms = self.machine.clock.now_ms()
        if self._chance.random() < 0.5:
            for _ in range(self._chance.choice((1, 5, 40))):
                group = f"group{self._chance.randint(0, 20)}"
                offset = self._chance.randint(0, 1 << 40)
                self._offsets.commit(group, "Orders", self._chance.randint(0, 7), offset)
            self._driver.replace_document(
                CONSUMER_OFFSETS_PATH, self._offsets.snapshot_bytes(now_ms)
            )
        else:
            name = f"Topic{self._chance.randint(0, 30)}"
            if not self._topics.remove(name):
                self._topics.put(TopicConfig(name=name, revision=self._chance.randint(0, 1 << 30)))
            self._driver.replace_document(TOPICS_PATH, self._topics.snapshot_bytes(now_ms))


def run_seed(seed: int, *, variant: Variant | None = None, trace: Trace | None = None) -> Figures:
    """Raises what is wrong."""
    return Scenario(seed, variant=variant or Variant(), trace=trace).run()
