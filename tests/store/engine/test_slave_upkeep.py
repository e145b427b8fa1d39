"""What a store does beside its appends, where these are copies of a master's: the same as there."""

from __future__ import annotations

from pathlib import Path

from aerobee.runtime.clock import ManualClock
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.support.replicas import check_equal, log_bytes, replicate
from tests.support.retention import (
    RETAINED,
    expire,
    fill,
    finish,
    open_retained,
    settle,
    take_removal,
)
from tests.support.stores import append, check_agreement, open_store, read_queue


def test_a_segment_that_was_made_ready_is_taken_where_the_masters_begins() -> None:
    master, disk = open_store(SimulatedDisk()), SimulatedDisk()
    for _ in range(3):
        append(master, "A", 0, bytes(1500))
    data = log_bytes(master)
    slave = open_store(disk)
    slave.replicated.append(0, data[:3_500])
    work = slave.supply.take_prepare()
    assert work is not None
    work.run()
    slave.supply.finish_prepare(work)
    allocations: list[str] = []
    disk.trace = allocations.append
    slave.replicated.append(3_500, data[3_500:])
    assert not [line for line in allocations if " allocate " in line]
    slave.confirm(slave.appended_end)
    check_equal(master, slave)


def test_retention_takes_a_slaves_oldest_segment_and_leaves_the_rest_equal(tmp_path: Path) -> None:
    clock = ManualClock()
    master = open_retained(tmp_path / "master", clock)
    fill(master, 20)
    slave = open_retained(tmp_path / "slave", clock)
    replicate(master, slave, [1_000] * 30)
    settle(slave, clock)
    expire(tmp_path / "slave", clock)
    removal = take_removal(slave)
    assert removal is not None
    removal.run()
    finish(slave, removal)
    assert slave.min_offset == RETAINED.segment_bytes
    check_agreement(slave)
    fill(master, 10)
    replicate(master, slave, [777] * 30)
    assert log_bytes(slave) == log_bytes(master, slave.min_offset)
    check_agreement(slave)


def test_retention_keeps_what_is_not_confirmed(tmp_path: Path) -> None:
    clock = ManualClock()
    master = open_retained(tmp_path / "master", clock)
    fill(master, 20)
    slave = open_retained(tmp_path / "slave", clock)
    replicate(master, slave, confirm=False)
    settle(slave, clock)
    expire(tmp_path / "slave", clock)
    assert take_removal(slave) is None
    slave.confirm(slave.appended_end)
    settle(slave, clock)
    check_equal(master, slave)
    assert len(read_queue(slave, "Orders", 0)) == 10
