"""A removal that ends anywhere, by a kill or by a power failure, leaves a store that opens."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.flush_work import CheckpointWork
from aerobee.store.engine.message_store import MessageStore
from aerobee.testing.power_failure import draw_fate
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.simulated_power import PowerCut
from tests.support.retention import COMMAND, COMMAND_UNREAD, clean_here, fill, settle, take_removal
from tests.support.stores import append, check_agreement, flush, log_records, open_store, read_queue

pytestmark = pytest.mark.many_files
SEGMENTS = 3


class Scenario:
    """A store with several segments and queue files, one queue without messages in most of them."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = ManualClock()
        self.store = open_store(self.disk, clock=self.clock)
        append(self.store, "Rare", 0, b"first")
        fill(self.store, 25, queues=2)
        settle(self.store, self.clock)
        fill(self.store, 20, queues=1)
        append(self.store, "Rare", 0, b"second")
        settle(self.store, self.clock)
        # A little that no checkpoint knows.
        fill(self.store, 3, queues=2)
        self.clock.advance_ms(1_000)
        flush(self.store)
        self.records = log_records(self.store)
        # So many of them are on the disk.
        self.safe_count = len(self.records)

    def clean(self) -> None:
        """Two removals, a checkpoint, and another removal."""
        assert clean_here(self.store.retention, request=COMMAND, segments_max=SEGMENTS - 1)
        settle(self.store, self.clock)
        clean_here(self.store.retention, request=COMMAND_UNREAD, segments_max=1)

    def clean_while_others_work(self) -> None:
        """Removals between the taking and the running of a checkpoint, and the other way round, as
        one thread runs what the loop took."""
        retention = self.store.retention
        for checkpoint_comes_first in (True, False, True):
            removal = take_removal(self.store)
            assert removal is not None
            first = self._take_checkpoint()
            removal.run()
            follow = retention.finish_removal(removal)
            assert follow is not None
            if checkpoint_comes_first:
                self._finish(first)
                second = self._take_checkpoint()
                follow.run()
                self._finish(second)
            else:
                follow.run()
                self._finish(first)
            retention.finish_follow(follow)
        settle(self.store, self.clock)

    def _take_checkpoint(self) -> CheckpointWork:
        """As the flush does it, with a message that makes it worth it."""
        append(self.store, "Orders", 1, b"more")
        self.records.append(log_records(self.store)[-1])
        self.clock.advance_ms(StoreConfig().checkpoint_interval_ms)
        work = self.store.ledger.take_flush()
        assert work is not None
        assert work.checkpoint is not None
        work.run()
        self.safe_count = len(self.records)
        self.store.ledger.finish_flush(work)
        return work.checkpoint

    def _finish(self, checkpoint: CheckpointWork) -> None:
        checkpoint.run()
        self.store.ledger.finish_checkpoint(checkpoint)

    def check(self, store: MessageStore) -> None:
        """All that was safe and not removed is there, in order, and the queues agree."""
        found = [record.raw for record in log_records(store)]
        first = next(
            index
            for index, record in enumerate(self.records)
            if record.physical_offset == store.min_offset
        )
        assert store.min_offset <= SEGMENTS * 4096
        assert first + len(found) >= self.safe_count
        kept = self.records[: first + len(found)]
        assert found == [record.raw for record in kept[first:]]
        check_agreement(store)
        ends = {(record.topic, record.queue_id): record.queue_offset + 1 for record in kept}
        for name, end in ends.items():
            assert store.queues.bounds(*name).max_offset == end
            read_queue(store, *name)


Clean = Callable[[Scenario], None]
WAYS = pytest.mark.parametrize("clean", [Scenario.clean, Scenario.clean_while_others_work])


def steps_of_cleaning(clean: Clean) -> int:
    scenario = Scenario()
    before = scenario.disk.steps
    clean(scenario)
    return scenario.disk.steps - before


def cut_at(step: int, clean: Clean) -> Scenario:
    scenario = Scenario()
    scenario.disk.power_ends_at = scenario.disk.steps + step
    try:
        clean(scenario)
    except PowerCut:
        return scenario
    raise AssertionError(f"there is no step {step}")


def go_on(scenario: Scenario, disk: SimulatedDisk) -> None:
    """What was recovered can be written to, cleaned further, closed and opened once more."""
    store = open_store(disk, clock=scenario.clock)
    scenario.check(store)
    assert append(store, "Rare", 0, b"third").base_queue_offset == 2
    settle(store, scenario.clock)
    clean_here(store.retention, request=COMMAND_UNREAD, segments_max=100)
    assert len(store.log.segments()) == 1
    check_agreement(store)
    rare = read_queue(store, "Rare", 0)
    assert rare[-1] == b"third"
    store.close()
    store = open_store(disk, clock=scenario.clock)
    assert store.recovery.clean
    assert store.recovery.rebuilt_queues == ()
    assert read_queue(store, "Rare", 0) == rare
    check_agreement(store)
    store.close()


@pytest.mark.thorough
@WAYS
def test_a_kill_at_any_step_of_cleaning_leaves_a_store_that_opens_and_rebuilds_nothing(
    clean: Clean,
) -> None:
    steps = steps_of_cleaning(clean)
    assert steps > 15
    for step in range(steps):
        scenario = cut_at(step, clean)
        scenario.disk.revive()
        store = open_store(scenario.disk, clock=scenario.clock)
        assert not store.recovery.clean
        assert store.recovery.rebuilt_queues == (), f"step {step}"
        scenario.check(store)
        scenario.disk.end_power()
        scenario.disk.revive()
        go_on(scenario, scenario.disk)


@pytest.mark.thorough
@WAYS
@pytest.mark.parametrize("has_journal", [True, False])
def test_a_power_failure_at_any_step_of_cleaning_loses_nothing_that_was_kept(
    has_journal: bool, clean: Clean
) -> None:
    chance = random.Random(4)
    for step in range(steps_of_cleaning(clean)):
        scenario = cut_at(step, clean)
        promised, end = scenario.disk.sequence_range
        fate = draw_fate(chance, promised=promised, end=end, has_journal=has_journal)
        try:
            go_on(scenario, scenario.disk.after_power_failure(fate))
        except BaseException as error:
            error.add_note(f"step {step}, {fate.description}")
            raise


@pytest.mark.thorough
@WAYS
def test_what_was_being_removed_when_the_power_failed_goes_with_the_next_removal(
    clean: Clean,
) -> None:
    for step in range(steps_of_cleaning(clean)):
        scenario = cut_at(step, clean)
        scenario.disk.revive()
        store = open_store(scenario.disk, clock=scenario.clock)
        fill(store, 40, queues=1)
        settle(store, scenario.clock)
        clean_here(store.retention, request=COMMAND_UNREAD, segments_max=100)
        bounds = store.queues.bounds("Orders", 0)
        names = [entry.name for entry in scenario.disk.list("consumequeue/Orders/0")]
        assert int(names[0]) // 20 <= bounds.min_offset < int(names[0]) // 20 + 10, f"step {step}"
        store.close()
