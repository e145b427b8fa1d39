"""Turns and threads of cold reads, with threads that the test moves on by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from aerobee.broker.cold_reads.pace import LATE_MS
from aerobee.broker.cold_reads.read_pool import (
    LIGHT_STEP_BYTES,
    LOOKUP_THREADS_MAX,
    LOOKUPS,
    MANY_MESSAGES_PER_S,
    SENDING_S,
    STEP_BYTES,
    WAITING_BYTES_MAX,
    ReadPool,
)
from aerobee.broker.counters import Counters
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.runtime.loop_delay import LoopDelay

MIB = 1024 * 1024


class HandExecutor(Executor):
    """Runs nothing until told to."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Future[Any], Callable[..., Any], Any]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted.append((future, function, args))
        return future

    def run_next(self) -> None:
        future, function, args = self.submitted.pop(0)
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)


class Bench:
    def __init__(self, threads: int = 2, bytes_per_s: int = 0) -> None:
        self.executor = HandExecutor()
        self.counters = Counters()
        self.clock = ManualClock()
        self.loop_delay = LoopDelay(self.clock)
        self.pool = ReadPool(
            self.executor,
            self.counters,
            self.clock,
            loop_delay=self.loop_delay,
            threads=threads,
            bytes_per_s=bytes_per_s,
        )
        self.done: list[str] = []

    def read(self, reader: str, name: str, size: int = 100) -> asyncio.Task[None]:
        async def read() -> None:
            await self.pool.run_in_turn(reader, size, lambda: None)
            self.done.append(name)

        return asyncio.create_task(read())

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def run_all(self) -> None:
        await self.settle()
        while self.executor.submitted:
            self.executor.run_next()
            await self.settle()


async def test_a_catch_up_of_many_reads_leaves_others_their_turn() -> None:
    bench = Bench(threads=1)
    for number in range(50):
        bench.read("catch-up", f"old {number}", 512 * 1024)
    await bench.settle()
    assert bench.counters.cold_reads_waiting == 49
    bench.read("other", "wanted now")
    await bench.settle()
    for _ in range(3):
        bench.executor.run_next()
        await bench.settle()
    assert "wanted now" in bench.done
    await bench.run_all()
    assert len(bench.done) == 51
    assert bench.counters.cold_reads_waiting == 0


