"""The listener pool alone: the deadline before each call, slices of the loop, what a drop ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from aerobee.client_core import MessageQueue, ReceivedMessage
from aerobee.consumer_client.attempts import Attempts, Counted
from aerobee.consumer_client.flow_control import FlowLimits
from aerobee.consumer_client.listener import Listener, ListenerOptions, Ordering
from aerobee.consumer_client.listener_pool import SLICE_S, ListenerPool
from aerobee.consumer_client.owned_queue import Assignment
from aerobee.consumer_client.push_queue import PushQueue
from aerobee.consumer_client.retry_schedule import RetryPolicy
from aerobee.runtime.clock import Clock, ManualClock, SystemClock
from aerobee.store.format.record import HostAddress, encode_record
from tests.support.waiting import until


class Lease:
    """A trust whose deadline the test sets."""

    is_confirmed = True

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self.deadline_s = clock.monotonic_s() + seconds
        self.held: list[PushQueue] = []

    def check_deadline(self) -> bool:
        if self._clock.monotonic_s() < self.deadline_s:
            return True
        for queue in self.held:
            queue.drop()
        return False

    def on_refused(self, queue: MessageQueue, lease_epoch: int, reason: str) -> None:
        raise AssertionError


def frame(first: int, count: int) -> bytes:
    records = []
    for offset in range(first, first + count):
        record = bytearray(
            encode_record(
                topic=b"t",
                body=b"%d" % offset,
                properties=b"",
                born_timestamp_ms=1,
                born_host=HostAddress(b"\x7f\0\0\1", 1),
            )
        )
        record[20:28] = offset.to_bytes(8, "big")
        records.append(bytes(record))
    return b"".join(records)


def new_queue(
    pool: ListenerPool, lease: Lease, number: int = 0, attempts: Attempts | None = None
) -> PushQueue:
    queue = PushQueue(
        Assignment(MessageQueue("t", "b", number), "*", 1, lease),
        0,
        FlowLimits(),
        on_ready=pool.on_ready,
        on_room=lambda queue: None,
        on_dropped=pool.forget,
        attempts=attempts,
    )
    lease.held.append(queue)
    return queue


@asynccontextmanager
async def running(
    listener: Listener,
    clock: Clock,
    options: ListenerOptions | None = None,
    attempts: Attempts | None = None,
) -> AsyncIterator[ListenerPool]:
    pool = ListenerPool(listener, options or ListenerOptions(), clock=clock, attempts=attempts)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(pool.run())
        try:
            yield pool
        finally:
            task.cancel()


async def test_no_call_begins_after_the_deadline_not_even_in_the_middle_of_a_full_queue() -> None:
    clock = ManualClock()
    lease = Lease(clock, seconds=1.0)
    seen: list[int] = []

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(messages[0].queue_offset)
        clock.advance_ms(100)  # a slow listener, and nothing else had a chance to notice

    async with running(listener, clock) as pool:
        queue = new_queue(pool, lease)
        queue.on_records(frame(0, 50), 50, 50)
        await until(lambda: queue.is_dropped)
    assert seen == list(range(10))


async def test_a_dropped_queue_cancels_the_listeners_that_wait_and_finishes_nothing() -> None:
    clock = SystemClock()
    lease = Lease(clock, seconds=100)
    ends: list[str] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async with running(listener, clock, ListenerOptions(max_concurrency=5)) as pool:
        queue = new_queue(pool, lease)
        queue.on_records(frame(0, 8), 8, 8)
        await until(lambda: queue.messages.running_count == 5)
        queue.drop()
        await until(lambda: len(ends) == 5)
        assert queue.safe_offset == 0
        # The workers live on and serve the queue when it is taken again.
        again = new_queue(pool, lease)
        again.on_records(frame(0, 8), 8, 8)
        await until(lambda: again.messages.running_count == 5)
        assert pool.counters.handled == 0
        assert pool.counters.failed_calls == 0


async def test_retries_of_a_dropped_queue_are_forgotten() -> None:
    clock = SystemClock()

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        raise RuntimeError("no")

    options = ListenerOptions(retry=RetryPolicy(delays_ms=(60_000,)))
    async with running(listener, clock, options) as pool:
        queue = new_queue(pool, Lease(clock, seconds=100))
        queue.on_records(frame(0, 8), 8, 8)
        await until(lambda: pool.retrying == 8)
        queue.drop()
        assert pool.retrying == 0


async def test_a_quick_listener_leaves_the_loop_to_others_after_a_slice() -> None:
    clock = SystemClock()
    turns: list[int] = []
    handled = 0

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal handled
        handled += 1

    async def bystander() -> None:
        while handled < 20_000:
            turns.append(handled)
            await asyncio.sleep(0)

    async with running(listener, clock) as pool:
        queue = new_queue(pool, Lease(clock, seconds=100))
        queue.on_records(frame(0, 20_000), 20_000, 20_000)
        began_s = clock.monotonic_s()
        await bystander()
        elapsed_s = clock.monotonic_s() - began_s
    assert len(turns) >= elapsed_s / SLICE_S / 4


async def test_a_listener_that_swallows_its_own_cancellation_counts_as_what_it_returns() -> None:
    clock = SystemClock()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        raise asyncio.CancelledError

    options = ListenerOptions(retry=RetryPolicy(delays_ms=(60_000,)))
    async with running(listener, clock, options) as pool:
        queue = new_queue(pool, Lease(clock, seconds=100))
        queue.on_records(frame(0, 3), 3, 3)
        await until(lambda: pool.counters.failed_calls == 3)
        assert pool.retrying == 3


async def test_while_a_plain_listener_has_a_message_only_those_before_it_are_finished() -> None:
    clock = SystemClock()
    seen: list[tuple[int, int]] = []

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append((messages[0].queue_offset, queue.safe_offset))

    async with running(listener, clock) as pool:
        queue = new_queue(pool, Lease(clock, seconds=100))
        queue.on_records(frame(0, 20), 20, 20)
        await until(lambda: len(seen) == 20)
        assert seen == [(offset, offset) for offset in range(20)]
        assert (queue.safe_offset, queue.messages.cached_bytes) == (20, 0)
        assert pool.counters.handled == 20


async def test_a_failure_amid_plain_calls_keeps_only_its_own_message() -> None:
    clock = SystemClock()
    seen: list[int] = []

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(messages[0].queue_offset)
        if messages[0].queue_offset == 7:
            raise ValueError("not this one")

    async with running(listener, clock) as pool:
        queue = new_queue(pool, Lease(clock, seconds=100))
        queue.on_records(frame(0, 20), 20, 20)
        await until(lambda: len(seen) == 20)
        assert seen == list(range(20))
        assert (queue.safe_offset, queue.messages.running_count) == (7, 1)
        assert pool.counters.handled == 19


async def test_queues_take_turns_of_a_slice() -> None:
    clock = ManualClock()
    seen: list[int] = []

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(messages[0].queue.queue_id)
        clock.advance_ms(int(SLICE_S * 1e3) + 1)

    async with running(listener, clock, ListenerOptions(max_concurrency=1)) as pool:
        for number in range(3):
            queue = new_queue(pool, Lease(clock, seconds=100), number)
            queue.on_records(frame(0, 3), 3, 3)
        await until(lambda: len(seen) == 9)
    assert seen == [0, 1, 2] * 3


@pytest.mark.parametrize("ordering", list(Ordering))
async def test_a_suspect_of_a_death_is_with_the_listener_alone(ordering: Ordering) -> None:
    """On queues beside each other, some suspects, all of them slow."""
    attempts = Attempts()
    suspects = {(number, offset) for number in (0, 1) for offset in (2, 3, 7)}
    attempts.inherit(
        [
            Counted(MessageQueue("t", "b", number), offset, 0, 0, 1 << 60, is_suspect=True)
            for number, offset in suspects
        ]
    )
    seen: dict[tuple[int, int], int] = {}
    running_now: set[tuple[int, int]] = set()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            place = message.queue.queue_id, message.queue_offset
            running_now.add(place)
            seen[place] = 0
            for other in running_now:
                seen[other] = max(seen[other], len(running_now))
            await asyncio.sleep(0.002)
            running_now.discard(place)

    options = ListenerOptions(max_concurrency=4, ordering=ordering)
    async with running(listener, SystemClock(), options, attempts) as pool:
        for number in range(3):
            queue = new_queue(pool, Lease(SystemClock(), seconds=100), number, attempts)
            queue.on_records(frame(0, 12), 12, 12)
        await until(lambda: pool.counters.handled == 36)
    assert {place for place in seen if place in suspects and seen[place] > 1} == set()
    assert max(seen.values()) > 1, "the others were handled beside each other"


async def test_a_suspect_whose_queue_is_taken_away_while_it_waits_holds_nothing_up() -> None:
    attempts = Attempts()
    suspect = Counted(MessageQueue("t", "b", 0), 1, 0, 0, 1 << 60, is_suspect=True)
    attempts.inherit([suspect])
    seen: list[tuple[int, int]] = []
    release = asyncio.Event()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.append((messages[0].queue.queue_id, messages[0].queue_offset))
        if messages[0].queue.queue_id == 1:
            await release.wait()

    options = ListenerOptions(max_concurrency=3)
    async with running(listener, SystemClock(), options, attempts) as pool:
        other = new_queue(pool, Lease(SystemClock(), seconds=100), 1, attempts)
        other.on_records(frame(0, 1), 1, 1)
        await until(lambda: (1, 0) in seen)
        queue = new_queue(pool, Lease(SystemClock(), seconds=100), 0, attempts)
        queue.on_records(frame(0, 3), 3, 3)
        await until(lambda: (0, 0) in seen)
        await until(lambda: queue.messages.running_count == 1)  # It waits for the long call.
        queue.drop()
        release.set()
        third = new_queue(pool, Lease(SystemClock(), seconds=100), 2, attempts)
        third.on_records(frame(0, 3), 3, 3)
        await until(lambda: pool.counters.handled == 5)
    assert (0, 1) not in seen
