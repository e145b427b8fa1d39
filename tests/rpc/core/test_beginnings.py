"""Calls with a stream of answers that arrive together: a few begin in each turn of the loop."""

from __future__ import annotations

import asyncio

from aerobee.rpc.core.beginnings import BEGUN_PER_TURN, Beginnings


class Call:
    """Asks, as a call does, whether it may begin."""

    def __init__(self, beginnings: Beginnings, begun: list[int], number: int) -> None:
        self._beginnings = beginnings
        self._begun = begun
        self._number = number

    def start(self, message: bytes | None) -> None:
        if not self._beginnings.has_to_wait(self, message):
            self._begun.append(self._number)


async def test_thousands_that_come_together_begin_a_few_in_each_turn_and_in_order() -> None:
    beginnings, begun, turns = Beginnings(asyncio.get_running_loop()), list[int](), list[int]()
    count = 5 * BEGUN_PER_TURN
    for number in range(count):
        Call(beginnings, begun, number).start(b"")
    turns.append(len(begun))
    while len(begun) < count:
        await asyncio.sleep(0)
        turns.append(len(begun))
    assert begun == list(range(count))
    assert turns == [BEGUN_PER_TURN * turn for turn in range(1, 6)]


async def test_one_that_comes_while_others_wait_does_not_overtake_them() -> None:
    beginnings, begun = Beginnings(asyncio.get_running_loop()), list[int]()
    for number in range(BEGUN_PER_TURN + 1):
        Call(beginnings, begun, number).start(b"")
    Call(beginnings, begun, 99).start(b"")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert begun[-2:] == [BEGUN_PER_TURN, 99]


async def test_the_next_turn_has_room_again() -> None:
    beginnings, begun = Beginnings(asyncio.get_running_loop()), list[int]()
    for turn in range(3):
        for number in range(BEGUN_PER_TURN):
            Call(beginnings, begun, number).start(None)
        assert len(begun) == (turn + 1) * BEGUN_PER_TURN
        await asyncio.sleep(0)