async def test_what_one_reader_may_have_waiting_is_bounded() -> None:
    bench = Bench(threads=1)
    for number in range(3):
        bench.read("catch-up", f"old {number}", WAITING_BYTES_MAX // 2)
    await bench.settle()
    with pytest.raises(Busy, match="catch-up"):
        await bench.pool.run_in_turn("catch-up", MIB, lambda: None)
    other = bench.read("other", "small")
    await bench.run_all()
    await other
    assert len(bench.done) == 4


async def test_a_read_that_fails_gives_its_place_back_and_says_what_to_do() -> None:
    bench = Bench(threads=1)

    def fail() -> None:
        raise OSError(5, "Input/output error")

    failing = asyncio.create_task(bench.pool.run_in_turn("a", 100, fail))
    await bench.run_all()
    with pytest.raises(AerobeeError, match=r"Input/output error.*aerobee store verify"):
        await failing
    await asyncio.gather(bench.read("a", "next"), bench.run_all())
    assert bench.done == ["next"]


async def test_a_reader_that_leaves_while_it_waits_gives_its_turn_back() -> None:
    bench = Bench(threads=1)
    bench.read("a", "first")
    leaving = [bench.read("b", f"left {number}") for number in range(3)]
    last = bench.read("c", "last")
    await bench.settle()
    for task in leaving:
        task.cancel()
    await bench.run_all()
    await last
    assert bench.done == ["first", "last"]
    assert bench.pool.has_waiting is False


async def test_a_turn_granted_to_a_reader_that_has_just_left_goes_on_to_the_next() -> None:
    bench = Bench(threads=1)
    bench.read("a", "first")
    leaving = bench.read("b", "left")
    last = bench.read("c", "last")
    await bench.settle()
    bench.executor.run_next()
    await asyncio.sleep(0)  # the result is on its way, the turn is not yet granted
    leaving.cancel()
    await bench.run_all()
    await last
    assert bench.done == ["first", "last"]


async def test_while_messages_are_sent_reads_keep_to_a_pace_and_only_then() -> None:
    bench = Bench(threads=2, bytes_per_s=MIB)
    bench.counters.batches_in += 1
    assert bench.pool.spares_sends()
    async with bench.pool.turn("a", MIB):
        bench.pool.spend(MIB)
    bench.read("a", "held back")
    await bench.run_all()
    assert bench.done == []
    bench.clock.advance_ms(int(SENDING_S * 1_000) + 1)  # nobody has sent since
    assert not bench.pool.spares_sends()
    free = bench.read("b", "free")
    await bench.run_all()
    await free
    assert set(bench.done) == {"held back", "free"}


async def bytes_read(
    bench: Bench, seconds: float, *, incoming_bytes_per_s: int = 0, messages_per_s: int = 100
) -> int:
    """What one reader gets that always wants more, with messages sent all the time."""
    read = 0
    for _ in range(int(seconds * 100)):
        bench.clock.advance_ms(10)
        bench.counters.batches_in += 1
        bench.counters.bytes_in += incoming_bytes_per_s // 100
        bench.counters.messages_in += messages_per_s // 100
        assert bench.pool.spares_sends()
        for _ in range(50):
            task = asyncio.create_task(bench.pool.run_in_turn("a", 64 * 1024, lambda: None))
            await bench.settle()
            if not bench.executor.submitted:
                task.cancel()
                await bench.settle()
                break
            bench.pool.spend(64 * 1024)
            read += 64 * 1024
            await bench.run_all()
    return read


async def test_a_reader_may_always_read_faster_than_messages_come_in() -> None:
    bench = Bench(threads=2, bytes_per_s=MIB)
    read = await bytes_read(bench, 2, incoming_bytes_per_s=10 * MIB)
    assert 15 * MIB < read / 2 < 25 * MIB
    assert bench.pool.step_bytes == STEP_BYTES


async def test_many_small_messages_keep_readers_to_the_pace() -> None:
    bench = Bench(threads=2, bytes_per_s=MIB)
    read = await bytes_read(bench, 3, messages_per_s=2 * MANY_MESSAGES_PER_S)
    assert read / 3 < 1.5 * MIB
    assert bench.pool.step_bytes == STEP_BYTES


async def test_a_trickle_of_messages_holds_nobody_back_while_the_loop_is_on_time() -> None:
    bench = Bench(threads=2, bytes_per_s=MIB)
    await bytes_read(bench, 1)
    assert await bytes_read(bench, 1) > 3.5 * MIB
    assert bench.pool.step_bytes == LIGHT_STEP_BYTES
    await bytes_read(bench, 0.5, messages_per_s=2 * MANY_MESSAGES_PER_S)
    assert await bytes_read(bench, 1, messages_per_s=2 * MANY_MESSAGES_PER_S) < 1.5 * MIB


async def test_a_trickle_of_messages_holds_readers_to_the_pace_while_the_loop_is_late() -> None:
    bench = Bench(threads=2, bytes_per_s=MIB)
    await bytes_read(bench, 1)
    bench.loop_delay.last_ms = LATE_MS + 1
    await bytes_read(bench, 1.5)
    assert await bytes_read(bench, 2) / 2 < 1.5 * MIB
    assert bench.pool.step_bytes == STEP_BYTES
    bench.loop_delay.last_ms = LATE_MS
    await bytes_read(bench, 1)
    assert await bytes_read(bench, 1) > 3.5 * MIB


async def test_a_read_held_back_goes_on_by_itself_in_time() -> None:
    bench = Bench(threads=2, bytes_per_s=10 * MIB)
    bench.counters.batches_in += 1
    assert bench.pool.spares_sends()
    async with bench.pool.turn("a", MIB):
        bench.pool.spend(MIB)  # a tenth of a second
    held = bench.read("a", "held back")
    await bench.settle()
    assert not bench.executor.submitted
    bench.clock.advance_ms(100)
    async with asyncio.timeout(5):
        while not bench.executor.submitted:
            await asyncio.sleep(0.01)
    await bench.run_all()
    await held


async def test_what_nobody_waits_for_keeps_its_turn_until_its_thread_is_done() -> None:
    """Else the next one would have a turn and no thread."""
    bench = Bench(threads=1)
    cancelled: list[bool] = []
    left = asyncio.create_task(
        bench.pool.run_in_turn("a", 100, lambda: None, lambda: cancelled.append(True))
    )
    await bench.settle()
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert cancelled == [True]
    bench.read("b", "next")
    await bench.settle()
    assert len(bench.executor.submitted) == 1
    assert bench.counters.cold_reads_waiting == 1
    bench.executor.run_next()
    await bench.settle()
    assert len(bench.executor.submitted) == 1
    await bench.run_all()
    assert bench.done == ["next"]


async def test_lookups_leave_threads_for_consumers() -> None:
    bench = Bench(threads=4)
    for number in range(8):
        bench.read(LOOKUPS, f"lookup {number}")
    await bench.settle()
    assert len(bench.executor.submitted) == LOOKUP_THREADS_MAX
    bench.read("consumer", "cold")
    await bench.settle()
    assert len(bench.executor.submitted) == LOOKUP_THREADS_MAX + 1
    await bench.run_all()
    assert len(bench.done) == 9
