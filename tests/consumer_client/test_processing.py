"""Messages of a pull consumer that are done, or come again, one by one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee import BlockingPullConsumer, PullConsumer, errors
from aerobee.client_core.message import ReceivedMessage
from aerobee.consumer_client.unfinished import Unfinished
from tests.support.own_topic import OwnTopic
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.aerobee_topic(queues=1)


class Failed(Exception):
    """What a block of a test raises."""


def one_by_one(own: OwnTopic) -> PullConsumer:
    return own.pull(auto_commit=False)


async def polled(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += await consumer.poll(count - len(found))
    return found


async def test_a_failed_message_comes_again_and_holds_the_offset_of_those_after_it(
    own: OwnTopic,
) -> None:
    await own.store([b"0", b"1", b"2", b"3", b"4", b"5"])
    async with one_by_one(own) as consumer:
        for message in await polled(consumer, 5):
            try:
                async with consumer.processing(message) as handled:
                    assert handled is message
                    if message.body in (b"1", b"3"):
                        raise Failed
            except Failed:
                continue
        again = await polled(consumer, 3)
        # Failed ones first, then what nobody has seen yet.
        assert [(m.body, m.reconsume_times) for m in again] == [(b"1", 1), (b"3", 1), (b"5", 0)]
        async with consumer.processing(again[0]):
            pass
    # Closing commits the lowest that is not done: 3 failed, and 4 is done behind it.
    assert await own.offsets() == {0: 3}
    async with one_by_one(own) as consumer:
        assert [m.body for m in await polled(consumer, 3)] == [b"3", b"4", b"5"]


async def test_commit_leaves_out_what_is_in_a_block_or_failed(own: OwnTopic) -> None:
    await own.store([b"0", b"1", b"2", b"3"])
    async with one_by_one(own) as consumer:
        _, first, second, _ = await polled(consumer, 4)
        failing = consumer.processing(first)
        failing.begin()
        async with consumer.processing(second):
            await consumer.commit()
            assert await own.offsets() == {0: 1}
        failing.end(Failed())
        await consumer.commit()
        assert await own.offsets() == {0: 1}
        (again,) = await polled(consumer, 1)
        async with consumer.processing(again):
            pass
        await consumer.commit()
        assert await own.offsets() == {0: 4}


async def test_a_queue_that_moves_waits_for_blocks_and_not_for_failed_messages(
    own: OwnTopic,
) -> None:
    await own.store([b"0", b"1"])
    async with one_by_one(own) as consumer:
        first, second = await polled(consumer, 2)
        with pytest.raises(Failed):
            async with consumer.processing(second):
                raise Failed
        (queue,) = consumer.assignment
        owned = consumer._pull_queue(queue)
        draining = asyncio.create_task(owned.drain(PATIENCE_S * 10))
        async with consumer.processing(first):
            await asyncio.sleep(0.01)
            assert not draining.done()
        async with asyncio.timeout(PATIENCE_S):
            await draining


async def test_only_what_no_other_call_acknowledges_can_be_processed(own: OwnTopic) -> None:
    await own.store([b"0"])
    consumer = own.pull()
    async with consumer:
        (message,) = await polled(consumer, 1)
        with pytest.raises(errors.InvalidArgument, match="auto_commit=False"):
            consumer.processing(message)


async def test_a_failed_message_comes_as_a_batch_too(own: OwnTopic) -> None:
    await own.store([b"0", b"1"])
    async with one_by_one(own) as consumer:
        for message in await polled(consumer, 2):
            with pytest.raises(Failed):
                async with consumer.processing(message):
                    raise Failed
        batches = await consumer.poll_batches(timeout=PATIENCE_S)
        assert [body for batch in batches for body in batch.bodies()] == [b"0", b"1"]
        await consumer.commit()
    assert await own.offsets() == {0: 2}


async def test_without_an_event_loop(own: OwnTopic) -> None:
    await own.store([b"0", b"1", b"2"])

    def script() -> list[bytes]:
        consumer = BlockingPullConsumer(own.group_name, **own.options(auto_commit=False)).subscribe(
            own.topic
        )
        seen: list[bytes] = []
        with consumer:
            for message in consumer:
                seen.append(message.body)
                try:
                    with consumer.processing(message):
                        if len(seen) == 2:
                            raise Failed
                except Failed:
                    continue
                if len(seen) == 4:
                    return seen
        raise AssertionError

    assert await asyncio.to_thread(script) == [b"0", b"1", b"1", b"2"]
    assert await own.offsets() == {0: 3}


class Handed(ReceivedMessage):
    """A message without a record."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    @property
    def queue_offset(self) -> int:
        return self.offset


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=12),
    st.lists(st.tuples(st.sampled_from("bdfctpu"), st.integers(0, 11)), max_size=60),
)
def test_the_frontier_is_always_the_lowest_that_is_not_finished(
    steps: list[int], acts: list[tuple[str, int]]
) -> None:
    """Against a list of what each message is: handed, open, failed or done."""
    unfinished = Unfinished(0, lambda: None)
    messages: list[Handed] = []
    state: list[str] = []
    position = 0
    for act, number in acts:
        if act == "p" and steps:
            # One message more, after offsets that a filter left out.
            offset = position + steps.pop() - 1
            messages.append(Handed(offset))
            state.append("handed")
            unfinished.hand_out([(offset, 1, messages[-1])], position, offset + 1)
            position = offset + 1
        elif act == "c":
            unfinished.finish_all(position)
            state = ["done" if each == "handed" else each for each in state]
        elif act == "t":
            for message in unfinished.take_failed(1):
                state[messages.index(message)] = "handed"  # type: ignore[arg-type]
        elif number < len(messages):
            message, was = messages[number], state[number]
            if act == "b":
                unfinished.begin(message)
                state[number] = "done" if was == "done" else "open"
            elif act == "d":
                unfinished.finish(message)
                state[number] = "done" if was == "open" else was
            elif act == "u" and was == "handed":
                unfinished.put_back(message)
                state[number] = "failed"
            elif act == "f":
                unfinished.fail(message)
                state[number] = "failed" if was == "open" else was
        left = [m.in_hand[1] for m, each in zip(messages, state, strict=True) if each != "done"]
        assert unfinished.frontier == (left[0] if left else position)
        assert unfinished.has_failed == ("failed" in state)
        assert unfinished.is_in_hand(position) == bool({"handed", "open"} & set(state))
