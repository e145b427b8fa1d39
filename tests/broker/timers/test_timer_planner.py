"""What is moved when: in the order of time, in bounded batches, however the clock goes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.timers.entries import TIMER_QUEUE, Floor, Intent, IntentKind, Removed, Source
from aerobee.broker.timers.index import IndexLimits, PendingIndex, open_index
from aerobee.broker.timers.level_window import WINDOW_ENTRIES, LevelWindow
from aerobee.broker.timers.pending import make_rows
from aerobee.broker.timers.planner import STEPS_MAX, Plan, PlanLimits, Planner
from aerobee.broker.timers.progress import QueueProgress, TimerProgress
from aerobee.runtime.clock import ManualClock
from aerobee.testing.simulated_disk import SimulatedDisk

NOW_MS = 1_700_000_000_000
LEVEL_MS = 5_000


class Scene:
    """A planner whose plans come true at once."""

    def __init__(self, limits: PlanLimits | None = None) -> None:
        self.clock = ManualClock(now_ms=NOW_MS)
        self.index: PendingIndex = open_index(
            SimulatedDisk(), begin=0, queue_end=0, journal_end=0, limits=IndexLimits()
        )
        self.level = LevelWindow(2, LEVEL_MS, begin=0)
        self.progress = TimerProgress()
        self.log_ms = 0
        self.planner = Planner(
            self.index, {2: self.level}, self.clock, limits, log_ms=lambda: self.log_ms
        )
        self.due: dict[tuple[int, int], int] = {}

    def add_timers(self, *due_ms: int, size: int = 100) -> None:
        first = self.index.fed_end
        offsets = np.arange(first, first + len(due_ms))
        self.due |= {(TIMER_QUEUE, first + at): due for at, due in enumerate(due_ms)}
        rows = make_rows(due_ms, offsets, offsets * 100, np.full(len(due_ms), size))
        self.index.feed(rows, first + len(due_ms))

    def add_delayed(self, *due_ms: int) -> None:
        first = self.level.queue_end
        self.due |= {(2, first + at): due for at, due in enumerate(due_ms)}
        column = np.array(due_ms, np.int64)
        self.level.feed(first, column, column, np.full(len(due_ms), 100))

    def plan(self) -> Plan | None:
        plan = self.planner.plan(self.progress)
        if plan is not None:
            sources = plan.sources()
            assert len(set(sources)) == len(sources)
            assert not any(self.progress.is_done(source) for source in sources), "never twice"
            number = self.progress.next_number
            named = {(source.queue, source.offset) for source in sources}
            waiting = self.waiting() - named
            self.progress.apply([Intent(plan.kind, number, tuple(sources), plan.marks)])
            assert self.waiting() == waiting, "marks cover nothing else"
        return plan

    def waiting(self) -> set[tuple[int, int]]:
        return {
            place
            for place, due_ms in self.due.items()
            if not self.progress.is_done(Source(*place, due_ms))
        }

    def moved(self) -> list[int]:
        """The times of what is moved now, in order."""
        found: list[int] = []
        while (plan := self.plan()) is not None:
            found += [self.due[source.queue, source.offset] for source in plan.sources()]
        return found


def test_what_is_due_goes_in_the_order_of_time_and_nothing_early() -> None:
    scene = Scene()
    scene.add_timers(NOW_MS + 3, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS - 1)
    scene.add_delayed(NOW_MS - 2, NOW_MS, NOW_MS + 2)
    assert scene.moved() == [NOW_MS - 2, NOW_MS - 1, NOW_MS - 1, NOW_MS, NOW_MS]
    for elapsed in (1, 2, 3):
        assert scene.planner.wake_ms(scene.progress) == NOW_MS + elapsed
        scene.clock.advance_ms(1)
        assert scene.moved() == [NOW_MS + elapsed]
    assert scene.planner.wake_ms(scene.progress) is None


def test_a_batch_is_bounded_by_count_and_by_bytes_and_has_one_at_least() -> None:
    limits = PlanLimits(batch_messages=10, batch_bytes=1_000, late_after_ms=60_000)
    scene = Scene(limits)
    scene.add_timers(*range(NOW_MS - 30, NOW_MS), size=10)
    assert [len(plan) for plan in iter(scene.plan, None)] == [10, 10, 10]
    scene.add_timers(*range(NOW_MS - 6, NOW_MS), size=400)
    assert [len(plan) for plan in iter(scene.plan, None)] == [2, 2, 2]
    scene.add_timers(NOW_MS, NOW_MS, size=5_000)
    assert [len(plan) for plan in iter(scene.plan, None)] == [1, 1]


@pytest.mark.thorough
def test_after_an_outage_what_is_late_follows_at_its_rate_and_new_ones_are_in_time() -> None:
    limits = PlanLimits(batch_messages=100, late_per_s=500, late_burst=25)
    scene = Scene(limits)
    scene.add_timers(*range(NOW_MS - 600_000, NOW_MS - 3_000, 300))
    late = len(scene.waiting())
    assert late == 1_990
    seconds = 0
    while scene.waiting():
        moved_late: list[int] = []
        for _ in range(100):
            scene.clock.advance_ms(10)
            now_ms = scene.clock.now_ms()
            scene.add_timers(now_ms + 5, now_ms + 5)
            moved = scene.moved()
            old = [due for due in moved if due < NOW_MS]
            assert [due for due in moved if due >= NOW_MS] in ([now_ms - 5] * 2, []), "in time"
            moved_late += old
        assert len(moved_late) <= 525
        assert moved_late == sorted(moved_late), "in the order of time"
        seconds += 1
        if not moved_late:
            break
    assert seconds == late // 500 + 2
    scene.clock.advance_ms(10)
    scene.moved()
    assert len(scene.progress.of(TIMER_QUEUE).frontier.steps) <= 2, "one lane again"


def test_late_messages_that_come_after_others_were_moved_hold_up_none_in_time() -> None:
    scene = Scene(PlanLimits(late_per_s=100, late_burst=10))
    scene.add_timers(NOW_MS)
    assert scene.moved() == [NOW_MS]
    scene.add_timers(*range(NOW_MS - 50_000, NOW_MS - 40_000, 10))
    late: list[int] = []
    while scene.waiting():
        scene.clock.advance_ms(100)
        now_ms = scene.clock.now_ms()
        scene.add_timers(now_ms)
        moved = scene.moved()
        late += [due for due in moved if due < NOW_MS]
        assert [due for due in moved if due >= NOW_MS] == [now_ms]
        assert len(moved) <= 11
    assert late == list(range(NOW_MS - 50_000, NOW_MS - 40_000, 10))


def test_a_clock_that_jumps_forward_moves_in_bounded_bursts() -> None:
    limits = PlanLimits(late_per_s=10_000, late_burst=100)
    scene = Scene(limits)
    scene.add_timers(*range(NOW_MS, NOW_MS + 5_000))
    scene.clock.step_wall_ms(3_600_000)
    assert len(scene.moved()) == 100
    assert scene.planner.wake_ms(scene.progress) == scene.clock.now_ms() + 1
    scene.clock.advance_ms(5)
    assert len(scene.moved()) in (49, 50)


def test_a_clock_that_jumps_back_moves_nothing_twice_and_waits_for_the_times_to_come() -> None:
    scene = Scene()
    scene.add_timers(*range(NOW_MS - 50, NOW_MS + 50))
    assert len(scene.moved()) == 51
    scene.clock.step_wall_ms(-3_600_000)
    assert scene.moved() == []
    assert scene.planner.wake_ms(scene.progress) == NOW_MS + 1
    scene.clock.step_wall_ms(3_600_000 + 49)
    assert scene.moved() == list(range(NOW_MS + 1, NOW_MS + 50))


def test_a_clock_that_is_set_back_again_and_again_keeps_nothing_waiting() -> None:
    """Each time there are messages before those that were moved, and after them."""
    scene = Scene()
    for _ in range(3 * STEPS_MAX):
        now_ms = scene.clock.now_ms()
        scene.add_timers(now_ms, now_ms + 90_000)
        assert scene.moved() == [now_ms]
        scene.clock.step_wall_ms(-10_000)
    assert len(scene.progress.of(TIMER_QUEUE).frontier.steps) <= STEPS_MAX
    scene.clock.step_wall_ms(900_000)
    assert len(scene.moved()) == 3 * STEPS_MAX
    assert scene.progress.loose_count <= 3 * STEPS_MAX
    assert scene.waiting() == set()


def test_a_delay_level_keeps_the_order_of_its_queue() -> None:
    """The second message was stored after the clock had been set back."""
    scene = Scene()
    scene.add_delayed(NOW_MS + 900, NOW_MS + 100, NOW_MS + 950)
    scene.clock.advance_ms(500)
    assert scene.moved() == []
    scene.clock.advance_ms(400)
    assert scene.moved() == [NOW_MS + 900, NOW_MS + 100]


def test_what_a_level_has_ahead_waits_on_among_the_times_and_holds_up_nothing() -> None:
    """The level was longer when the second one was stored."""
    scene = Scene()
    hour_ms = 3_600_000
    scene.add_delayed(NOW_MS + LEVEL_MS, NOW_MS + hour_ms, NOW_MS + LEVEL_MS + 1)
    assert scene.plan() is None
    scene.clock.advance_ms(LEVEL_MS)
    moved, rolled = scene.plan(), scene.plan()
    assert moved is not None
    assert rolled is not None
    assert (moved.kind, moved.due_ms.tolist()) == (IntentKind.MOVE, [NOW_MS + LEVEL_MS])
    assert (rolled.kind, rolled.due_ms.tolist()) == (IntentKind.ROLL, [NOW_MS + hour_ms])
    assert scene.plan() is None
    scene.clock.advance_ms(1)
    assert scene.moved() == [NOW_MS + LEVEL_MS + 1]
    assert scene.progress.of(2) == QueueProgress(floor=3)


def test_where_the_clock_was_set_back_a_level_waits_from_now_on() -> None:
    scene = Scene()
    scene.log_ms = NOW_MS + 9_000
    scene.add_delayed(scene.log_ms + LEVEL_MS)
    plan = scene.plan()
    assert plan is not None
    assert (plan.kind, plan.marks) == (IntentKind.RETIME, (Floor(2, 1),))


def test_what_was_recalled_holds_up_nothing_in_its_level() -> None:
    scene = Scene()
    scene.add_delayed(NOW_MS + LEVEL_MS, NOW_MS + 9 * LEVEL_MS, NOW_MS + LEVEL_MS)
    scene.progress.apply([Removed((Source(2, 1, NOW_MS + 9 * LEVEL_MS),))])
    scene.clock.advance_ms(LEVEL_MS)
    assert scene.moved() == [NOW_MS + LEVEL_MS, NOW_MS + LEVEL_MS]


def test_what_is_done_out_of_turn_is_left_out() -> None:
    scene = Scene()
    scene.add_timers(NOW_MS - 3, NOW_MS - 2, NOW_MS - 1)
    scene.add_delayed(NOW_MS - 3, NOW_MS - 2, NOW_MS - 1)
    scene.progress.apply([Removed((Source(0, 1, NOW_MS - 2), Source(2, 1, NOW_MS - 2)))])
    assert scene.moved() == [NOW_MS - 3, NOW_MS - 3, NOW_MS - 1, NOW_MS - 1]
    assert scene.progress.of(2).floor == 3


def test_a_level_s_window_is_bounded_and_filled_again_from_the_queue() -> None:
    scene = Scene(PlanLimits(batch_messages=10_000, late_after_ms=1 << 40))
    count = 3 * WINDOW_ENTRIES
    queue = np.arange(NOW_MS - count, NOW_MS)
    scene.due = {(2, at): int(due) for at, due in enumerate(queue)}
    for first in range(0, count, 1_000):
        part = queue[first : first + 1_000]
        scene.level.feed(first, part, part, part * 0 + 10)
    moved: list[int] = []
    while len(moved) < count:
        moved += scene.moved()
        wanted = scene.level.wants(scene.progress.of(2))
        if wanted is not None:
            part = queue[wanted : wanted + WINDOW_ENTRIES]
            scene.level.feed(wanted, part, part, part * 0 + 10)
    assert moved == queue.tolist()


def test_a_level_goes_on_where_retention_has_left_its_queue() -> None:
    window = LevelWindow(2, LEVEL_MS, begin=0)
    window.skip_to(40)
    assert window.wants(QueueProgress()) is None
    column = np.array([5], np.int64)
    window.feed(40, column, column, column)
    assert window.due(10, QueueProgress(floor=7), 5).offsets.tolist() == [40]


@pytest.mark.thorough
@given(st.lists(st.tuples(st.sampled_from("tttdmmrfb"), st.integers(0, 4_000)), max_size=60))
def test_whatever_comes_each_message_is_moved_once_and_not_early(
    steps: list[tuple[str, int]],
) -> None:
    limits = PlanLimits(
        batch_messages=3, batch_bytes=250, late_after_ms=800, late_per_s=5, late_burst=3
    )
    scene = Scene(limits)
    moved: set[Source] = set()
    removed = 0
    for step, number in steps:
        now_ms = scene.clock.now_ms()
        if step == "t":
            scene.add_timers(*(now_ms + number + more for more in (0, 7, -9, 1_500)))
        elif step == "d":
            scene.add_delayed(now_ms + LEVEL_MS)
        elif step == "r" and (waiting := sorted(scene.waiting())):
            place = waiting[number % len(waiting)]
            scene.progress.apply([Removed((Source(*place, scene.due[place]),))])
            removed += 1
        elif step in "fb":
            scene.clock.step_wall_ms(number * (5 if step == "f" else -5))
        elif (plan := scene.plan()) is not None:
            assert len(plan) <= 3
            for source in plan.sources():
                due_ms = scene.due[source.queue, source.offset]
                assert due_ms <= now_ms or plan.kind is not IntentKind.MOVE, "never early"
                moved.add(source)
        scene.clock.advance_ms(number // 8)
        assert len(scene.progress.of(TIMER_QUEUE).frontier.steps) <= STEPS_MAX
    scene.clock.step_wall_ms(1_000_000)
    while (wake_ms := scene.planner.wake_ms(scene.progress)) is not None:
        scene.clock.advance_ms(max(wake_ms - scene.clock.now_ms(), 200))
        while (plan := scene.plan()) is not None:
            moved |= set(plan.sources())
    assert len(moved) + removed == len(scene.due)
    assert len({(source.queue, source.offset) for source in moved}) == len(moved)


def test_marks_of_levels_follow_their_queues() -> None:
    scene = Scene(PlanLimits(batch_messages=2))
    scene.add_delayed(NOW_MS - 2, NOW_MS - 1, NOW_MS)
    plans = list(iter(scene.plan, None))
    assert [plan.marks for plan in plans] == [(Floor(2, 2),), (Floor(2, 3),)]
    assert all(first.basis is second.basis for first, second in pairwise(plans))
