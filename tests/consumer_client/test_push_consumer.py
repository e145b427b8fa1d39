"""PushConsumer against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aerobee.consumer_client import (
    ConsumerConfig,
    ConsumeResult,
    Exhausted,
    Ordering,
    PushConsumer,
    ReceivedMessage,
    RetryPolicy,
    StartFrom,
)
from aerobee.runtime import errors
from tests.support.own_topic import OwnTopic
from tests.support.waiting import until

ONE_QUEUE = pytest.mark.aerobee_topic(queues=1)

QUICK_RETRY = RetryPolicy(attempts_max=3, delays_ms=(10,))


class Collector:
    """A plain listener that keeps bodies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


async def test_a_plain_listener_gets_every_message_of_every_queue(own: OwnTopic) -> None:
    for queue_id in range(4):
        await own.store(numbered(500, f"q{queue_id}-"), queue_id)
    seen = Collector()
    consumer = own.push(seen)
    async with consumer:
        await until(lambda: len(seen.bodies) >= 2_000)
        await own.store([b"late"], 2)
        await until(lambda: b"late" in seen.bodies)
        statistics = consumer.statistics()
        assert statistics.handled == 2_001
        assert statistics.lag == 0
        assert [queue.queue.queue_id for queue in consumer.statistics().queues] == [0, 1, 2, 3]
    assert len(seen.bodies) == len(set(seen.bodies)) == 2_001
    assert await own.offsets() == {0: 500, 1: 500, 2: 501, 3: 500}
    assert await own.holders(own.group_name) == {}
    assert list((await own.group(own.group_name)).members) == []


@ONE_QUEUE
async def test_an_asynchronous_listener_runs_up_to_max_concurrency_at_a_time(own: OwnTopic) -> None:
    await own.store(numbered(40))
    running = 0
    most = 0
    done = 0

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done += len(messages)
        return ConsumeResult.SUCCESS

    consumer = own.push(listener, max_concurrency=7)
    async with consumer:
        await until(lambda: done == 40)
    assert most == 7


async def test_batches_are_as_large_as_asked_and_of_one_queue(own: OwnTopic) -> None:
    for queue_id in range(4):
        await own.store(numbered(25), queue_id)
    calls: list[tuple[int, set[int]]] = []

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        calls.append((len(messages), {message.queue.queue_id for message in messages}))

    consumer = own.push(listener, consume_batch_max=10, run_in_thread=True)
    async with consumer:
        await until(lambda: sum(count for count, _ in calls) == 100)
    assert all(len(queues) == 1 for _, queues in calls)
    assert sorted(count for count, _ in calls) == [5] * 4 + [10] * 8


@ONE_QUEUE
async def test_tags_are_filtered_by_text_even_when_their_hashes_are_equal(own: OwnTopic) -> None:
    # "Aa" and "BB" have one Java hash: the broker lets both through.
    for tag in ("Aa", "BB", "other", "wanted", ""):
        await own.store([f"tag:{tag}".encode()], tag=tag)
    seen = Collector()
    consumer = own.push(seen, " Aa || wanted ")
    async with consumer:
        await until(lambda: len(seen.bodies) == 2)
        await until(lambda: consumer.statistics().queues[0].safe_offset == 5)
    assert seen.bodies == [b"tag:Aa", b"tag:wanted"]
    assert await own.offsets() == {0: 5}


@ONE_QUEUE
async def test_a_failing_message_is_handled_again_and_holds_the_offset_back(own: OwnTopic) -> None:
    await own.store(numbered(10))
    attempts: list[bytes] = []
    heal = False

    def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
        body = messages[0].body
        attempts.append(body)
        if body == b"m3" and not heal:
            raise RuntimeError("no")
        if body == b"m5" and attempts.count(b"m5") < 3:
            return ConsumeResult.RETRY_LATER
        return None

    consumer = own.push(listener, retry=QUICK_RETRY, run_in_thread=True)
    async with consumer:
        await until(lambda: attempts.count(b"m3") > 6 and attempts.count(b"m5") == 3)
        assert consumer.statistics().queues[0].safe_offset == 3
        await asyncio.sleep(0.2)
        assert await own.offsets() == {0: 3}
        heal = True
        await until(lambda: consumer.statistics().queues[0].safe_offset == 10)
        assert consumer.statistics().failed_calls >= 8
    assert await own.offsets() == {0: 10}
    assert set(attempts) == set(numbered(10))


