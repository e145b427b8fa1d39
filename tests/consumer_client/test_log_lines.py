"""A line of the log says which group, queue, message and attempt it is about, however logging is
configured."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from aerobee import AdminClient, PrometheusMetrics
from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client import (
    ConsumerConfig,
    Exhausted,
    PushConsumer,
    ReceivedMessage,
    RetryPolicy,
    SimpleConsumer,
)
from aerobee.consumer_client.failure_log import FailureLog
from aerobee.consumer_client.typed import TypedTopic
from aerobee.runtime.clock import ManualClock
from tests.support.own_topic import OwnTopic
from tests.support.real_brokers import RealCluster
from tests.support.waiting import until

ONE_QUEUE = pytest.mark.aerobee_topic(queues=1)


@pytest.mark.parametrize("in_thread", [False, True], ids=["on the loop", "in a thread"])
@ONE_QUEUE
async def test_a_failed_attempt_is_one_line_and_its_place_has_one_traceback_of_the_users_frames(
    in_thread: bool, own: OwnTopic, tmp_path: Path
) -> None:
    written = StringIO()
    handler = logging.StreamHandler(written)  # As of basicConfig: the text, and nothing else.
    logging.getLogger().addHandler(handler)
    ids: list[str] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        ids.append(messages[0].message_id)
        raise ValueError("cannot read it")

    consumer = own.push(
        handle,
        run_in_thread=in_thread,
        retry=RetryPolicy(attempts_max=2, delays_ms=(10,)),
        on_exhausted=lambda messages, failures: Exhausted.SKIP,
        offsets_folder=tmp_path,
    )
    try:
        async with consumer:
            await own.store([b"x"])
            await until(lambda: consumer.statistics().skipped == 1)
    finally:
        logging.getLogger().removeHandler(handler)
    lines = written.getvalue().splitlines()
    failed = [line for line in lines if line.startswith("listener failed")]
    assert len(failed) == 2
    for attempt, line in enumerate(failed, 1):
        for fact in (
            f"group={own.group_name}",
            f"topic={own.topic}",
            f"queue={own.topic}@broker-a:0",
            "offset=0",
            f"attempt={attempt}",
            "attempts_max=2",
            'follows="again in 0.01 s"' if attempt == 1 else 'follows="on_exhausted decides"',
        ):
            assert f" {fact} " in line
        assert f"message_id={ids[0]}" in line
        assert """reason="ValueError('cannot read it')\"""" in line
    between = lines[lines.index(failed[0]) + 1 : lines.index(failed[1])]
    assert between[0] == "Traceback (most recent call last):"
    assert between[-1] == "ValueError: cannot read it"
    assert [line for line in between if line.startswith("  File")] == [
        line for line in between if __file__ in line and line.endswith("in handle")
    ]
    assert lines.count("ValueError: cannot read it") == 1, "its place is known"
    (skipped,) = [line for line in lines if line.startswith("messages skipped")]
    assert f"message_id={ids[0]} " in skipped


