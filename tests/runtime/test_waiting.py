"""What many calls wait for: who comes, leaves or is woken pays the same, however many wait."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

from aerobee.broker.cold_reads.fair_turns import FairTurns
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.popping.bells import Bells
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.nameserver.notifier import Notifier
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.waiting import Pauses, SharedFuture, Turns, Waiters, shared

FEW = 1_000
SOME = 10_000
MANY = 100_000
DEARER_MAX = 8
"""Linear searches make ten times as many waiters cost ten times as much each, and more."""

Wait = Coroutine[Any, Any, Any]


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """The collector looks at all objects again and again while they are made."""
    gc.disable()
    yield
    gc.enable()


def turns_taken() -> Turns:
    turns = Turns()
    assert not turns.is_taken()
    with pytest.raises(StopIteration):
        turns.acquire().send(None)
    return turns


WAITS: dict[str, Callable[[], Callable[[], Wait]]] = {
    "an event": lambda: Waiters().wait,
    "a turn": lambda: turns_taken().acquire,
    "a shared outcome, shielded": lambda: shielding(SharedFuture()),
    "a shared outcome": lambda: waiting_for(SharedFuture()),
    "a watermark": lambda: EndWaiters(0, on_deadline_set=lambda _: None).wait_progress,
}


def shielding(outcome: SharedFuture[None]) -> Callable[[], Wait]:
    async def wait() -> None:
        await asyncio.shield(outcome)

    return wait


def waiting_for(outcome: SharedFuture[None]) -> Callable[[], Wait]:
    async def wait() -> None:
        await asyncio.wait((outcome,))

    return wait


def leaving_s(wait: Callable[[], Wait], count: int) -> float:
    """CPU time per waiter of `count` that leave, in any order."""
    waits = [wait() for _ in range(count)]
    for one in waits:
        one.send(None)
    random.Random(count).shuffle(waits)
    began_s = time.process_time()
    for one in waits:
        with Cancelled():
            one.throw(asyncio.CancelledError())
    return (time.process_time() - began_s) / count


class Cancelled(AbstractContextManager[None]):
    """`pytest.raises` would cost more than what is measured."""

    def __exit__(self, kind: object, *_: object) -> bool:
        assert kind is asyncio.CancelledError
        return True


def check_price(price_s: Callable[[int], float]) -> None:
    """Few first: if it is a matter of searching, the hundred thousand would take minutes."""
    dear_s = DEARER_MAX * max(price_s(FEW), 1e-6)
    assert price_s(SOME) < dear_s
    assert price_s(MANY) < dear_s


@pytest.mark.parametrize("make", WAITS.values(), ids=WAITS.keys())
async def test_leaving_costs_the_same_among_a_hundred_thousand_that_wait_for(
    make: Callable[[], Callable[[], Wait]],
) -> None:
    check_price(lambda count: leaving_s(make(), count))


class Growth:
    def wait(self, topic: str, queue_id: int, wake: Callable[[], None]) -> None: ...

    def forget(self, topic: str, queue_id: int, wake: Callable[[], None]) -> None: ...


def test_leaving_costs_the_same_among_a_hundred_thousand_watchers_of_routes() -> None:
    def price_s(count: int) -> float:
        changed = Notifier()
        stacks = [ExitStack() for _ in range(count)]
        for stack in stacks:
            stack.enter_context(changed.subscribed(stack.pop_all))
        return closing_s(stacks)

    check_price(price_s)


def closing_s(stacks: list[ExitStack]) -> float:
    random.Random(len(stacks)).shuffle(stacks)
    began_s = time.process_time()
    for stack in stacks:
        stack.close()
    return (time.process_time() - began_s) / len(stacks)


async def test_leaving_and_ringing_cost_the_same_among_a_hundred_thousand_polls() -> None:
    key = GroupQueue("readers", "orders", 0)

    def price_s(count: int) -> float:
        bells = Bells(Growth(), SystemClock(), next_ms=lambda _: None, polls_max=count)
        stacks = [ExitStack() for _ in range(count)]
        for stack in stacks:
            stack.enter_context(bells.waiting_at((key,))).looks()
        began_s = time.process_time()
        for _ in range(count // 2):
            bells.ring(key)
        return (time.process_time() - began_s) / count + closing_s(stacks)

    check_price(price_s)


def test_leaving_costs_the_same_among_a_hundred_thousand_readers_of_old_messages() -> None:
    def price_s(count: int) -> float:
        turns: FairTurns[int] = FairTurns(2)
        jobs = list(range(count))
        for job in jobs:
            turns.add("one group" if job % 2 else f"group {job}", job, 100)
        random.Random(count).shuffle(jobs)
        began_s = time.process_time()
        for job in jobs:
            turns.remove("one group" if job % 2 else f"group {job}", job)
        assert (turns.waiting, turns.readers) == (0, 0)
        return (time.process_time() - began_s) / count

    check_price(price_s)


async def test_those_that_wait_are_woken_and_those_that_left_are_not() -> None:
    waiters = Waiters()
    stays, leaves = (asyncio.ensure_future(waiters.wait()) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.wait((leaves,))
    assert len(waiters) == 1
    waiters.wake()
    await stays
    later = asyncio.ensure_future(waiters.wait())
    await asyncio.sleep(0)
    assert not later.done(), "what has happened before it came does not count"
    waiters.wake()
    await later


async def test_turns_go_in_order_and_none_is_lost_with_those_that_leave() -> None:
    turns = Turns(2)
    order: list[int] = []

    async def work(number: int) -> None:
        async with turns:
            order.append(number)
            await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(work(number)) for number in range(8)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    await asyncio.sleep(0)
    tasks[4].cancel()  # its turn may just have come
    await asyncio.wait(tasks)
    assert [one for one in order if one != 4] == [0, 1, 2, 5, 6, 7]
    await turns.acquire()
    await turns.acquire()
    assert turns.is_taken()


async def test_a_turn_given_to_one_that_is_just_cancelled_goes_to_the_next() -> None:
    turns = turns_taken()
    first, second = (asyncio.ensure_future(turns.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    turns.release()
    first.cancel()
    await asyncio.wait((first,))
    await second
    assert first.cancelled()
    assert turns.is_taken()


async def test_all_that_wait_for_a_shared_outcome_get_it() -> None:
    async def fail() -> None:
        raise ValueError("no")

    for outcome in (shared(asyncio.ensure_future(fail())), SharedFuture[None]()):
        waits = [asyncio.ensure_future(shielding(outcome)()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[1].cancel()
        if not outcome.done():
            outcome.set_exception(ValueError("no"))
        await asyncio.wait(waits)
        assert waits[1].cancelled()
        for one in (waits[0], waits[2]):
            assert isinstance(one.exception(), ValueError)
    cancelled: SharedFuture[None] = SharedFuture()
    waits = [asyncio.ensure_future(waiting_for(cancelled)())]
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait(waits)


async def test_pauses_end_together() -> None:
    pauses = Pauses()
    running = asyncio.ensure_future(pauses.pause(60))
    await asyncio.sleep(0)
    pauses.end_all()
    await running
