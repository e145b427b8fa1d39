"""A slave whose power is cut at any moment: while it copies, cuts its log, or lets it begin anew.

One seed is one life of a slave under changing masters. Whatever happens, the next start finds the
beginning of what its master wrote, all that was flushed, and queues and keys that agree with it; a
log that was to begin anew is the old one or empties itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.replicas.closed_log import begin_log_at, cut_log
from aerobee.testing.power_failure import SIMPLE_FATES, Fate, draw_fate
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.simulated_power import PowerCut
from tests.support.indexes import INDEXED, append_keys, check_answers
from tests.support.replicas import log_bytes, replicate
from tests.support.stores import append, check_agreement, log_records, open_store

CONFIG = replace(
    INDEXED, segment_bytes=2048, consume_queue_entries_per_file=3, checkpoint_interval_ms=1
)
STEPS_PER_LIFE = 12


class Master:
    """Somebody's log, on a disk that never fails."""

    def __init__(self, chance: random.Random, begin: int, copied: bytes) -> None:
        disk = SimulatedDisk()
        begin_log_at(disk, CONFIG, begin)
        self._chance = chance
        self._clock = ManualClock()
        self.store = open_store(disk, CONFIG, self._clock)
        self.store.replicated.append(begin, copied)
        self.store.confirm(self.store.appended_end)
        self.store.replicated.begin()

    def grow(self) -> None:
        for _ in range(self._chance.randint(1, 8)):
            self._clock.advance_ms(self._chance.choice((0, 700, 5_000)))
            word = f"k{self._chance.randint(0, 9)}"
            if self._chance.random() < 0.5:
                append_keys(self.store, f"T{self._chance.randint(0, 2)}", word, f"{word} a b")
            else:
                size = self._chance.choice((10, 400, 600))
                append(self.store, "big", self._chance.randint(0, 2), bytes(size))

    @property
    def begin(self) -> int:
        return self.store.min_offset

    @property
    def data(self) -> bytes:
        return log_bytes(self.store)

    def record_ends(self, end: int) -> list[int]:
        ends = (record.physical_offset + record.size for record in log_records(self.store))
        return [self.begin, *(each for each in ends if each <= end)]


class Slave:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.has_journal = self.chance.random() < 0.7
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.master = Master(self.chance, 0, b"")
        self.store: MessageStore | None = None
        # What the log holds, and how much of it must survive.
        self.begin = 0
        self.data = b""
        self.safe_end = 0
        self.had_power_cut = False
        self.power_cuts = 0

    # ------------------------------------------------------------------------------ power

    def with_power(self, action: Callable[[], None]) -> bool:
        """Do it; False if the power was cut on the way."""
        cut = self.chance.random() < 0.35
        self.disk.power_ends_at = self.disk.steps + self.chance.randint(0, 40) if cut else None
        try:
            action()
        except PowerCut:
            self.fail()
            return False
        self.disk.power_ends_at = None
        return True

    def fail(self) -> None:
        promised, end = self.disk.sequence_range
        fate = draw_fate(self.chance, promised=promised, end=end, has_journal=self.has_journal)
        self.disk = self.disk.after_power_failure(fate)
        self.disk.now_ms = self.clock.now_ms
        self.store = None
        self.had_power_cut = True
        self.power_cuts += 1

    def open(self) -> MessageStore:
        """Until it succeeds; checked then."""
        if self.store is not None:
            return self.store
        while self.store is None:

            def start() -> None:
                self.store = open_store(self.disk, CONFIG, self.clock)

            if not self.with_power(start):
                self.store = None
        self.check(self.store)
        return self.store

    def check(self, store: MessageStore) -> None:
        assert store.min_offset == self.begin
        end = self.begin + len(self.data)
        safe_end = self.safe_end if self.had_power_cut else end
        assert safe_end <= store.appended_end <= end
        found = log_bytes(store)
        # What was past the end is not there any more.
        self.data = self.data[: len(found)]
        assert found == self.data
        self.safe_end = store.appended_end
        self.had_power_cut = False
        assert store.flushed_end == store.dispatched_end == store.appended_end
        check_agreement(store)
        check_answers(store)

    # ------------------------------------------------------------------------------ steps

    def copy(self) -> None:
        self.master.grow()
        whole = self.master.data

        def run() -> None:
            store = self.open_store
            position = store.replicated.begin()
            while position < self.master.store.appended_end:
                self.clock.advance_ms(1_000)
                at = position - self.begin
                chunk = whole[at : at + self.chance.choice((7, 150, 900))]
                # Of an interrupted append any part may be there.
                self.data = whole[: at + len(chunk)]
                end = store.replicated.append(position, chunk)
                position += len(chunk)
                self.data = whole[: end - self.begin]
                if self.chance.random() < 0.5:
                    store.confirm(self.chance.randint(store.confirmed_end, end))
                # Never a whole segment is unflushed, as in a broker.
                if self.chance.random() < 0.3 or store.unflushed_bytes > 200:
                    self.flush(store)

        self.with_power(run)

    @property
    def open_store(self) -> MessageStore:
        assert self.store is not None
        return self.store

    def flush(self, store: MessageStore) -> None:
        work = store.ledger.take_flush()
        if work is not None:
            work.run()
            store.ledger.finish_flush(work)
            self.safe_end = store.flushed_end
            if work.checkpoint is not None:
                work.checkpoint.run()
                store.ledger.finish_checkpoint(work.checkpoint)

    def stop(self) -> None:
        def run() -> None:
            self.open_store.close()
            self.safe_end = self.begin + len(self.data)

        if self.with_power(run):
            self.store = None

    def close(self) -> None:
        """Until it is closed in order."""
        self.open()
        self.stop()
        while self.store is not None or self.had_power_cut:
            self.open()
            self.stop()

    def kill(self) -> None:
        """The bytes stay in the page cache, so all of them are there; and may be lost later."""
        self.store = None
        self.disk.revive()

    def cut(self) -> None:
        """Another master, whose log left this one's at some record."""
        end = self.chance.choice(self.master.record_ends(self.begin + len(self.data)))
        new = Master(self.chance, self.begin, self.data[: end - self.begin])
        new.grow()
        safe_end = min(self.safe_end, end)

        def run() -> None:
            self.safe_end = safe_end
            cut_log(self.disk, CONFIG, end)
            self.data = self.data[: end - self.begin]

        while not self.with_power(run):
            self.close()
        self.master = new
        store = self.open()
        assert store.appended_end <= end

    def begin_anew(self) -> None:
        position = self.chance.choice((0, 1, 2, 5)) * CONFIG.segment_bytes
        new = Master(self.chance, position, b"")
        new.grow()

        def run() -> None:
            begin_log_at(self.disk, CONFIG, position)

        while not self.with_power(run):
            if self.chance.random() < 0.5:
                self.open_old_or_empty(position)
                self.stop_or_kill()
        self.master = new
        self.begin, self.data, self.safe_end = position, b"", position
        self.open()

    def open_old_or_empty(self, position: int) -> None:
        store = None
        while store is None:
            try:
                store = open_store(self.disk, CONFIG, self.clock)
            except PowerCut:
                self.fail()
        if store.appended_end == position == store.min_offset:
            self.begin, self.data, self.safe_end = position, b"", position
        self.store = store
        self.check(store)

    def stop_or_kill(self) -> None:
        if self.store is None:
            return
        if self.chance.random() < 0.5:
            self.stop()
        if self.store is not None:
            self.kill()

    # ------------------------------------------------------------------------------ life

    def live(self) -> None:
        self.open()
        for _ in range(STEPS_PER_LIFE):
            self.open()
            self.copy()
            step = self.chance.random()
            if step < 0.15:
                self.close()
                self.cut()
            elif step < 0.25:
                # As on a full disk, where it cannot be closed in order.
                self.stop_or_kill()
                self.cut()
            elif step < 0.45:
                self.stop_or_kill()
                self.begin_anew()
            elif step < 0.7:
                self.stop_or_kill()
        store = self.open()
        replicate(self.master.store, store)
        assert log_bytes(store) == self.master.data


