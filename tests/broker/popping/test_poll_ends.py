"""Polls whose time is over end a few in each turn of the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from aerobee.broker.popping.poll_ends import ENDS_PER_TURN, PollEnds
from aerobee.testing.virtual_time import VirtualTime


@pytest.fixture
async def time() -> AsyncIterator[VirtualTime]:
    clock = VirtualTime(asyncio.get_running_loop(), 0)
    clock.begin()
    yield clock
    clock.end()


class Poll:
    def __init__(self, time: VirtualTime, woken_s: list[float]) -> None:
        self._time = time
        self._woken_s = woken_s

    def wake(self) -> None:
        self._woken_s.append(self._time.monotonic_s())


async def test_a_poll_ends_after_its_time_and_at_most_ten_milliseconds_later(
    time: VirtualTime,
) -> None:
    ends, woken_s, began_s = PollEnds(), list[float](), time.monotonic_s()
    for timeout_s in (3.0, 1.0, 2.005):
        ends.add(Poll(time, woken_s), timeout_s)
    await asyncio.sleep(4)
    late_s = [at - began_s - due for at, due in zip(woken_s, (1.0, 2.005, 3.0), strict=True)]
    assert all(0 <= each <= 0.011 for each in late_s), late_s


@pytest.mark.usefixtures("time")
async def test_many_that_are_due_together_end_a_few_in_each_turn() -> None:
    ends, count = PollEnds(), 5 * ENDS_PER_TURN
    turn, woken_in = 0, list[int]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if len(woken_in) < count:
            asyncio.get_running_loop().call_soon(next_turn)

    class Woken:
        def wake(self) -> None:
            if not woken_in:
                next_turn()
            woken_in.append(turn)

    for _ in range(count):
        ends.add(Woken(), 1.0)
    await asyncio.sleep(2)
    assert len(woken_in) == count
    assert max(Counter(woken_in).values()) <= ENDS_PER_TURN + 1


async def test_a_poll_that_ended_earlier_is_not_woken(time: VirtualTime) -> None:
    ends, woken_s = PollEnds(), list[float]()
    poll = Poll(time, woken_s)
    ends.add(poll, 1.0).pop(poll)
    await asyncio.sleep(2)
    assert woken_s == []
