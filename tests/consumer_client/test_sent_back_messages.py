"""Messages that fail go back to the broker, come again later, and end as dead letters."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee.cluster_view.methods import CONFIGURE_GROUP
from aerobee.consumer_client import (
    ConsumerConfig,
    ConsumeResult,
    Ordering,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.store.format.dead_letter_fields import read_dead_letter
from aerobee.v1 import broker_pb2
from tests.support.real_brokers import BrokerProcess, RealBroker, RealCluster, RouteServer
from tests.support.waiting import until

LEVELS_MS = [20] * 18
"""So that the delays of 16 attempts last a moment."""


async def start(folder: Path) -> RealCluster:
    """One broker whose delay levels are short."""
    broker = await RealBroker(
        "broker-a",
        folder / "broker-a",
        {"orders": 2, "single": 1},
        store_options={"delay_levels_ms": tuple(LEVELS_MS)},  # type: ignore[dict-item]
    ).start()
    nameserver = await RouteServer([broker]).start()
    nameserver.has_retry_topics = True
    return RealCluster({"broker-a": broker}, nameserver)


async def limit_retries(cluster: RealCluster, retries_max: int, group: str = "g") -> None:
    """In order as well, where it is not the default."""
    settings = broker_pb2.RetrySettings(retries_max=retries_max)
    request = broker_pb2.ConfigureGroupRequest(group=group, retry=settings)
    (broker,) = cluster.brokers.values()
    await cluster.channels.call(broker.address, CONFIGURE_GROUP, request)


class Journal:
    """What a listener was given: by body, the attempts as they came."""

    def __init__(self, *failing: bytes, attempts: int = 1_000) -> None:
        """These bodies fail as long as they have fewer `attempts`."""
        self._failing = failing
        self._attempts = attempts
        self.seen: dict[bytes, list[int]] = defaultdict(list)
        self.messages: list[ReceivedMessage] = []

    def handle(self, messages: Sequence[ReceivedMessage]) -> ConsumeResult | None:
        for message in messages:
            self.seen[message.body].append(message.reconsume_times)
            self.messages.append(message)
            if message.body in self._failing and message.reconsume_times < self._attempts:
                if message.body == b"later":
                    return ConsumeResult.RETRY_LATER
                raise ValueError(f"cannot read {message.body.decode()}")
        return None


async def dead_letters(cluster: RealCluster, group: str = "g") -> list[ReceivedMessage]:
    # Each call reads them all.
    async with PullConsumer(
        "reader", nameservers=cluster.address, start_from=StartFrom.FIRST, auto_commit=False
    ) as consumer:
        queues = await consumer.queues_of(f"%DLQ%{group}")
        ends = await consumer.end_offsets(queues)
        await consumer.assign(queues)
        found: list[ReceivedMessage] = []
        while len(found) < sum(ends.values()):
            found += await consumer.poll(100, timeout=5.0)
    return found


async def test_a_failed_message_comes_again_and_knows_where_it_comes_from(
    tmp_path: Path, quick: ConsumerConfig
) -> None:
    cluster = await start(tmp_path)
    journal = Journal(b"bad", b"later", attempts=2)
    try:
        await cluster.send("single", 0, [b"bad", b"good", b"later"])
        consumer = PushConsumer(
            "g",
            journal.handle,
            run_in_thread=False,
            nameservers=cluster.address,
            start_from=StartFrom.FIRST,
            config=quick,
        ).subscribe("single")
        async with consumer:
            await until(lambda: journal.seen[b"bad"] == journal.seen[b"later"] == [0, 1, 2])
            await until(lambda: consumer.statistics().sent_back == 4)
            assert [queue.queue.topic for queue in consumer.statistics().queues] == ["single"]
            assert [queue.queue.topic for queue in consumer.statistics().retry_queues] == [
                "%RETRY%g"
            ]
        assert journal.seen[b"good"] == [0]
        first, *_, last = (message for message in journal.messages if message.body == b"bad")
        assert (first.topic, last.topic) == ("single", "%RETRY%g")
        assert last.origin_topic == "single"
        assert last.message_id == first.message_id
        assert last.origin_message_id == first.offset_message_id
        assert last.born_timestamp_ms == first.born_timestamp_ms
        assert (await cluster.committed("g"))["single", 0] == 3
    finally:
        await cluster.stop()


@pytest.mark.parametrize("ordering", Ordering)
async def test_the_log_says_which_attempt_failed_of_how_many_and_what_follows(
    ordering: Ordering, tmp_path: Path, quick: ConsumerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = await start(tmp_path)
    journal = Journal(b"bad")
    try:
        await limit_retries(cluster, 16)
        await cluster.send("single", 0, [b"bad"])
        consumer = PushConsumer(
            "g",
            journal.handle,
            run_in_thread=False,
            nameservers=cluster.address,
            start_from=StartFrom.FIRST,
            ordering=ordering,
            suspend_ms=20,
            config=quick,
        ).subscribe("single")
        async with consumer:
            await until(lambda: "message became a dead letter" in caplog.text)
            await until(lambda: consumer.statistics().retrying == 0)
    finally:
        await cluster.stop()
    lines = [each for each in caplog.records if each.getMessage().startswith("listener failed")]
    attempts = [
        re.search(r" attempt=(\d+) attempts_max=17 follows=\"(.*)\" reason", line.getMessage())
        for line in lines
    ]
    told = [(int(match[1]), match[2]) for match in attempts if match]
    assert len(told) == len(lines)
    unlogged = [int(each) for each in re.findall(r" unlogged_failures=(\d+)", caplog.text)]
    assert len(told) + sum(unlogged) == 17, "in its place a message has fewer lines, which count"
    assert any(unlogged) == (ordering is Ordering.ORDERLY)
    expected = dict.fromkeys(range(1, 17), "again in 0.02 s")
    expected[17] = "becomes a dead letter of %DLQ%g"
    assert told == [(attempt, expected[attempt]) for attempt, _ in told]
    assert (told[0][0], told[-1][0]) == (1, 17)
    assert lines[-1].levelno == logging.ERROR
    (death,) = [each for each in caplog.messages if "became a dead letter" in each]
    (message_id,) = {message.message_id for message in journal.messages}
    assert death.startswith(
        f"message became a dead letter group=g topic=single message_id={message_id} "
        "attempts=17 dead_letter_topic=%DLQ%g "
    )


async def test_a_failed_attempt_is_in_the_log_while_its_broker_does_not_answer(
    tmp_path: Path, quick: ConsumerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = await start(tmp_path)
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        entered.set()
        await go_on.wait()
        raise ValueError("cannot read it")

    try:
        await cluster.send("single", 0, [b"bad"])
        consumer = PushConsumer(
            "g",
            handle,
            nameservers=cluster.address,
            start_from=StartFrom.FIRST,
            config=quick,
        ).subscribe("single")
        async with consumer:
            await entered.wait()
            await cluster.brokers["broker-a"].stop()
            go_on.set()
            await until(lambda: "listener failed" in caplog.text)
            assert consumer.statistics().sent_back == 0
            await cluster.brokers["broker-a"].start()
    finally:
        await cluster.stop()
    (line,) = [each for each in caplog.messages if each.startswith("listener failed")]
    assert " attempt=1 attempts_max=unknown follows=" in line


@pytest.mark.parametrize("start_from", [StartFrom.FIRST, StartFrom.LAST])
async def test_a_group_that_is_deleted_and_used_again_gets_its_own_failed_messages_alone(
    tmp_path: Path, quick: ConsumerConfig, start_from: StartFrom
) -> None:
    cluster = await start(tmp_path)
    former, own = Journal(b"bad", attempts=1), Journal(b"worse", attempts=1)

    def consumer(journal: Journal, start_from: StartFrom) -> PushConsumer:
        made = PushConsumer(
            "g",
            journal.handle,
            run_in_thread=False,
            nameservers=cluster.address,
            start_from=start_from,
            config=quick,
        )
        return made.subscribe("single")

    try:
        await cluster.send("single", 0, [b"bad"])
        async with consumer(former, StartFrom.FIRST):
            await until(lambda: former.seen[b"bad"] == [0, 1])
        await cluster.delete_group("g", broker="broker-a")
        async with consumer(own, start_from):
            await cluster.send("single", 0, [b"worse"])
            await until(lambda: own.seen[b"worse"] == [0, 1])
        again = {b"bad": [0]} if start_from is StartFrom.FIRST else {}
        assert own.seen == {**again, b"worse": [0, 1]}
    finally:
        await cluster.stop()


async def test_one_that_always_fails_ends_as_one_dead_letter(
    tmp_path: Path, quick: ConsumerConfig
) -> None:
    cluster = await start(tmp_path)
    journal = Journal(b"bad")
    try:
        await cluster.send("single", 0, [b"bad", b"good"])
        consumer = PushConsumer(
            "g",
            journal.handle,
            run_in_thread=False,
            nameservers=cluster.address,
            start_from=StartFrom.FIRST,
            config=quick,
        ).subscribe("single")
        async with consumer:
            await until(lambda: consumer.statistics().sent_back == 17)
        assert journal.seen[b"bad"] == list(range(17))
        (letter,) = await dead_letters(cluster)
        told = read_dead_letter(letter.record)
        assert letter.body == b"bad"
        assert told.origin[:3] == ("single", 0, 0)
        assert (told.death.attempts, told.death.member) == (17, consumer.client_id)
        assert (told.death.reason_class, told.death.reason) == ("ValueError", "cannot read bad")
    finally:
        await cluster.stop()


async def test_a_message_that_comes_again_passes_the_filter_that_the_member_has_now(
    tmp_path: Path, quick: ConsumerConfig
) -> None:
    cluster = await start(tmp_path)
    journal, later = Journal(b"red", b"blue"), Journal()
    try:
        await cluster.send("single", 0, [b"red"], tag="red")
        await cluster.send("single", 0, [b"blue"], tag="blue")
        first = PushConsumer(
            "g",
            journal.handle,
            run_in_thread=False,
            nameservers=cluster.address,
            start_from=StartFrom.FIRST,
            config=quick,
        ).subscribe("single")
        async with first:
            await until(lambda: journal.seen[b"red"] and journal.seen[b"blue"])
            await until(lambda: first.statistics().sent_back >= 2)
        second = PushConsumer(
            "g",
            later.handle,
            run_in_thread=False,
            nameservers=cluster.address,
            start_from=StartFrom.FIRST,
            config=quick,
        ).subscribe("single", "red")
        async with second:
            await until(lambda: bool(later.seen[b"red"]))
            await until(lambda: all(not each.lag for each in second.statistics().retry_queues))
        assert not later.seen[b"blue"]
    finally:
        await cluster.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("ordering", list(Ordering))
async def test_calls_of_any_size_that_fail_for_reasons_of_any_length_go_back(
    tmp_path: Path, ordering: Ordering
) -> None:
    cluster = await start(tmp_path)
    count = 1_500
    begun: list[int] = []

    async def fail(messages: Sequence[ReceivedMessage]) -> None:
        begun.append(len(messages))
        raise ValueError("\N{HONEYBEE}" * 2_000)

    consumer = PushConsumer(
        "g",
        fail,
        nameservers=cluster.address,
        start_from=StartFrom.FIRST,
        ordering=ordering,
        consume_batch_max=count,
        suspend_ms=0,
        offsets_folder=tmp_path / "offsets",
    ).subscribe("single")
    try:
        await limit_retries(cluster, 16)
        await cluster.send("single", 0, [b"bad"] * count)
        async with consumer:
            await until(lambda: consumer.statistics().sent_back >= count, timeout_s=60)
        assert max(begun) > 100
    finally:
        await cluster.stop()


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_killed_broker_and_members_that_die_neither_lose_nor_repeat_a_dead_letter(
    tmp_path: Path,
) -> None:
    """The originals that were sent back do not come again to the next member."""
    broker = await BrokerProcess(
        "broker-a",
        tmp_path,
        {"orders": 2},
        store_options={"delay_levels_ms": LEVELS_MS},  # type: ignore[dict-item]
    ).start()
    nameserver = await RouteServer([broker]).start()
    nameserver.has_retry_topics = True
    cluster = RealCluster({"broker-a": broker}, nameserver)
    bad = [b"bad %d" % number for number in range(20)]
    journal = Journal(*bad)
    options = ConsumerConfig(session_timeout_ms=1_000, commit_interval_ms=60_000)

    async def are_dead() -> bool:
        return len(await dead_letters(cluster)) >= len(bad)

    try:
        for queue_id in range(2):
            await cluster.send("orders", queue_id, bad[queue_id::2] + [b"good"] * 5)
        for round_number in range(4):
            consumer = PushConsumer(
                "g",
                journal.handle,
                run_in_thread=False,
                nameservers=nameserver.address,
                start_from=StartFrom.FIRST,
                client_id=f"member {round_number}",
                offsets_folder=tmp_path / "offsets",
                config=options,
            ).subscribe("orders")
            seen = len(journal.messages)
            async with asyncio.timeout(60), consumer:
                await until(lambda seen=seen: len(journal.messages) > seen + 20, timeout_s=30)
                if round_number % 2:
                    await broker.stop()
                    await broker.start()
                    await nameserver.publish()
                if round_number == 3:
                    await until(are_dead, timeout_s=50)

        letters = await dead_letters(cluster)
        assert sorted(letter.body for letter in letters) == sorted(bad)
        for body in bad:
            attempts = journal.seen[body]
            assert attempts == sorted(attempts), "attempts never go back"
    finally:
        await cluster.stop()