@ONE_QUEUE
async def test_a_message_received_alone_has_the_same_line_and_its_last_reason_as_a_dead_letter(
    own: OwnTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = TypedTopic(own.topic, str)
    done = asyncio.Event()

    async def handle(text: str, message: ReceivedMessage) -> None:
        if text == "last":
            done.set()
            return
        raise ValueError("cannot read it")

    metrics = PrometheusMetrics(registry=CollectorRegistry())
    consumer = SimpleConsumer(own.group_name, nameservers=own.nameservers, telemetry=metrics)
    async with AdminClient(own.nameservers) as admin, consumer.subscribe(own.topic):
        await admin.groups.configure(own.group_name, retries_max=1)
        await own.store([b"x"])
        quick = RetryPolicy(delays_ms=(10,))
        listening = asyncio.create_task(consumer.listen(topic.listener(handle), retry=quick))
        await until(lambda: sum("listener failed" in line for line in caplog.messages) == 2)
        await own.store([b"last"])
        await done.wait()
        consumer.stop()
        await listening
        (letter,) = [each async for each in admin.dead_letters.find(own.group_name)]
    assert (letter.reason, letter.attempts) == ("ValueError: cannot read it", 2)
    failed = [record for record in caplog.records if "listener failed" in record.getMessage()]
    for attempt, record in enumerate(failed, 1):
        line = record.getMessage()
        assert f" attempt={attempt} attempts_max=2 " in line
        assert ('follows="again in 0.01 s"' if attempt == 1 else 'follows="a dead letter"') in line
    info = failed[0].exc_info
    assert info is not None
    assert info[2] is not None
    assert info[2].tb_frame.f_code.co_name == "handle", "the first frame is the user's"


async def test_a_session_that_breaks_says_which_and_what_follows(
    cluster: RealCluster,
    quick: ConsumerConfig,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    consumer = PushConsumer(
        "billing",
        lambda messages: None,
        run_in_thread=False,
        nameservers=cluster.address,
        offsets_folder=tmp_path,
        config=quick,
    ).subscribe("single")
    async with consumer:
        await until(lambda: consumer.statistics().queues)
        await cluster.brokers["broker-a"].stop()
        await until(lambda: "group session broke" in caplog.text)
        (line,) = [
            record.getMessage() for record in caplog.records if "session broke" in record.msg
        ]
        assert line.startswith("group session broke, joining again group=billing broker=broker-a ")
        assert "queues_kept_for_s=0." in line
        assert "reason=" in line
        await cluster.brokers["broker-a"].start()


@ONE_QUEUE
async def test_a_listener_that_blocks_the_loop_is_named_as_the_reason_of_what_follows(
    own: OwnTopic, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        time.sleep(1.8)

    def lines() -> list[str]:
        return [line for line in caplog.messages if line.startswith("the event loop was blocked")]

    consumer = own.push(handle, offsets_folder=tmp_path)
    async with consumer:
        await own.store([b"x"])
        await until(lambda: bool(lines()))
    assert f"group={own.group_name} " in lines()[0]
    assert "plain function, which runs in a thread" in lines()[0]


@pytest.mark.parametrize(
    ("delay_s", "hours", "lines_max"),
    [(0.2, 1, 60 + 10), (60.0, 1, 60 + 1)],
    ids=["a short pause", "a minute"],
)
def test_a_message_that_fails_in_its_place_has_a_line_a_minute_at_most_that_counts_the_others(
    delay_s: float, hours: int, lines_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    failures = FailureLog(logging.getLogger("test"), "billing", clock)
    queue = MessageQueue("orders", "broker-a", 0)
    message = SimpleNamespace(reconsume_times=0, origin_topic="orders", message_id="7")
    entries: Any = [(5, 100, message)]

    def fail() -> None:
        line = failures.line("failed", logging.WARNING, queue, entries, None, "no", repeats=True)
        line.complete("again")

    count = round(hours * 3_600 / delay_s)
    for _ in range(count):
        fail()
        clock.advance_ms(round(delay_s * 1_000))
    lines = caplog.messages
    assert len(lines) <= lines_max
    counted = sum(
        int(each) for line in lines for each in re.findall(r"unlogged_failures=(\d+)", line)
    )
    assert counted + len(lines) == pytest.approx(count, abs=60 / delay_s)
    failures.forget(queue, 5)
    fail()
    assert len(caplog.messages) == len(lines) + 1, "a new failure has its line at once"


@ONE_QUEUE
async def test_a_consumers_life_is_in_the_log_at_info(
    own: OwnTopic, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)

    def life(client: PushConsumer) -> list[str]:
        lines = [line for line in caplog.messages if f"group={own.group_name}" in line]
        assert lines[-1].startswith("consumer stopped") is client.is_stopping
        return [line.split(" group=")[0] for line in lines]

    first = own.push(lambda messages: None, run_in_thread=False, offsets_folder=tmp_path)
    async with first:
        await until(lambda: any("queue gained" in line for line in caplog.messages))
        assert sorted(life(first)) == ["consumer started", "joined group", "queue gained"]
        (gained,) = [line for line in caplog.messages if line.startswith("queue gained")]
        assert f"queue={own.topic}@broker-a:0 offset=0" in gained
    assert life(first)[3:] == ["consumer stopping", "queue given up", "consumer stopped"]
    (given,) = [line for line in caplog.messages if line.startswith("queue given up")]
    assert 'reason="the consumer closes"' in given
    assert not [line for line in caplog.messages if "%RETRY%" in line]
