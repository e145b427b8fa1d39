"""Delays after failures, and who is due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.consumer_client.retry_schedule import RetryPolicy, RetrySchedule
from aerobee.runtime import errors


def test_delays_are_apaches_from_10_s_to_2_h() -> None:
    policy = RetryPolicy()
    assert [policy.delay_s(failures) for failures in (1, 2, 3, 16, 17, 1_000)] == [
        10,
        30,
        60,
        7_200,
        7_200,
        7_200,
    ]
    assert RetryPolicy(scale=0.001).delay_s(2) == 0.03


@given(st.lists(st.tuples(st.floats(0, 100), st.integers()), max_size=30), st.floats(0, 100))
def test_what_is_due_comes_in_order_of_time(work: list[tuple[float, int]], now_s: float) -> None:
    schedule: RetrySchedule[int] = RetrySchedule()
    for due_s, item in work:
        schedule.add(due_s, item)
    due = [item for due_s, item in sorted(work, key=lambda pair: pair[0]) if due_s <= now_s]
    assert schedule.pop_due(now_s) == due
    assert len(schedule) == len(work) - len(due)
    assert schedule.next_due_s == min((t for t, _ in work if t > now_s), default=None)


def test_work_of_a_lost_queue_is_forgotten() -> None:
    schedule: RetrySchedule[str] = RetrySchedule()
    for due_s, item in ((3, "a1"), (1, "b1"), (2, "a2"), (4, "b2")):
        schedule.add(due_s, item)
    assert schedule.remove_if(lambda item: item.startswith("a")) == 2
    assert schedule.pop_due(10) == ["b1", "b2"]


def test_policies_that_cannot_work_are_refused() -> None:
    for bad in ({"attempts_max": 0}, {"delays_ms": ()}, {"delays_ms": (-1,)}, {"scale": -1.0}):
        with pytest.raises(errors.InvalidArgument):
            RetryPolicy(**bad)