def grown_slave(chance: random.Random) -> tuple[SimulatedDisk, Master]:
    """Closed, with everything of the master's that fills a few segments."""
    master = Master(chance, 0, b"")
    while len(master.store.log.segments()) < 5:
        master.grow()
    disk = SimulatedDisk()
    store = open_store(disk, CONFIG)
    replicate(master.store, store)
    store.close()
    return disk, master


def fates(disk: SimulatedDisk, count: int) -> list[Fate]:
    promised, end = disk.sequence_range
    return [
        *SIMPLE_FATES,
        *(
            draw_fate(random.Random(seed), promised=promised, end=end, has_journal=seed % 4 == 0)
            for seed in range(count)
        ),
    ]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("change", [cut_log, begin_log_at])
def test_a_change_of_the_log_may_be_cut_short_at_any_step(
    change: Callable[[SimulatedDisk, StoreConfig, int], None],
) -> None:
    origin, master = grown_slave(random.Random(7))
    whole = master.data
    end = master.record_ends(3_000)[-1] if change is cut_log else 8192
    for step in range(200):
        reached = False
        for number in range(len(SIMPLE_FATES) + 8):
            disk = origin.copy()
            disk.power_ends_at = disk.steps + step
            try:
                change(disk, CONFIG, end)
                reached = True
            except PowerCut:
                pass
            store = open_store(disk.after_power_failure(fates(disk, 8)[number]), CONFIG)
            ends = store.min_offset, store.appended_end
            if change is cut_log:
                assert ends == (0, end) if reached else end <= ends[1] <= len(whole)
            else:
                assert ends == (end, end) or (ends == (0, len(whole)) and not reached)
            assert log_bytes(store) == whole[store.min_offset : store.appended_end]
            check_agreement(store)
            check_answers(store)
        if reached:
            assert step > 10
            return
    pytest.fail("it takes more than 200 steps")


def run_seeds(seeds: range) -> int:
    power_cuts = 0
    for seed in seeds:
        slave = Slave(seed)
        try:
            slave.live()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        power_cuts += slave.power_cuts
    return power_cuts


@pytest.mark.thorough
def test_no_power_cut_harms_a_slave() -> None:
    assert run_seeds(range(30)) > 60


@pytest.mark.long
def test_no_power_cut_harms_a_slave_in_many_lives() -> None:
    assert run_seeds(range(1_000, 1_200)) > 500
