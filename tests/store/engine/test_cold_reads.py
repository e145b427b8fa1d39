"""Reads that the page cache does not answer: never on the loop, and right whatever is removed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.disk import Advice
from aerobee.store.engine.errors import EntryMismatch
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queue_reads import QueueRead
from aerobee.store.engine.queues.reading import GetStatus
from aerobee.store.engine.read_work import ReadOutcome, ReadWork
from aerobee.store.format.record import iterate_records
from tests.support.cold_disk import ColdDisk
from tests.support.stores import SMALL, append, flush, open_store

MIB = 1024 * 1024
BODY = 1_000  # three to a segment of 4096 bytes


def fill(store: MessageStore, messages: int, *, size: int = BODY) -> list[bytes]:
    bodies = [b"%06d" % number + bytes(size - 6) for number in range(messages)]
    for body in bodies:
        append(store, "Orders", 0, body)
    flush(store)
    return bodies


def read(
    store: MessageStore, offset: int, *, max_bytes: int = 1 << 20, reader: str = "g"
) -> tuple[ReadOutcome, bool]:
    """One read as the broker does it; whether it had to wait."""
    wanted = QueueRead("Orders", 0, offset, max_bytes, 1_000, None, reader)
    found = store.reads.read(wanted)
    if isinstance(found, ReadOutcome):
        return found, False
    found.run()
    return store.reads.finish(wanted, found), True


def bodies_of(outcome: ReadOutcome) -> list[bytes]:
    return [record.body for record in iterate_records(outcome.records)]


def remove_oldest(store: MessageStore, root: Path) -> None:
    """What retention does to the log, at the same moments."""
    segment = store.log.drop_oldest()
    (root / segment.path).unlink()


@pytest.fixture
def disk(tmp_path: Path) -> ColdDisk:
    return ColdDisk(tmp_path)


def test_a_cold_queue_file_and_a_cold_log_are_read_by_a_work(disk: ColdDisk) -> None:
    store = open_store(disk)
    bodies = fill(store, 9)
    store.close()
    store = open_store(disk)  # nothing of the queue is in the store's own memory
    disk.reading_threads.clear()
    disk.gate.clear()  # whoever waits for the disk here would wait for ever
    found = store.reads.read(QueueRead("Orders", 0, 0, 1 << 20, 100, None, "g"))
    assert isinstance(found, ReadWork)
    disk.gate.set()
    assert bodies_of(found.run()) == bodies
    outcome, waited = read(store, 4)
    assert waited
    assert bodies_of(outcome) == bodies[4:]
    assert (outcome.located.next_offset, outcome.located.max_offset) == (9, 9)


def test_the_tail_of_queue_and_log_needs_no_work(tmp_path: Path) -> None:
    store = open_store(ColdDisk(tmp_path, lambda path: not path.startswith("commitlog")))
    append(store, "Orders", 0, b"x")
    outcome, waited = read(store, 0)
    assert not waited
    assert bodies_of(outcome) == [b"x"]


def test_a_work_taken_before_its_segment_was_removed_goes_on_behind_it(
    disk: ColdDisk, tmp_path: Path
) -> None:
    store = open_store(disk)
    bodies = fill(store, 12)
    found = store.reads.read(QueueRead("Orders", 0, 1, 1 << 20, 100, None, "g"))
    assert isinstance(found, ReadWork)
    remove_oldest(store, tmp_path)
    remove_oldest(store, tmp_path)
    outcome = found.run()
    assert outcome.located.status is GetStatus.FOUND
    assert bodies_of(outcome) == bodies[6:]
    assert outcome.located.next_offset == 12


def test_if_everything_wanted_was_removed_the_reader_is_sent_on(
    disk: ColdDisk, tmp_path: Path
) -> None:
    store = open_store(disk)
    bodies = fill(store, 12)
    wanted = QueueRead("Orders", 0, 0, 2_500, 2, None, "g")
    found = store.reads.read(wanted)
    assert isinstance(found, ReadWork)
    remove_oldest(store, tmp_path)
    outcome = found.run()
    assert outcome.located.status in {GetStatus.MESSAGE_WAS_REMOVING, GetStatus.FOUND}
    seen: list[bytes] = []
    while outcome.located.next_offset < 12:
        outcome, _ = read(store, outcome.located.next_offset)
        seen += bodies_of(outcome)
    assert seen[-9:] == bodies[3:]


def test_a_file_that_vanished_without_the_store_knowing_ends_no_read_with_an_error(
    disk: ColdDisk, tmp_path: Path
) -> None:
    store = open_store(disk)
    bodies = fill(store, 12)
    names = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    (tmp_path / "commitlog" / names[1]).unlink()
    before, _ = read(store, 0)
    assert bodies_of(before) == bodies[:3]
    assert before.located.next_offset == 3
    behind, _ = read(store, 3, max_bytes=3_500)
    assert bodies_of(behind) == bodies[6:9]
    within, _ = read(store, 3, max_bytes=1)
    assert within.located.status is GetStatus.MESSAGE_WAS_REMOVING
    assert 3 < within.located.next_offset <= 12


def test_a_reader_with_its_segment_open_reads_on_while_it_is_removed(
    disk: ColdDisk, tmp_path: Path
) -> None:
    store = open_store(disk, replace(SMALL, hot_tail_bytes=1))
    bodies = fill(store, 12)
    read(store, 0, max_bytes=1_200)
    found = store.reads.read(QueueRead("Orders", 0, 1, 1_200, 1, None, "g"))
    assert isinstance(found, ReadWork)
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    assert bodies_of(found.run()) == bodies[1:2]
    store.log.drop_oldest()
    store.reads.tidy()  # and lets go of it
    later, _ = read(store, 2, max_bytes=1)
    assert later.located.status is GetStatus.MESSAGE_WAS_REMOVING


@pytest.mark.parametrize("messages_max", [2, 12])
@pytest.mark.parametrize("is_cold", [False, True])
def test_an_entry_that_leads_to_another_topics_message_is_an_error_and_no_message(
    tmp_path: Path, messages_max: int, is_cold: bool
) -> None:
    measure = open_store(tmp_path / "measure")
    append(measure, "Mine", 0, b"")
    body = bytes(128 - measure.appended_end)  # so that a flipped bit leads to a record again
    measure.close()
    root = tmp_path / "store"
    store = open_store(root)
    for _ in range(20):
        append(store, "Mine", 0, body)
        append(store, "Evil", 0, body, body, body)
    store.close()
    file = next((root / "consumequeue" / "Mine" / "0").iterdir())
    entries = bytearray(file.read_bytes())
    entries[5 * 20 + 7] ^= 0x80
    file.write_bytes(entries)
    disk = ColdDisk(root, lambda path: is_cold)
    store = open_store(disk, replace(SMALL, queue_checks_at_start_max=0))

    def read_mine(offset: int, messages: int) -> list[bytes]:
        found = store.reads.read(QueueRead("Mine", 0, offset, MIB, messages))
        return bodies_of(found.run() if isinstance(found, ReadWork) else found)

    assert read_mine(0, 5) == [body] * 5
    with pytest.raises(EntryMismatch, match="Mine"):
        read_mine(4, messages_max)


def test_a_disk_error_reaches_whoever_runs_the_work(disk: ColdDisk) -> None:
    store = open_store(disk)
    fill(store, 9)
    disk.read_error = OSError(5, "Input/output error")
    found = store.reads.read(QueueRead("Orders", 0, 0, 1 << 20, 100, None, "g"))
    assert isinstance(found, ReadWork)
    with pytest.raises(OSError, match="Input/output error"):
        found.run()


# ---------------------------------------------------------------------------------- far behind


def catch_up_store(disk: ColdDisk, *, evict: bool = True) -> MessageStore:
    config = replace(
        SMALL,
        segment_bytes=16 * MIB,
        consume_queue_entries_per_file=1_000,
        hot_tail_bytes=8 * MIB,
        evict_catch_up_reads=evict,
    )
    store = open_store(disk, config, ManualClock())
    fill(store, 48, size=MIB)
    return store


def walk(store: MessageStore, start: int, end: int, *, reader: str = "g") -> None:
    for offset in range(start, end):
        wanted = QueueRead("Orders", 0, offset, MIB + 200, 1, None, reader)
        found = store.reads.read(wanted)
        if isinstance(found, ReadWork):
            found.run()
            store.reads.finish(wanted, found)
        advice = store.reads.take_advice(wanted)
        if advice is not None:
            advice.run()


def ranges(disk: ColdDisk, advice: Advice) -> list[tuple[int, int]]:
    return [
        (int(path.rpartition("/")[2]) + offset, size)
        for path, offset, size, given in disk.advices
        if given is advice
    ]


def test_a_walking_reader_is_read_ahead_for_and_what_it_passed_is_given_back(
    disk: ColdDisk,
) -> None:
    store = catch_up_store(disk)
    walk(store, 0, 48)
    ahead, passed = ranges(disk, Advice.WILL_NEED), ranges(disk, Advice.DONT_NEED)
    assert ahead
    assert passed
    hot_start = store.appended_end - 8 * MIB
    assert max(start + size for start, size in passed) <= hot_start
    sealed_end = store.log.segments()[-1].base
    assert max(start + size for start, size in ahead) <= sealed_end
    for advised in (ahead, passed):  # nothing twice
        assert all(first + size <= second for (first, size), (second, _) in pairwise(advised))


def test_nothing_is_given_back_while_another_group_is_behind_it(disk: ColdDisk) -> None:
    store = catch_up_store(disk)
    walk(store, 0, 2, reader="slow")
    walk(store, 0, 30, reader="fast")
    assert ranges(disk, Advice.DONT_NEED) == []
    walk(store, 2, 30, reader="slow")
    assert ranges(disk, Advice.DONT_NEED)


def test_giving_back_can_be_switched_off(disk: ColdDisk) -> None:
    store = catch_up_store(disk, evict=False)
    walk(store, 0, 48)
    assert ranges(disk, Advice.WILL_NEED)
    assert ranges(disk, Advice.DONT_NEED) == []


def test_a_single_read_leaves_no_trace(disk: ColdDisk) -> None:
    store = catch_up_store(disk)
    walk(store, 0, 20, reader="")
    assert ranges(disk, Advice.WILL_NEED) == []
    assert not store.reads.is_behind(QueueRead("Orders", 0, 3, MIB, 1))


def test_a_reader_counts_as_behind_until_it_has_caught_up(disk: ColdDisk) -> None:
    store = catch_up_store(disk)
    wanted = QueueRead("Orders", 0, 0, MIB, 1, None, "g")
    assert not store.reads.is_behind(wanted)
    walk(store, 0, 10)
    assert store.reads.is_behind(wanted)
    walk(store, 10, 48)
    assert not store.reads.is_behind(wanted)
