"""The index of waiting messages: what it finds, what it forgets, and what survives a crash."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.timers.frontier import Frontier, Step
from aerobee.broker.timers.index import IndexLimits, PendingIndex, open_index
from aerobee.broker.timers.index_works import INDEX_FOLDER, IndexWork
from aerobee.broker.timers.pending import FIRST, LAST, Key, Rows, key_of, make_rows
from aerobee.broker.timers.progress import DoneView
from aerobee.broker.timers.runs import IndexDamaged
from aerobee.testing.power_failure import draw_fate
from aerobee.testing.simulated_disk import SimulatedDisk
from aerobee.testing.simulated_power import PowerCut
from tests.support.property_runs import examples

LIMITS = IndexLimits(spill_rows=50, near_rows_max=40, load_rows=20)
NOTHING_DONE = DoneView(0, Frontier(), np.empty(0, np.int64))


def rows_of(messages: dict[int, int]) -> Rows:
    """Queue offset -> due."""
    offsets = sorted(messages)
    positions = [100 * offset for offset in offsets]
    due = [messages[offset] for offset in offsets]
    return make_rows(due, offsets, positions, [10] * len(offsets))


def keys(rows: Rows) -> list[Key]:
    return [key_of(row) for row in rows]


def settle(index: PendingIndex, view: DoneView = NOTHING_DONE, *, journal_offset: int = 0) -> None:
    """Do all works that are due, as the thread would."""
    while (work := index.next_work(lambda: view, journal_offset)) is not None:
        work.run()
        index.finish(work)


def everything(index: PendingIndex, view: DoneView) -> list[Key]:
    """What waits, as a mover finds it: the first some, again and again."""
    found: list[Key] = []
    low = FIRST
    while True:
        settle(index, view)
        rows = index.select(low, LAST, offset_low=0, offset_end=1 << 60, limit=7)
        found += keys(rows[view.pending(rows)])
        if len(rows):
            low = key_of(rows[-1])
        elif index.loaded_until == LAST:
            return found
        else:
            low = max(low, index.loaded_until)
            # What has been looked at is done, so that its room is free.
            done = view.frontier.raised(FIRST, low, index.fed_end)
            view = DoneView(view.floor, done, view.loose)
            index.note_exhausted()


@given(st.lists(st.lists(st.integers(0, 300), max_size=60), max_size=12), st.randoms())
def test_everything_that_was_fed_is_found_in_the_order_of_time(
    batches: list[list[int]], chance: random.Random
) -> None:
    disk = SimulatedDisk()
    index = open_index(disk, begin=0, queue_end=0, journal_end=0, limits=LIMITS)
    waiting: dict[int, int] = {}
    for batch in batches:
        first = index.fed_end
        fed = {first + at: due for at, due in enumerate(batch) if chance.random() < 0.9}
        waiting |= fed
        index.feed(rows_of(fed), first + len(batch))
        if chance.random() < 0.7:
            settle(index)
        if chance.random() < 0.2:
            index = open_index(disk, begin=0, queue_end=index.fed_end, journal_end=0, limits=LIMITS)
            rest = {offset: due for offset, due in waiting.items() if offset >= index.fed_end}
            index.feed(rows_of(rest), first + len(batch))
    assert everything(index, NOTHING_DONE) == sorted(Key(due, at) for at, due in waiting.items())


def test_what_is_fed_while_others_are_read_from_the_disk_is_found() -> None:
    index = open_index(SimulatedDisk(), begin=0, queue_end=0, journal_end=0, limits=LIMITS)
    waiting = {at: 2 * at for at in range(100)}
    index.feed(rows_of(waiting), 100)
    settle(index)
    done = DoneView(0, Frontier().raised(FIRST, index.loaded_until, 100), NOTHING_DONE.loose)
    late = {at: waiting[at] for at in waiting if Key(waiting[at], at) > index.loaded_until}
    index.note_exhausted()
    work = index.next_work(lambda: done, 0)
    assert work is not None
    due = min(late.values()) + 1
    index.feed(rows_of({100: due}), 101)
    work.run()
    index.finish(work)
    assert everything(index, done) == sorted(Key(at, n) for n, at in (late | {100: due}).items())


def test_a_full_index_asks_for_no_more_until_the_journal_says_what_is_done() -> None:
    index = open_index(SimulatedDisk(), begin=0, queue_end=0, journal_end=0, limits=LIMITS)
    index.feed(rows_of({at: at for at in range(100)}), 100)
    settle(index)
    index.note_exhausted()
    settle(index)
    last = index.loaded_until
    assert last < LAST
    assert index.next_work(lambda: NOTHING_DONE, 0) is None
    settle(index, DoneView(0, Frontier().raised(FIRST, last, index.fed_end), NOTHING_DONE.loose))
    assert index.loaded_until > last


@settings(max_examples=examples(25))
@given(st.randoms())
def test_what_is_done_is_dropped_and_nothing_else(chance: random.Random) -> None:
    index = open_index(SimulatedDisk(), begin=0, queue_end=0, journal_end=0, limits=LIMITS)
    waiting = {offset: chance.randrange(1000) for offset in range(600)}
    for first in range(0, 600, 30):
        index.feed(rows_of({at: waiting[at] for at in range(first, first + 30)}), first + 30)
        if chance.random() < 0.5:
            settle(index)
    steps = (Step(Key(chance.randrange(500), 1 << 40), 500), Step(Key(600, 1 << 40), 300))
    loose = np.array(sorted(chance.sample(range(600), 50)), np.int64)
    view = DoneView(chance.randrange(100), Frontier(steps), loose)
    settle(index, view)
    left = [
        Key(due, at)
        for at, due in waiting.items()
        if not (at < view.floor or at < view.frontier.end_at(Key(due, at)) or at in loose.tolist())
    ]
    oldest = index.oldest(view, limit=10)
    oldest.run()
    assert oldest.result is not None
    by_offset = sorted(left, key=lambda key: key.offset)
    assert sorted(keys(oldest.result), key=lambda key: key.offset) == by_offset[:10]
    found: list[Key] = []
    low = FIRST
    while True:
        search = index.search(
            view, low, Key(700, 0), limit=9, accepts=lambda rows: rows["offset"] % 2 == 0
        )
        search.run()
        assert search.result is not None
        found += keys(search.result)
        if search.until == Key(700, 0):
            break
        low = search.until
    assert found == sorted(key for key in left if key <= Key(700, 0) and key.offset % 2 == 0)
    assert everything(index, view) == sorted(left)


@pytest.mark.thorough
@settings(max_examples=examples(25))
@given(st.randoms())
def test_what_is_due_is_loaded_beside_a_merge_that_takes_long(chance: random.Random) -> None:
    index = open_index(SimulatedDisk(), begin=0, queue_end=0, journal_end=0, limits=LIMITS)
    due = {offset: chance.randrange(10_000) for offset in range(1_500)}
    out: list[IndexWork] = []
    for first in range(0, 1_500, 25):
        index.feed(rows_of({at: due[at] for at in range(first, first + 25)}), first + 25)
        while (work := index.next_work(lambda: NOTHING_DONE, 0)) is not None:
            out.append(work)
            if chance.random() < 0.5:
                break
        if out and chance.random() < 0.6:
            end(index, out.pop(chance.randrange(len(out))))
        assert len(out) <= 2
    for work in out:
        end(index, work)
    assert everything(index, NOTHING_DONE) == sorted(Key(at, key) for key, at in due.items())


def end(index: PendingIndex, work: IndexWork) -> None:
    try:
        work.run()
    except FileNotFoundError:
        index.give_up(work)
    else:
        index.finish(work)


def filled(disk: SimulatedDisk, count: int = 9_000) -> PendingIndex:
    """Several runs, one of them with several blocks."""
    limits = IndexLimits(spill_rows=6_000, near_rows_max=100, load_rows=50)
    index = open_index(disk, begin=0, queue_end=0, journal_end=0, limits=limits)
    index.feed(rows_of({at: at * 7919 % 5000 for at in range(6_000)}), 6_000)
    settle(index)
    index.feed(rows_of({at: at * 7919 % 5000 for at in range(6_000, count)}), count)
    work = index.next_work(lambda: NOTHING_DONE, 3, saves=True)
    assert work is not None
    work.run()
    index.finish(work)
    return index


@pytest.mark.parametrize(
    ("queue_end", "journal_end"), [(8_999, 3), (9_000, 2)], ids=["queue", "journal"]
)
def test_an_index_that_knows_more_than_the_log_is_begun_anew(
    queue_end: int, journal_end: int
) -> None:
    """What it left out as done may wait again."""
    disk = SimulatedDisk()
    assert filled(disk).rows_in_runs == 9_000
    again = open_index(disk, begin=4, queue_end=9_000, journal_end=3)
    assert (again.fed_end, again.rows_in_runs) == (9_000, 9_000)
    again = open_index(disk, begin=4, queue_end=queue_end, journal_end=journal_end)
    assert (again.fed_end, again.rows_in_runs) == (4, 0)
    assert disk.list(INDEX_FOLDER) == []


def test_a_damaged_file_is_noticed_wherever_the_damage_is() -> None:
    whole = SimulatedDisk()
    filled(whole)
    chance = random.Random(1)
    noticed = {"opening": 0, "reading": 0}
    for entry in whole.list(INDEX_FOLDER):
        places = {0, entry.size_bytes - 1, *(chance.randrange(entry.size_bytes) for _ in range(12))}
        for place in sorted(places):
            disk = whole.copy()
            file = disk.open_file(f"{INDEX_FOLDER}/{entry.name}")
            byte = file.read_at(place, 1)[0]
            file.write_at(place, [bytes([byte ^ 0x10])])
            index = open_index(disk, begin=0, queue_end=9_000, journal_end=3)
            if index.fed_end == 0:
                noticed["opening"] += 1
                continue
            search = index.search(
                NOTHING_DONE, FIRST, LAST, limit=1 << 30, accepts=lambda rows: rows["size"] > 0
            )
            with pytest.raises(IndexDamaged):
                search.run()
            noticed["reading"] += 1
    assert min(noticed.values()) > 0, noticed


@pytest.mark.parametrize("lost", ["manifest", "0000000000"])
def test_an_index_without_one_of_its_files_is_begun_anew(lost: str) -> None:
    disk = SimulatedDisk()
    filled(disk)
    disk.remove(f"{INDEX_FOLDER}/{lost}")
    index = open_index(disk, begin=0, queue_end=9_000, journal_end=3)
    assert (index.fed_end, index.rows_in_runs) == (0, 0)


def until_power_fails(steps: int, use: Callable[[SimulatedDisk], None]) -> SimulatedDisk | None:
    """The disk as it is found afterwards; None if the power lasted."""
    disk = SimulatedDisk()
    disk.power_ends_at = steps
    try:
        use(disk)
    except PowerCut:
        chance = random.Random(steps)
        promised, end = disk.sequence_range
        has_journal = chance.random() < 0.5
        fate = draw_fate(chance, promised=promised, end=end, has_journal=has_journal)
        return disk.after_power_failure(fate)
    return None


def test_a_power_failure_at_any_step_loses_no_message() -> None:
    waiting = {at: at * 31 % 97 for at in range(300)}

    def use(disk: SimulatedDisk) -> None:
        index = open_index(disk, begin=0, queue_end=0, journal_end=0, limits=LIMITS)
        for first in range(0, 300, 25):
            index.feed(rows_of({at: waiting[at] for at in range(first, first + 25)}), first + 25)
            settle(index)

    steps = 0
    while (disk := until_power_fails(steps, use)) is not None:
        index = open_index(disk, begin=0, queue_end=300, journal_end=0, limits=LIMITS)
        missing = {at: due for at, due in waiting.items() if at >= index.fed_end}
        index.feed(rows_of(missing), 300)
        assert everything(index, NOTHING_DONE) == sorted(
            Key(due, at) for at, due in waiting.items()
        ), steps
        steps += 1
    assert steps > 50


def test_memory_is_bounded_however_many_wait() -> None:
    index = open_index(SimulatedDisk(), begin=0, queue_end=0, journal_end=0, limits=LIMITS)
    most = 0
    for first in range(0, 20_000, 40):
        batch = {at: at * 7919 % 100_003 for at in range(first, first + 40)}
        index.feed(rows_of(batch), first + 40)
        settle(index)
        most = max(most, index.rows_in_memory)
    assert index.rows_in_runs > 19_900
    assert most <= LIMITS.spill_rows + LIMITS.near_rows_max + 4 * LIMITS.load_rows