@ONE_QUEUE
async def test_only_on_exhausted_may_skip_a_message(own: OwnTopic) -> None:
    await own.store(numbered(3))
    asked: list[tuple[bytes, int]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body == b"m1":
            raise ValueError("poison")

    async def on_exhausted(messages: Sequence[ReceivedMessage], failures: int) -> Exhausted:
        asked.append((messages[0].body, failures))
        return Exhausted.SKIP if failures == 4 else Exhausted.KEEP_RETRYING

    consumer = own.push(listener, retry=QUICK_RETRY, on_exhausted=on_exhausted)
    async with consumer:
        await until(lambda: consumer.statistics().skipped == 1)
    assert asked == [(b"m1", 3), (b"m1", 4)]
    assert await own.offsets() == {0: 3}


async def test_orderly_repeats_the_failed_message_before_any_other_of_its_queue(
    own: OwnTopic,
) -> None:
    for queue_id in range(4):
        await own.store(numbered(20, f"{queue_id}:"), queue_id)
    order: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(4)}
    failed: set[bytes] = set()
    at_work: set[int] = set()

    async def listener(messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
        queue_id = messages[0].queue.queue_id
        assert queue_id not in at_work
        at_work.add(queue_id)
        await asyncio.sleep(0)
        at_work.discard(queue_id)
        body = messages[0].body
        if body.endswith(b"7") and body not in failed:
            failed.add(body)
            return ConsumeResult.RETRY_LATER
        order[queue_id].append(body)
        return None

    consumer = own.push(listener, ordering=Ordering.ORDERLY, suspend_ms=20)
    async with consumer:
        await until(lambda: sum(map(len, order.values())) == 80)
    assert order == {queue_id: numbered(20, f"{queue_id}:") for queue_id in range(4)}
    assert len(failed) == 8


@pytest.mark.parametrize(
    ("start_from", "expected"),
    [(StartFrom.FIRST, b"old"), (StartFrom.LAST, b"new"), (StartFrom.TIMESTAMP, b"mid")],
)
@ONE_QUEUE
async def test_where_a_new_group_starts(
    own: OwnTopic,
    start_from: StartFrom,
    expected: bytes,
) -> None:
    import time

    await own.store([b"old"])
    await asyncio.sleep(0.02)
    timestamp_ms = time.time_ns() // 1_000_000
    await own.store([b"mid"])
    seen = Collector()
    since_ms = timestamp_ms if start_from is StartFrom.TIMESTAMP else None
    consumer = own.push(seen, start_from=start_from, start_timestamp_ms=since_ms)
    async with consumer:
        await until(lambda: consumer.statistics().queues)
        await own.store([b"new"])
        await until(lambda: seen.bodies and seen.bodies[-1] == b"new")
    assert seen.bodies[0] == expected


@ONE_QUEUE
async def test_a_committed_offset_wins_over_the_start_policy(own: OwnTopic) -> None:
    await own.store(numbered(5))
    first = Collector()
    async with own.push(first):
        await until(lambda: len(first.bodies) == 5)
    await own.store([b"between"])
    second = Collector()
    async with own.push(second, start_from=StartFrom.LAST):
        await until(lambda: second.bodies == [b"between"])


@ONE_QUEUE
async def test_last_is_remembered_at_once_so_that_a_crash_loses_nothing(
    own: OwnTopic,
) -> None:
    await own.store(numbered(5))
    slow_commits = ConsumerConfig(session_timeout_ms=1_000, commit_interval_ms=60_000)
    async with own.push(Collector(), start_from=StartFrom.LAST, config=slow_commits):

        async def is_committed() -> bool:
            return await own.offsets() == {0: 5}

        await until(is_committed)


@ONE_QUEUE
async def test_closing_waits_for_running_listeners_and_commits_exactly_the_safe_offset(
    own: OwnTopic,
) -> None:
    await own.store(numbered(10))
    release = asyncio.Event()
    finished: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        offset = messages[0].queue_offset
        if offset == 4:
            raise RuntimeError("stays unfinished")
        if offset == 2:
            await release.wait()
        finished.append(offset)

    consumer = own.push(listener, max_concurrency=3, retry=RetryPolicy())
    async with consumer:
        await until(lambda: len(finished) == 8)
        asyncio.get_running_loop().call_later(0.1, release.set)
    assert sorted(finished) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert await own.offsets() == {0: 4}


@pytest.mark.parametrize(
    ("release_ms", "close_ms"), [(100, 10_000), (5_000, 2_000)], ids=["release", "close"]
)
@ONE_QUEUE
async def test_a_listener_that_outlasts_a_timeout_is_cancelled_and_those_before_it_committed(
    release_ms: int, close_ms: int, own: OwnTopic
) -> None:
    await own.store(numbered(3))
    outcome: list[str] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].queue_offset == 1:
            try:
                outcome.append("started")
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                outcome.append("cancelled")
                raise

    options = ConsumerConfig(
        session_timeout_ms=1_000,
        commit_interval_ms=60_000,
        release_timeout_ms=release_ms,
        close_timeout_ms=close_ms,
    )
    consumer = own.push(listener, config=options)
    async with consumer:
        await until(lambda: outcome == ["started"])
    assert outcome == ["started", "cancelled"]
    assert await own.offsets() == {0: 1}


