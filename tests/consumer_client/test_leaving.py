"""How a pull consumer is left decides what comes again: a block that went well leaves nothing
behind, one that an exception ended has its last messages again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from aerobee import BlockingPullConsumer, PullConsumer
from aerobee.client_core.loop_thread import LoopThread
from tests.support.own_topic import OwnTopic
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.aerobee_topic(queues=1)

SENT = 6


class Failed(Exception):
    """What a block of a test raises."""


def blocking_consumer_of(own: OwnTopic) -> BlockingPullConsumer:
    return BlockingPullConsumer(own.group_name, **own.options()).subscribe(own.topic)


async def send_some(own: OwnTopic) -> None:
    await own.store([b"%d" % n for n in range(SENT)])


async def committed(own: OwnTopic) -> int:
    return (await own.offsets()).get(0, 0)


async def third_in_hand(consumer: PullConsumer) -> None:
    count = 0
    async for _ in consumer:
        count += 1
        if count == 3:
            break


async def returning(consumer: PullConsumer) -> None:
    async with consumer:
        async for message in consumer:
            if message.body == b"2":
                return


async def breaking(consumer: PullConsumer) -> None:
    async with consumer:
        await third_in_hand(consumer)


async def polling(consumer: PullConsumer) -> None:
    async with consumer:
        assert len(await consumer.poll(2, timeout=PATIENCE_S)) == 2
        assert len(await consumer.poll(1, timeout=PATIENCE_S)) == 1


@pytest.mark.parametrize("leave", [breaking, returning, polling])
async def test_what_the_block_got_is_committed_and_what_was_prefetched_is_not(
    leave: Callable[[PullConsumer], Awaitable[None]], own: OwnTopic
) -> None:
    await send_some(own)
    await leave(own.pull())
    assert await committed(own) == 3


async def test_whole_batches_are_committed(own: OwnTopic) -> None:
    await send_some(own)
    async with own.pull() as consumer:
        batches = await consumer.poll_batches(timeout=PATIENCE_S)
    assert await committed(own) == sum(batch.count for batch in batches) > 0


@pytest.mark.parametrize("kind", [Failed, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
async def test_an_exception_has_the_last_message_delivered_again(
    kind: type[BaseException], own: OwnTopic
) -> None:
    await send_some(own)

    # An exit in a task of its own would end the loop of all tests.
    task = asyncio.current_task()
    assert task is not None

    async def program() -> None:
        async with own.pull() as consumer:
            await third_in_hand(consumer)
            if kind is asyncio.CancelledError:
                asyncio.get_running_loop().call_soon(task.cancel)
                await asyncio.sleep(PATIENCE_S)
            raise kind

    with pytest.raises(kind):
        await program()
    if kind is asyncio.CancelledError:
        task.uncancel()
    assert await committed(own) == 2


async def test_closed_by_hand_the_last_message_is_delivered_again_unless_committed(
    own: OwnTopic,
) -> None:
    await send_some(own)
    for expected in (2, 5):
        consumer = own.pull()
        await consumer.start()
        await third_in_hand(consumer)
        if expected == 5:
            await consumer.commit()
        await consumer.aclose()
        assert await committed(own) == expected


async def test_without_auto_commit_only_finished_blocks_count(own: OwnTopic) -> None:
    await send_some(own)
    async with own.pull(auto_commit=False) as consumer:
        async for message in consumer:
            if message.body == b"2":
                break
            async with consumer.processing(message):
                pass
    assert await committed(own) == 2


async def test_blocking_blocks_do_the_same(own: OwnTopic) -> None:
    await send_some(own)

    def breaks() -> None:
        with blocking_consumer_of(own) as consumer:
            for message in consumer:
                if message.body == b"1":
                    break

    def raises() -> None:
        with blocking_consumer_of(own) as consumer:
            for message in consumer:
                if message.body == b"3":
                    raise Failed

    def closes() -> None:
        consumer = blocking_consumer_of(own)
        consumer.start()
        for message in consumer:
            if message.body == b"4":
                break
        consumer.close()

    await asyncio.to_thread(breaks)
    assert await committed(own) == 2
    with pytest.raises(Failed):
        await asyncio.to_thread(raises)
    assert await committed(own) == 3
    await asyncio.to_thread(closes)
    assert await committed(own) == 4


@pytest.mark.parametrize("as_batches", [False, True])
async def test_what_an_interrupted_poll_had_taken_comes_with_the_next(
    as_batches: bool, own: OwnTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the moment when the messages are taken, and their caller does not have them yet."""
    await send_some(own)
    interrupts = iter([True])

    def script() -> list[bytes]:
        with blocking_consumer_of(own) as consumer:
            call = LoopThread.call

            def interrupted(thread: LoopThread[Any], ask: Callable[..., Any]) -> object:
                answer: object = call(thread, ask)
                if isinstance(answer, list) and answer and next(interrupts, False):
                    raise KeyboardInterrupt
                return answer

            monkeypatch.setattr(LoopThread, "call", interrupted)

            def poll() -> Sequence[bytes]:
                if not as_batches:
                    return [message.body for message in consumer.poll(2, timeout=PATIENCE_S)]
                batches = consumer.poll_batches(1, timeout=PATIENCE_S)
                return [*itertools.chain.from_iterable(batch.bodies() for batch in batches)]

            with pytest.raises(KeyboardInterrupt):
                poll()
            seen: list[bytes] = []
            while len(seen) < SENT - 1:
                seen += poll()
            return seen

    seen = await asyncio.to_thread(script)
    assert seen == [b"%d" % n for n in range(len(seen))]
    assert await committed(own) == len(seen)
