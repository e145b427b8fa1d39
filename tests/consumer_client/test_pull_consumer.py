"""PullConsumer against a real broker."""

from __future__ import annotations

import asyncio
import time

import pytest

from aerobee.consumer_client import (
    ConsumerConfig,
    MessageQueue,
    PullConsumer,
)
from aerobee.runtime import errors
from tests.support.own_topic import OwnTopic
from tests.support.waiting import until

ONE_QUEUE = pytest.mark.aerobee_topic(queues=1)


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


async def take(consumer: PullConsumer, count: int, at_once: int = 500) -> list[bytes]:
    bodies: list[bytes] = []
    async with asyncio.timeout(8):
        while len(bodies) < count:
            bodies += [message.body for message in await consumer.poll(at_once)]
    return bodies


@ONE_QUEUE
async def test_poll_gives_what_was_asked_in_order_and_nothing_when_there_is_nothing(
    own: OwnTopic,
) -> None:
    await own.store(numbered(25))
    consumer = own.pull()
    async with consumer:
        first = await consumer.poll(10, timeout=5)
        assert [message.body for message in first] == numbered(10)
        assert consumer.position(own.queue()) == 10
        assert await take(consumer, 15, at_once=7) == numbered(25)[10:]
        assert await consumer.poll(timeout=0.05) == []
        assert await consumer.poll(timeout=0) == []
        statistics = consumer.statistics()
        assert statistics.handled == 25
        assert consumer.statistics().queues[0].position == 25


@ONE_QUEUE
async def test_auto_commit_covers_what_the_next_poll_acknowledged(own: OwnTopic) -> None:
    await own.store(numbered(10))
    consumer = own.pull()
    async with consumer:
        await take(consumer, 4, at_once=4)
        await asyncio.sleep(0.3)
        assert (await own.offsets()).get(0, 0) == 0
        await consumer.poll(3)

        async def is_committed() -> bool:
            return await own.offsets() == {0: 4}

        await until(is_committed)
        await consumer.aclose()
    # The last poll's messages were not acknowledged: they come again.
    assert await own.offsets() == {0: 4}


@ONE_QUEUE
async def test_commit_acknowledges_all_that_was_handed_out(own: OwnTopic) -> None:
    await own.store(numbered(10))
    consumer = own.pull(auto_commit=False)
    async with consumer:
        await take(consumer, 6, at_once=6)
        await consumer.commit()
        assert await consumer.committed([own.queue()]) == {own.queue(): 6}
        await take(consumer, 4)
    assert await own.offsets() == {0: 6}


@ONE_QUEUE
async def test_going_back_reads_again_and_does_not_move_the_group_back(own: OwnTopic) -> None:
    """What was done stays done, for whoever takes the queue next; a reset is what moves it back."""
    await own.store(numbered(10))
    consumer = own.pull(auto_commit=False)
    async with consumer:
        assert await take(consumer, 6, at_once=6) == numbered(6)
        await consumer.commit()
        consumer.seek(own.queue(), 2)
        assert await take(consumer, 3, at_once=3) == numbered(10)[2:5]
        await consumer.commit()
        assert await consumer.committed([own.queue()]) == {own.queue(): 6}
        assert await take(consumer, 3, at_once=3) == numbered(10)[5:8]
        await consumer.commit()
        assert await consumer.committed([own.queue()]) == {own.queue(): 8}
    await own.reset(own.group_name, own.topic, 0, 1)
    assert await own.offsets() == {0: 1}


@ONE_QUEUE
async def test_batches_hold_whole_frames_and_mix_with_single_messages(own: OwnTopic) -> None:
    await own.store(numbered(50))
    consumer = own.pull()
    async with consumer:
        assert [m.body for m in await consumer.poll(20, timeout=5)] == numbered(20)
        bodies: list[bytes] = []
        while len(bodies) < 30:
            for batch in await consumer.poll_batches(timeout=5):
                assert batch.queue == own.queue()
                bodies += batch.bodies()
        assert bodies == numbered(50)[20:]
        assert consumer.position(own.queue()) == 50


