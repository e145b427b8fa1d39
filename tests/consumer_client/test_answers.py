"""What listeners answer: reject, again in a while, and an answer for each message of a batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from aerobee.consumer_client import (
    Batch,
    BlockingPullConsumer,
    ConsumerConfig,
    ConsumeResult,
    Ordering,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    RetryLater,
    StartFrom,
)
from aerobee.consumer_client.answers import Answer, reason_of_reject
from aerobee.consumer_client.listener import Listener
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.format.dead_letter_fields import read_dead_letter
from tests.consumer_client.test_sent_back_messages import dead_letters, start
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    cluster = await start(tmp_path)
    yield cluster
    await cluster.stop()


def push(
    cluster: RealCluster, quick: ConsumerConfig, listener: Listener, **more: object
) -> PushConsumer:
    consumer = PushConsumer(
        "g",
        listener,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=quick,
        run_in_thread=False,
        **more,  # type: ignore[arg-type]
    )
    return consumer.subscribe("single")


@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("is_raised", [True, False])
async def test_a_rejected_message_is_a_dead_letter_at_once(
    cluster: RealCluster, quick: ConsumerConfig, ordering: Ordering, is_raised: bool
) -> None:
    await cluster.send("single", 0, [b"good", b"bad", b"after"])
    seen: list[bytes] = []

    def handle(messages: Sequence[ReceivedMessage]) -> Reject | None:
        seen.append(messages[0].body)
        if messages[0].body != b"bad":
            return None
        try:
            int(messages[0].body)
        except ValueError as error:
            if is_raised:
                raise Reject("no number") from error
        return Reject("no number")

    async with push(cluster, quick, handle, ordering=ordering) as consumer:
        await until(lambda: len(seen) == 3 and consumer.statistics().sent_back == 1)
        (letter,) = await dead_letters(cluster)
        assert consumer.statistics().lag == 0
    assert seen == [b"good", b"bad", b"after"]
    death = read_dead_letter(letter.record).death
    assert (letter.body, death.attempts, death.reason_class) == (b"bad", 1, "Reject")
    place = ""
    if is_raised:
        line = handle.__code__.co_firstlineno + 5
        place = f" [test_answers.py:{line} in handle: ValueError: invalid literal for int() with "
        place += "base 10: b'bad']"
    assert death.reason == f"no number{place}"


@pytest.mark.parametrize("ordering", list(Ordering))
async def test_a_message_comes_again_when_its_listener_says(
    cluster: RealCluster, quick: ConsumerConfig, ordering: Ordering
) -> None:
    await cluster.send("single", 0, [b"0"])
    times: list[tuple[int, int]] = []

    def handle(messages: Sequence[ReceivedMessage]) -> RetryLater | None:
        times.append((SystemClock().now_ms(), messages[0].reconsume_times))
        if len(times) == 1:
            raise RetryLater("the bank is closed", after=timedelta(seconds=0.7))
        return RetryLater(after=0) if len(times) == 2 else None

    async with push(cluster, quick, handle, ordering=ordering):
        await until(lambda: len(times) == 3)
    assert [attempts for _, attempts in times] == [0, 1, 2]
    assert times[1][0] - times[0][0] >= 700


@pytest.mark.parametrize("ordering", list(Ordering))
async def test_messages_of_a_batch_have_answers_of_their_own(
    cluster: RealCluster, quick: ConsumerConfig, ordering: Ordering
) -> None:
    await cluster.send("single", 0, [b"0", b"1", b"2", b"3"])
    seen: list[list[bytes]] = []

    def handle(batch: Batch) -> None:
        seen.append([message.body for message in batch])
        for index, message in enumerate(batch):
            if message.body == b"1":
                batch.reject(index, "never")
            if message.body == b"2" and not message.reconsume_times:
                batch.retry_later(index, after=0.01)

    consumer = push(cluster, quick, handle, ordering=ordering, consume_batch_max=4)
    async with consumer:
        await until(lambda: consumer.statistics().lag == 0 and len(seen) > 1)
    (letter,) = await dead_letters(cluster)
    assert (letter.body, read_dead_letter(letter.record).death.reason) == (b"1", "never")
    again = [b"2", b"3"] if ordering is Ordering.ORDERLY else [b"2"]
    assert seen == [[b"0", b"1", b"2", b"3"], again]


async def test_the_rest_of_a_batch_is_as_the_call_says(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, [b"0", b"1", b"2"])
    seen: list[list[bytes]] = []

    def handle(batch: Batch) -> ConsumeResult:
        seen.append([message.body for message in batch])
        if len(seen) > 1:
            return ConsumeResult.SUCCESS
        batch.answer(1, Reject("never"))
        return ConsumeResult.RETRY_LATER

    consumer = push(
        cluster, quick, handle, ordering=Ordering.ORDERLY, consume_batch_max=3, suspend_ms=10
    )
    async with consumer:
        await until(lambda: consumer.statistics().lag == 0 and len(seen) > 1)
    assert seen == [[b"0", b"1", b"2"], [b"0", b"2"]]
    assert [letter.body for letter in await dead_letters(cluster)] == [b"1"]


async def test_a_rejected_message_does_not_wait_for_on_exhausted(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, [b"0"])

    def handle(messages: Sequence[ReceivedMessage]) -> Reject:
        return Reject("never")

    def exhausted(messages: Sequence[ReceivedMessage], failures: int) -> None:
        raise AssertionError

    consumer = push(cluster, quick, handle, on_exhausted=exhausted)
    async with consumer:
        await until(lambda: consumer.statistics().sent_back == 1)
    assert len(await dead_letters(cluster)) == 1


async def test_without_a_broker_a_rejected_message_is_skipped(
    cluster: RealCluster, quick: ConsumerConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.send("single", 0, [b"0"])

    def handle(messages: Sequence[ReceivedMessage]) -> Reject:
        return Reject("never")

    consumer = push(cluster, quick, handle, broadcasting=True, offsets_folder=tmp_path / "o")
    async with consumer:
        await until(lambda: consumer.statistics().skipped == 1)
    assert any(
        record.levelno == logging.ERROR and "never" in str(record.__dict__)
        for record in caplog.records
    )


def pull(cluster: RealCluster, quick: ConsumerConfig) -> PullConsumer:
    return PullConsumer(
        "g",
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        auto_commit=False,
        config=quick,
    ).subscribe("single")


async def test_a_block_answers_for_its_message(cluster: RealCluster, quick: ConsumerConfig) -> None:
    await cluster.send("single", 0, [b"0", b"1", b"2"])
    async with pull(cluster, quick) as consumer:
        messages: list[ReceivedMessage] = []
        while len(messages) < 3:
            messages += await consumer.poll()
        async with consumer.processing(messages[0]):
            raise Reject("never")
        async with consumer.processing(messages[1]):
            raise RetryLater(after=0.5)
        async with consumer.processing(messages[2]):
            pass
        began_ms = SystemClock().now_ms()
        again: list[ReceivedMessage] = []
        while not again:
            again = await consumer.poll()
        assert SystemClock().now_ms() - began_ms >= 400
        assert [(message.body, message.reconsume_times) for message in again] == [(b"1", 1)]
        async with consumer.processing(again[0]):
            pass
        await consumer.commit()
        assert consumer.statistics().lag == 0
    assert [letter.body for letter in await dead_letters(cluster)] == [b"0"]


async def test_a_blocking_block_answers_for_its_message(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, [b"0", b"1"])

    def work() -> list[bytes]:
        seen: list[bytes] = []
        with BlockingPullConsumer(
            "g",
            nameservers=cluster.address,
            start_from=StartFrom.FIRST,
            auto_commit=False,
            config=quick,
        ).subscribe("single") as consumer:
            for message in consumer:
                seen.append(message.body)
                with consumer.processing(message):
                    if message.body == b"0":
                        raise Reject("never")
                    if not message.reconsume_times:
                        raise RetryLater(after=0.01)
                if len(seen) == 3:
                    return seen
        raise AssertionError

    assert await asyncio.to_thread(work) == [b"0", b"1", b"1"]
    assert [letter.body for letter in await dead_letters(cluster)] == [b"0"]


def test_the_reason_of_a_reject_says_where_it_was_raised() -> None:
    assert reason_of_reject(Reject("r")) == "r"
    with pytest.raises(Answer) as caught:
        raise Reject("r")
    error = caught.value
    assert isinstance(error, Reject)
    assert error.__traceback__ is not None
    line = error.__traceback__.tb_lineno
    name = test_the_reason_of_a_reject_says_where_it_was_raised.__name__
    assert reason_of_reject(error) == f"r [test_answers.py:{line} in {name}]"


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), True, "5", 1e12])
def test_a_wait_is_a_time(after: object) -> None:
    with pytest.raises(InvalidArgument):
        RetryLater(after=after)  # type: ignore[arg-type]


def test_a_batch_knows_its_indices() -> None:
    with pytest.raises(IndexError):
        Batch().reject(0, "r")
