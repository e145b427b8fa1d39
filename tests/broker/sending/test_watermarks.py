"""Waiting for the disk: order, deadlines, and nothing told twice."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.sending.watermarks import EndWaiters


class Scene:
    def __init__(self, flushed_end: int = 0) -> None:
        self.timers: list[float] = []
        self.told: list[tuple[int, bool]] = []
        self.waiters = EndWaiters(flushed_end, on_deadline_set=self.timers.append)

    def add(self, end: int, deadline_s: float = 100.0) -> None:
        self.waiters.add(end, deadline_s, lambda in_time: self.told.append((end, in_time)))


async def test_a_flush_tells_all_that_it_covers_in_log_order() -> None:
    scene = Scene()
    for end in (10, 20, 20, 30):
        scene.add(end)
    scene.waiters.reached(20)
    assert scene.told == [(10, True), (20, True), (20, True)]
    assert len(scene.waiters) == 1


async def test_what_is_flushed_already_is_told_at_once() -> None:
    scene = Scene(flushed_end=50)
    scene.add(50)
    assert scene.told == [(50, True)]


async def test_deadlines_are_told_once_and_the_flush_that_follows_is_not() -> None:
    scene = Scene()
    scene.add(10, deadline_s=5.0)
    scene.add(20, deadline_s=3.0)
    scene.add(30, deadline_s=9.0)
    assert scene.timers == [5.0, 3.0]
    scene.waiters.on_time(3.0)
    assert scene.told == [(20, False)]
    assert scene.timers[-1] == 5.0
    scene.waiters.reached(30)
    assert scene.told == [(20, False), (10, True), (30, True)]


async def test_a_deadline_costs_those_that_it_tells_and_no_scan_of_the_others() -> None:
    """With each deadline looking at all waiters a slow disk made this quadratic."""

    class CountedDeadline(float):
        looks = 0

        def __lt__(self, other: float) -> bool:
            CountedDeadline.looks += 1
            return float(self) < float(other)

        def __le__(self, other: float) -> bool:
            CountedDeadline.looks += 1
            return float(self) <= float(other)

    scene = Scene()
    count = 2_000
    for end in range(1, count + 1):
        scene.add(end, deadline_s=CountedDeadline(end))
    CountedDeadline.looks = 0
    for now_s in range(1, count + 1):
        scene.waiters.on_time(float(now_s))
    assert scene.told == [(end, False) for end in range(1, count + 1)]
    assert CountedDeadline.looks < 40 * count


async def test_deadlines_of_those_that_were_told_are_not_kept() -> None:
    scene = Scene()
    for end in range(1, 10_000):
        scene.add(end, deadline_s=1e9 + end)
        scene.waiters.reached(end)
    assert scene.waiters.deadline_count < 1_000


async def test_progress_is_heard_by_whoever_waits_for_it() -> None:
    scene = Scene()
    waiting = [asyncio.ensure_future(scene.waiters.wait_progress()) for _ in range(3)]
    await asyncio.sleep(0)
    scene.waiters.reached(1)
    await asyncio.wait_for(asyncio.gather(*waiting), 1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 5), st.integers(1, 50)),
            st.tuples(st.just("flush"), st.integers(0, 100), st.just(0)),
            st.tuples(st.just("time"), st.integers(0, 10), st.just(0)),
        ),
        max_size=60,
    )
)
def test_everyone_is_told_once_and_the_truth(steps: list[tuple[str, int, int]]) -> None:
    with asyncio.Runner() as runner:
        runner.run(_play(steps))


async def _play(steps: list[tuple[str, int, int]]) -> None:
    told: dict[int, bool] = {}
    deadlines: dict[int, float] = {}
    ends: dict[int, int] = {}
    waiters = EndWaiters(0, on_deadline_set=lambda deadline_s: None)
    end, flushed, now_s = 0, 0, 0.0
    for number, (kind, first, second) in enumerate(steps):
        if kind == "add":
            end += first
            ends[number], deadlines[number] = end, now_s + second

            def tell(in_time: bool, number: int = number) -> None:
                assert number not in told
                told[number] = in_time

            waiters.add(end, deadlines[number], tell)
        elif kind == "flush":
            flushed = max(flushed, min(end, first))
            waiters.reached(flushed)
        else:
            now_s += first
            waiters.on_time(now_s)
        for other, in_time in told.items():
            assert not in_time or ends[other] <= flushed
            assert in_time or deadlines[other] <= now_s
        assert all(other in told for other in ends if ends[other] <= flushed)