@ONE_QUEUE
async def test_tags_filter_batches_and_messages(own: OwnTopic) -> None:
    for tag in ("Aa", "BB", "Aa", "C"):
        await own.store([tag.encode()], tag=tag)
    consumer = own.pull("Aa")
    async with consumer:
        assert await take(consumer, 2) == [b"Aa", b"Aa"]
        await consumer.poll(timeout=0.1)

        # What the filter left out after the last match counts as done, too.
        async def is_committed() -> bool:
            await consumer.poll(timeout=0)
            return await own.offsets() == {0: 4}

        await until(is_committed)


@ONE_QUEUE
async def test_seek_goes_anywhere_and_is_corrected_at_the_ends(own: OwnTopic) -> None:
    await own.store(numbered(20))
    consumer = own.pull()
    async with consumer:
        await take(consumer, 20)
        consumer.seek(own.queue(), 15)
        assert consumer.position(own.queue()) == 15
        assert await take(consumer, 5) == numbered(20)[15:]
        consumer.seek(own.queue(), 0)
        assert await take(consumer, 3, at_once=3) == numbered(3)
        consumer.seek(own.queue(), 1_000)
        assert await consumer.poll(timeout=0.3) == []
        await own.store([b"new"])
        assert await take(consumer, 1) == [b"new"]
        with pytest.raises(errors.InvalidArgument):
            consumer.seek(own.queue(), -1)
        with pytest.raises(errors.InvalidArgument, match="not read by this consumer"):
            consumer.seek(MessageQueue(own.topic, "broker-z", 0), 1)


@ONE_QUEUE
async def test_offsets_by_bounds_and_time(own: OwnTopic) -> None:
    await own.store(numbered(3))
    await asyncio.sleep(0.02)
    timestamp_ms = time.time_ns() // 1_000_000
    await asyncio.sleep(0.02)
    await own.store(numbered(2))
    async with own.unsubscribed() as consumer:
        queues = await consumer.queues_of(own.topic)
        assert queues == [own.queue()]
        assert await consumer.begin_offsets(queues) == {own.queue(): 0}
        assert await consumer.end_offsets(queues) == {own.queue(): 5}
        assert await consumer.offsets_for_time(queues, timestamp_ms) == {own.queue(): 3}
        assert await consumer.committed(queues) == {own.queue(): None}


async def test_assigned_queues_are_read_and_committed_while_no_member_holds_them(
    own: OwnTopic,
) -> None:
    for queue_id in range(4):
        await own.store(numbered(5, f"{queue_id}:"), queue_id)
    consumer = own.unsubscribed(auto_commit=False)
    queues = [own.queue(queue_id) for queue_id in range(4)]
    async with consumer:
        await consumer.assign(queues[1:3])
        assert sorted(await take(consumer, 10)) == sorted(numbered(5, "1:") + numbered(5, "2:"))
        await consumer.commit()
        await consumer.assign([queues[2], queues[3]])
        assert sorted(await take(consumer, 5)) == numbered(5, "3:")
        assert consumer.assignment == [queues[2], queues[3]]
        async with own.push(lambda messages: None) as member:
            await until(lambda: len(member.statistics().queues) == 4)
            with pytest.raises(errors.LeaseHeld):
                await consumer.commit()
    committed = await own.offsets()
    assert committed[1] == committed[2] == 5


@ONE_QUEUE
async def test_assign_and_subscribe_exclude_each_other(own: OwnTopic) -> None:
    async with own.pull() as consumer:
        with pytest.raises(errors.InvalidArgument):
            await consumer.assign([own.queue()])
        with pytest.raises(errors.InvalidArgument):
            consumer.subscribe("orders")
    with pytest.raises(errors.ShuttingDown, match="is closed"):
        await consumer.poll()
    with pytest.raises(errors.InvalidArgument, match="async with"):
        await own.pull().poll()