@ONE_QUEUE
async def test_an_operators_reset_takes_the_queue_back_to_the_offset(own: OwnTopic) -> None:
    await own.store(numbered(6))
    seen = Collector()
    consumer = own.push(seen)
    async with consumer:
        await until(lambda: len(seen.bodies) == 6)
        await own.reset(own.group_name, own.topic, 0, 4)
        await until(lambda: len(seen.bodies) == 8)
    assert seen.bodies[6:] == [b"m4", b"m5"]


@ONE_QUEUE
async def test_a_second_live_member_with_the_same_client_id_is_refused(own: OwnTopic) -> None:
    async with own.push(Collector(), client_id="same") as first:
        await until(lambda: first.statistics().queues)
        with pytest.raises(errors.DuplicateClient, match="'same' is in use"):
            await own.push(Collector(), client_id="same").run()


async def test_an_unknown_topic_is_one_clear_error(own: OwnTopic) -> None:
    consumer = PushConsumer("g", Collector(), nameservers=own.nameservers).subscribe("nowhere")
    with pytest.raises(errors.TopicNotFound, match="'nowhere'"):
        await consumer.start()


async def test_bad_settings_are_refused_where_they_are_written() -> None:
    with pytest.raises(errors.IllegalName):
        PushConsumer("bad group", Collector())
    with pytest.raises(errors.InvalidArgument):
        PushConsumer("g", Collector(), max_concurrency=0)
    with pytest.raises(errors.InvalidArgument):
        PushConsumer("g", Collector(), start_from=StartFrom.TIMESTAMP)
    with pytest.raises(errors.FilterIllegal):
        PushConsumer("g", Collector()).subscribe("single", "a || *")
    with pytest.raises(errors.InvalidArgument, match="subscribe"):
        await PushConsumer("g", Collector()).start()


@pytest.mark.parametrize("in_thread", [False, True], ids=["on the loop", "in a thread"])
@ONE_QUEUE
async def test_what_a_listener_returns_by_mistake_is_a_failure_not_a_success(
    in_thread: bool, own: OwnTopic, caplog: pytest.LogCaptureFixture
) -> None:
    await own.store(numbered(1))

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        return len(messages)  # type: ignore[return-value]

    consumer = own.push(listener, run_in_thread=in_thread, retry=QUICK_RETRY)
    async with consumer:
        await until(lambda: consumer.statistics().failed_calls > 2)
        assert consumer.statistics().handled == 0
    assert (
        "the listener returned int: return None or ConsumeResult.SUCCESS when the messages are "
        "done, ConsumeResult.RETRY_LATER or RetryLater(...) to have them again, Reject(...) to "
        "make them dead letters"
    ) in caplog.text


@ONE_QUEUE
async def test_a_listener_that_takes_its_list_for_one_message_is_told_so(
    own: OwnTopic, caplog: pytest.LogCaptureFixture
) -> None:
    await own.store(numbered(1))
    consumer = own.push(
        lambda message: print(message.body),  # type: ignore[attr-defined]
        retry=QUICK_RETRY,
    )
    async with consumer:
        await until(lambda: consumer.statistics().failed_calls > 0)
    assert "called with a list of messages, not with one: loop over it" in caplog.text


@ONE_QUEUE
async def test_run_returns_after_stop(own: OwnTopic) -> None:
    consumer = own.push(Collector())
    asyncio.get_running_loop().call_later(0.2, consumer.stop)
    async with asyncio.timeout(5):
        await consumer.run()


@ONE_QUEUE
async def test_an_error_of_the_users_block_goes_on_as_it_is(own: OwnTopic) -> None:
    consumer = own.push(Collector())
    with pytest.raises(ZeroDivisionError):
        async with consumer:
            raise ZeroDivisionError
