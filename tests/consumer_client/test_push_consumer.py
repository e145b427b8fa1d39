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
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until

QUICK_RETRY = RetryPolicy(attempts_max=3, delays_ms=(10,))


class Collector:
    """A plain listener that keeps bodies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.bodies += [message.body for message in messages]


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


async def test_a_plain_listener_gets_every_message_of_every_queue(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    for queue_id in range(4):
        await cluster.send("orders", queue_id, numbered(500, f"q{queue_id}-"))
    seen = Collector()
    consumer = PushConsumer(
        "g",
        seen,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("orders")
    async with consumer:
        await until(lambda: len(seen.bodies) >= 2_000)
        await cluster.send("orders", 2, [b"late"])
        await until(lambda: b"late" in seen.bodies)
        statistics = consumer.statistics()
        assert statistics.handled == 2_001
        assert statistics.lag == 0
        assert [queue.queue.queue_id for queue in statistics.queues] == [0, 1, 2, 3]
    assert len(seen.bodies) == len(set(seen.bodies)) == 2_001
    assert await cluster.committed("g") == {
        ("orders", 0): 500,
        ("orders", 1): 500,
        ("orders", 2): 501,
        ("orders", 3): 500,
    }
    assert await cluster.holders("g") == {}
    assert list((await cluster.group("g")).members) == []


async def test_an_asynchronous_listener_runs_up_to_max_concurrency_at_a_time(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, numbered(40))
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

    consumer = PushConsumer(
        "g",
        listener,
        nameservers=cluster.address,
        max_concurrency=7,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: done == 40)
    assert most == 7


async def test_batches_are_as_large_as_asked_and_of_one_queue(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    for queue_id in range(4):
        await cluster.send("orders", queue_id, numbered(25))
    calls: list[tuple[int, set[int]]] = []

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        calls.append((len(messages), {message.queue.queue_id for message in messages}))

    consumer = PushConsumer(
        "g",
        listener,
        nameservers=cluster.address,
        consume_batch_max=10,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("orders")
    async with consumer:
        await until(lambda: sum(count for count, _ in calls) == 100)
    assert all(len(queues) == 1 for _, queues in calls)
    assert sorted(count for count, _ in calls) == [5] * 4 + [10] * 8


async def test_tags_are_filtered_by_text_even_when_their_hashes_are_equal(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    # "Aa" and "BB" have one Java hash: the broker lets both through.
    for tag in ("Aa", "BB", "other", "wanted", ""):
        await cluster.send("single", 0, [f"tag:{tag}".encode()], tag=tag)
    seen = Collector()
    consumer = PushConsumer(
        "g",
        seen,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single", " Aa || wanted ")
    async with consumer:
        await until(lambda: len(seen.bodies) == 2)
        await until(lambda: consumer.statistics().queues[0].safe_offset == 5)
    assert seen.bodies == [b"tag:Aa", b"tag:wanted"]
    assert await cluster.committed("g") == {("single", 0): 5}


async def test_a_failing_message_is_handled_again_and_holds_the_offset_back(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, numbered(10))
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

    consumer = PushConsumer(
        "g",
        listener,
        nameservers=cluster.address,
        retry=QUICK_RETRY,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: attempts.count(b"m3") > 6 and attempts.count(b"m5") == 3)
        assert consumer.statistics().queues[0].safe_offset == 3
        await asyncio.sleep(0.2)
        assert await cluster.committed("g") == {("single", 0): 3}
        heal = True
        await until(lambda: consumer.statistics().queues[0].safe_offset == 10)
        assert consumer.statistics().failed_calls >= 8
    assert await cluster.committed("g") == {("single", 0): 10}
    assert set(attempts) == set(numbered(10))


async def test_only_on_exhausted_may_skip_a_message(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, numbered(3))
    asked: list[tuple[bytes, int]] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        if messages[0].body == b"m1":
            raise ValueError("poison")

    async def on_exhausted(messages: Sequence[ReceivedMessage], failures: int) -> Exhausted:
        asked.append((messages[0].body, failures))
        return Exhausted.SKIP if failures == 4 else Exhausted.KEEP_RETRYING

    consumer = PushConsumer(
        "g",
        listener,
        nameservers=cluster.address,
        retry=QUICK_RETRY,
        on_exhausted=on_exhausted,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: consumer.statistics().skipped == 1)
    assert asked == [(b"m1", 3), (b"m1", 4)]
    assert await cluster.committed("g") == {("single", 0): 3}


async def test_orderly_repeats_the_failed_message_before_any_other_of_its_queue(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    for queue_id in range(4):
        await cluster.send("orders", queue_id, numbered(20, f"{queue_id}:"))
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

    consumer = PushConsumer(
        "g",
        listener,
        nameservers=cluster.address,
        ordering=Ordering.ORDERLY,
        suspend_ms=20,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("orders")
    async with consumer:
        await until(lambda: sum(map(len, order.values())) == 80)
    assert order == {queue_id: numbered(20, f"{queue_id}:") for queue_id in range(4)}
    assert len(failed) == 8


@pytest.mark.parametrize(
    ("start_from", "expected"),
    [(StartFrom.FIRST, b"old"), (StartFrom.LAST, b"new"), (StartFrom.TIMESTAMP, b"mid")],
)
async def test_where_a_new_group_starts(
    cluster: RealCluster,
    quick: ConsumerConfig,
    start_from: StartFrom,
    expected: bytes,
) -> None:
    import time

    await cluster.send("single", 0, [b"old"])
    await asyncio.sleep(0.02)
    timestamp_ms = time.time_ns() // 1_000_000
    await cluster.send("single", 0, [b"mid"])
    seen = Collector()
    consumer = PushConsumer(
        "g",
        seen,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=start_from,
        start_timestamp_ms=timestamp_ms if start_from is StartFrom.TIMESTAMP else None,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: consumer.statistics().queues)
        await cluster.send("single", 0, [b"new"])
        await until(lambda: seen.bodies and seen.bodies[-1] == b"new")
    assert seen.bodies[0] == expected


async def test_a_committed_offset_wins_over_the_start_policy(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, numbered(5))
    first = Collector()
    async with PushConsumer(
        "g",
        first,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single"):
        await until(lambda: len(first.bodies) == 5)
    await cluster.send("single", 0, [b"between"])
    second = Collector()
    async with PushConsumer(
        "g",
        second,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.LAST,
        config=quick,
    ).subscribe("single"):
        await until(lambda: second.bodies == [b"between"])


async def test_last_is_remembered_at_once_so_that_a_crash_loses_nothing(
    cluster: RealCluster,
) -> None:
    await cluster.send("single", 0, numbered(5))
    slow_commits = ConsumerConfig(session_timeout_ms=1_000, commit_interval_ms=60_000)
    consumer = PushConsumer(
        "g", Collector(), run_in_thread=False, nameservers=cluster.address, config=slow_commits
    )
    async with consumer.subscribe("single"):

        async def is_committed() -> bool:
            return await cluster.committed("g") == {("single", 0): 5}

        await until(is_committed)


async def test_closing_waits_for_running_listeners_and_commits_exactly_the_safe_offset(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, numbered(10))
    release = asyncio.Event()
    finished: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        offset = messages[0].queue_offset
        if offset == 4:
            raise RuntimeError("stays unfinished")
        if offset == 2:
            await release.wait()
        finished.append(offset)

    consumer = PushConsumer(
        "g",
        listener,
        nameservers=cluster.address,
        max_concurrency=3,
        retry=RetryPolicy(),  # it waits in the member
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: len(finished) == 8)
        asyncio.get_running_loop().call_later(0.1, release.set)
    assert sorted(finished) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert await cluster.committed("g") == {("single", 0): 4}


@pytest.mark.parametrize(
    ("release_ms", "close_ms"), [(100, 10_000), (5_000, 2_000)], ids=["release", "close"]
)
async def test_a_listener_that_outlasts_a_timeout_is_cancelled_and_those_before_it_committed(
    release_ms: int, close_ms: int, cluster: RealCluster
) -> None:
    await cluster.send("single", 0, numbered(3))
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
    consumer = PushConsumer(
        "g", listener, nameservers=cluster.address, start_from=StartFrom.FIRST, config=options
    ).subscribe("single")
    async with consumer:
        await until(lambda: outcome == ["started"])
    assert outcome == ["started", "cancelled"]
    assert await cluster.committed("g") == {("single", 0): 1}


async def test_an_operators_reset_takes_the_queue_back_to_the_offset(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    await cluster.send("single", 0, numbered(6))
    seen = Collector()
    consumer = PushConsumer(
        "g",
        seen,
        run_in_thread=False,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: len(seen.bodies) == 6)
        await cluster.reset("g", "single", 0, 4)
        await until(lambda: len(seen.bodies) == 8)
    assert seen.bodies[6:] == [b"m4", b"m5"]


async def test_a_second_live_member_with_the_same_client_id_is_refused(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    first = PushConsumer(
        "g",
        Collector(),
        run_in_thread=False,
        nameservers=cluster.address,
        client_id="same",
        config=quick,
    )
    async with first.subscribe("single"):
        await until(lambda: first.statistics().queues)
        second = PushConsumer(
            "g",
            Collector(),
            run_in_thread=False,
            nameservers=cluster.address,
            client_id="same",
            config=quick,
        )
        with pytest.raises(errors.DuplicateClient, match="'same' is in use"):
            await second.subscribe("single").run()


async def test_an_unknown_topic_is_one_clear_error(cluster: RealCluster) -> None:
    consumer = PushConsumer(
        "g", Collector(), run_in_thread=False, nameservers=cluster.address
    ).subscribe("nowhere")
    with pytest.raises(errors.TopicNotFound, match="'nowhere'"):
        await consumer.start()


async def test_bad_settings_are_refused_where_they_are_written(cluster: RealCluster) -> None:
    with pytest.raises(errors.IllegalName):
        PushConsumer("bad group", Collector(), run_in_thread=False, nameservers=cluster.address)
    with pytest.raises(errors.InvalidArgument):
        PushConsumer(
            "g", Collector(), run_in_thread=False, nameservers=cluster.address, max_concurrency=0
        )
    with pytest.raises(errors.InvalidArgument):
        PushConsumer(
            "g",
            Collector(),
            run_in_thread=False,
            nameservers=cluster.address,
            start_from=StartFrom.TIMESTAMP,
        )
    with pytest.raises(errors.FilterIllegal):
        PushConsumer("g", Collector(), run_in_thread=False, nameservers=cluster.address).subscribe(
            "single", "a || *"
        )
    with pytest.raises(errors.InvalidArgument, match="subscribe"):
        await PushConsumer(
            "g", Collector(), run_in_thread=False, nameservers=cluster.address
        ).start()


@pytest.mark.parametrize("in_thread", [False, True], ids=["on the loop", "in a thread"])
async def test_what_a_listener_returns_by_mistake_is_a_failure_not_a_success(
    in_thread: bool, cluster: RealCluster, quick: ConsumerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.send("single", 0, numbered(1))

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        return len(messages)  # type: ignore[return-value]

    consumer = PushConsumer(
        "g",
        listener,
        run_in_thread=in_thread,
        nameservers=cluster.address,
        retry=QUICK_RETRY,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: consumer.statistics().failed_calls > 2)
        assert consumer.statistics().handled == 0
    assert (
        "the listener returned int: return None or ConsumeResult.SUCCESS when the messages are "
        "done, ConsumeResult.RETRY_LATER to have them again"
    ) in caplog.text


async def test_a_listener_that_takes_its_list_for_one_message_is_told_so(
    cluster: RealCluster, quick: ConsumerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.send("single", 0, numbered(1))
    consumer = PushConsumer(
        "g",
        lambda message: print(message.body),  # type: ignore[attr-defined]
        run_in_thread=False,
        nameservers=cluster.address,
        retry=QUICK_RETRY,
        start_from=StartFrom.FIRST,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: consumer.statistics().failed_calls > 0)
    assert "called with a list of messages, not with one: loop over it" in caplog.text


async def test_run_returns_after_stop(cluster: RealCluster, quick: ConsumerConfig) -> None:
    consumer = PushConsumer(
        "g", Collector(), run_in_thread=False, nameservers=cluster.address, config=quick
    ).subscribe("single")
    asyncio.get_running_loop().call_later(0.2, consumer.stop)
    async with asyncio.timeout(5):
        await consumer.run()


async def test_an_error_of_the_users_block_goes_on_as_it_is(
    cluster: RealCluster, quick: ConsumerConfig
) -> None:
    consumer = PushConsumer(
        "g", Collector(), run_in_thread=False, nameservers=cluster.address, config=quick
    ).subscribe("single")
    with pytest.raises(ZeroDivisionError):
        async with consumer:
            raise ZeroDivisionError