async def test_paused_queues_keep_quiet_until_resumed(own: OwnTopic) -> None:
    await own.store(numbered(5, "0:"))
    await own.store(numbered(5, "1:"), 1)
    quiet = own.queue()
    consumer = own.pull()
    consumer.pause([quiet])
    async with consumer:
        assert await take(consumer, 5) == numbered(5, "1:")
        assert await consumer.poll(timeout=0.2) == []
        consumer.resume([quiet])
        assert await take(consumer, 5) == numbered(5, "0:")


async def test_a_queue_that_moves_waits_for_the_messages_in_hand(own: OwnTopic) -> None:
    for queue_id in range(4):
        await own.store(numbered(10), queue_id)
    first = own.pull(client_id="m1")
    second = own.pull(client_id="m2")
    async with first:
        await until(lambda: sum(queue.cached_messages for queue in first.statistics().queues) == 40)
        in_hand = await first.poll(100)
        async with second:
            await asyncio.sleep(0.5)
            assert second.assignment == []
            [held] = second.obstacles()
            assert held.startswith(f"2 of the 2 queues of {own.topic} that this member is to read")
            assert "session timeout (1 s)" in held
            assert held.endswith(": m1")
            await first.poll(timeout=0)
            await until(lambda: len(second.assignment) == 2)
            assert second.obstacles() == []
            assert await second.poll(timeout=0.2) == []
    assert len(in_hand) == 40


@ONE_QUEUE
async def test_a_member_without_a_queue_says_who_has_them(own: OwnTopic) -> None:
    async with own.pull(client_id="m1") as first, own.pull(client_id="m2") as second:
        told = (
            f"all queues of {own.topic} are read by other members of group {own.group_name!r}: m1"
        )
        await until(lambda: second.obstacles() == [told])
        await until(lambda: len(first.assignment) == 1)
        assert first.obstacles() == []


@ONE_QUEUE
async def test_prefetching_is_bounded_by_bytes(own: OwnTopic) -> None:
    for _ in range(4):
        await own.store([bytes(10_000)] * 100)
    options = ConsumerConfig(
        session_timeout_ms=1_000, prefetch_bytes_max=1_000_000, fetch_bytes_max=100_000
    )
    consumer = own.pull(config=options)
    async with consumer:
        await until(lambda: consumer.statistics().cached_bytes > 900_000)
        await asyncio.sleep(0.2)
        assert consumer.statistics().cached_bytes < 1_150_000
        assert len(await take(consumer, 400, at_once=30)) == 400


@ONE_QUEUE
async def test_poll_goes_on_waiting_when_only_the_hashes_of_tags_matched(own: OwnTopic) -> None:
    # "Aa" and "BB" have one hash: these messages come and are left out here.
    await own.store(numbered(3), tag="BB")
    consumer = own.pull("Aa")
    async with consumer, asyncio.TaskGroup() as tasks:
        poll = tasks.create_task(consumer.poll(timeout=5))
        await asyncio.sleep(0.3)
        assert not poll.done()
        await own.store([b"wanted"], tag="Aa")
        assert [message.body for message in await poll] == [b"wanted"]


@ONE_QUEUE
async def test_a_poll_of_no_messages_is_refused(own: OwnTopic) -> None:
    await own.store(numbered(1))
    async with own.pull() as consumer:
        with pytest.raises(errors.InvalidArgument, match="max_messages must be at least 1, not 0"):
            await consumer.poll(0)
        with pytest.raises(errors.InvalidArgument, match="max_batches must be at least 1, not -1"):
            await consumer.poll_batches(-1)
        with pytest.raises(errors.InvalidArgument, match="timeout must be a number of seconds"):
            await consumer.poll(timeout=None)  # type: ignore[arg-type]


async def test_a_poll_for_which_nothing_can_come_says_so(own: OwnTopic) -> None:
    async with own.unsubscribed() as consumer:
        with pytest.raises(errors.InvalidArgument, match="subscribe to a topic, or assign queues"):
            await consumer.poll(timeout=0.1)
