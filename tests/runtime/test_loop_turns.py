"""Long work shares the event loop: one piece per turn, the askers in rotation."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from aerobee.runtime.clock import ManualClock
from aerobee.runtime.loop_turns import LONG_S, PIECE_ELEMENTS, LoopTurns


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def counted(turns: LoopTurns) -> list[int]:
    """How many pieces begin in each turn of the loop, until none has begun for a while."""
    begun: list[int] = []
    while len(begun) < 5 or any(begun[-5:]):
        before = turns.pieces
        await asyncio.sleep(0)
        begun.append(turns.pieces - before)
    return begun


async def test_all_jobs_together_get_one_piece_per_turn_of_the_loop(clock: ManualClock) -> None:
    turns = LoopTurns(clock)
    pieces: list[str] = []

    async def job(asker: str) -> None:
        for _ in range(3):
            await turns.turn(asker)
            pieces.append(asker)

    async with asyncio.TaskGroup() as tasks:
        for asker in ("a", "a", "a", "a", "b"):
            tasks.create_task(job(asker))
        begun = await counted(turns)
    assert sum(begun) == len(pieces) == 15
    assert max(begun) == 1
    # Four jobs of one asker get no more than the one of another.
    assert [at for at, asker in enumerate(pieces) if asker == "b"][-1] <= 7


async def test_after_a_long_piece_the_loop_is_free_for_as_long_as_it_took(
    clock: ManualClock,
) -> None:
    turns = LoopTurns(clock)
    loop = asyncio.get_running_loop()
    await turns.turn("a")
    clock.advance_ms(round(4_000 * LONG_S))
    ended_s = loop.time()
    await turns.turn("b")
    assert loop.time() - ended_s >= 4 * LONG_S - 0.002  # the loop's timers have a grain


async def test_short_pieces_pause_only_while_others_must_not_wait(clock: ManualClock) -> None:
    busy = False
    turns = LoopTurns(clock, lambda: busy)
    loop = asyncio.get_running_loop()
    await turns.turn("a")
    for is_busy in (False, True):
        busy = is_busy
        clock.advance_ms(round(1_000 * LONG_S))
        timers = len(loop._scheduled)  # type: ignore[attr-defined]
        waiting = asyncio.create_task(turns.turn("b"))
        await asyncio.sleep(0)
        assert (len(loop._scheduled) > timers) is is_busy  # type: ignore[attr-defined]
        await waiting


async def test_100_000_jobs_leave_in_constant_time_each_and_nothing_remains(
    clock: ManualClock,
) -> None:
    turns = LoopTurns(clock)
    assert turns.begin()
    # All in one turn of the loop: none is granted before all have left.
    loop = asyncio.get_running_loop()
    waiting = [turns.turn(f"asker {number % 1_000}") for number in range(100_000)]
    for each in waiting:
        each.send(None)
    began_s = time.thread_time()
    for each in waiting:
        with suppress(asyncio.CancelledError):
            each.throw(asyncio.CancelledError)
    assert time.thread_time() - began_s < 100_000 * 50e-6
    assert repr(turns) == "LoopTurns(pieces=1, askers=0)"
    assert loop.is_running()
    await asyncio.sleep(0)
    assert turns.begin()


async def test_a_job_that_leaves_when_its_piece_was_granted_does_not_stop_the_others(
    clock: ManualClock,
) -> None:
    turns = LoopTurns(clock)
    leaving = asyncio.create_task(turns.turn("a"))
    staying = asyncio.create_task(turns.turn("b"))
    assert turns.begin()
    await asyncio.sleep(0)
    assert turns.pieces == 2  # granted, but it has not run yet
    leaving.cancel()
    await asyncio.wait_for(staying, 5)
    assert leaving.cancelled()


async def test_a_job_that_is_cancelled_in_the_turn_of_its_grant_is_passed_over(
    clock: ManualClock,
) -> None:
    turns = LoopTurns(clock)
    jobs = [asyncio.create_task(turns.turn(asker)) for asker in "abc"]
    assert turns.begin()
    for each in jobs:
        asyncio.get_running_loop().call_soon(each.cancel)
    staying = asyncio.create_task(turns.turn("d"))
    await asyncio.wait_for(staying, 5)
    assert all(each.done() for each in jobs)
    assert repr(turns).endswith("askers=0)")


async def test_many_elements_come_in_pieces_and_few_at_once(clock: ManualClock) -> None:
    turns = LoopTurns(clock)
    assert [each async for each in turns.each("a", range(10))] == [*range(10)]
    assert turns.pieces == 0
    many = range(3 * PIECE_ELEMENTS + 1)
    assert [len(part) async for part in turns.parts("a", many)] == [PIECE_ELEMENTS] * 3 + [1]
    assert turns.pieces == 4
