"""Two broker groups are one cluster to Apache's clients: no poll misses what is at the other group.

A poll of these clients asks one broker, and lasts for 5 s or longer. Nothing here may need a second
one.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.rocketmq_api.official.clients import Client
from tests.rocketmq_api.official.programs import ABILITIES, skip_without
from tests.rocketmq_api.official.scene import INVISIBLE_S, Scene, code_of, pushed, received
from tests.rpc.core.interop.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SLACK_S = 2.0
"""For a busy machine; without rings a message would come 5 s late, or later."""
SENDS = 8
"""More than the queues: some go to each broker."""


def poll(consumer: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = consumer.ask("receive", max=32, invisible_s=INVISIBLE_S)[
        "messages"
    ]
    return found


def acknowledge(consumer: Client, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        assert "id" in consumer.ask("ack", id=message["id"])


def test_what_is_there_or_comes_is_got_by_the_first_poll(scene: Scene) -> None:
    scene.begin("first", "NORMAL")
    with scene.producer() as producer, scene.simple() as consumer:
        for number in range(SENDS):
            if number % 2:
                assert "id" in producer.ask("send", topic=scene.topic, body=str(number))
                found = poll(consumer)
            else:
                found = during_a_poll(consumer, producer, topic=scene.topic, body=str(number))
            assert [each["body"] for each in found] == [str(number)]
            acknowledge(consumer, found)


def during_a_poll(consumer: Client, producer: Client, **message: Any) -> list[dict[str, Any]]:
    """What the poll gets, without delay."""
    sent_s: list[float] = []

    def send() -> None:
        assert "id" in producer.ask("send", **message)
        sent_s.append(time.monotonic())

    sending = threading.Timer(1.0, send)
    sending.start()
    found = poll(consumer)
    got_s = time.monotonic()
    sending.join()
    assert got_s - sent_s[0] < SLACK_S
    return found


@pytest.mark.thorough
def test_a_delayed_message_comes_when_it_is_due(scene: Scene) -> None:
    scene.begin("due", "DELAY")
    with scene.producer() as producer, scene.simple() as consumer:
        for number in range(4):
            sent_s = time.time()
            asked = {"topic": scene.topic, "body": str(number), "delay_s": 3}
            assert "id" in producer.ask("send", **asked)
            found = poll(consumer)
            assert [each["body"] for each in found] == [str(number)]
            # Some clients send whole seconds.
            assert 2 < time.time() - sent_s < 3 + SLACK_S
            acknowledge(consumer, found)


@pytest.mark.long
def test_what_is_not_acknowledged_comes_again_on_time(scene: Scene, program: Program) -> None:
    scene.begin("on-time", "NORMAL")
    with scene.producer() as producer, scene.simple() as consumer:
        sent = [producer.ask("send", topic=scene.topic, body=str(each))["id"] for each in range(4)]
        first = received(consumer, len(sent))
        began_s = time.monotonic()
        waits_s = float(INVISIBLE_S)
        if "postpone" in ABILITIES[program.language]:
            for message in first:
                answer = consumer.ask("postpone", id=message["id"], invisible_s=INVISIBLE_S + 2)
                assert "id" in answer
            waits_s += 2
        again = received(consumer, len(sent))
        assert sorted(each["id"] for each in again) == sorted(sent)
        assert {each["attempt"] for each in again} == {2}
        assert waits_s - 1.5 < time.monotonic() - began_s < waits_s + 2 * SLACK_S
        acknowledge(consumer, again)


@pytest.mark.long
def test_two_consumers_share_all_messages_and_none_comes_twice(scene: Scene) -> None:
    scene.begin("shared", "NORMAL")
    with scene.producer() as producer, scene.simple() as one, scene.simple() as other:
        ids = {producer.ask("send", topic=scene.topic, body=str(each))["id"] for each in range(60)}
        got: list[str] = []

        def consume(consumer: Client) -> None:
            while len(got) < len(ids) and (found := poll(consumer)):
                got.extend(each["id"] for each in found)
                acknowledge(consumer, found)

        consuming = [threading.Thread(target=consume, args=(each,)) for each in (one, other)]
        for each in consuming:
            each.start()
        for each in consuming:
            each.join()
    assert sorted(got) == sorted(ids)


@pytest.mark.long
def test_an_ordered_group_gets_the_next_message_after_each_acknowledgement(scene: Scene) -> None:
    scene.begin("chain", "FIFO", "--ordered")
    with scene.producer() as producer, scene.simple() as consumer:
        for number in range(3):
            for group in ("g", "h", "i"):
                body = f"{group}{number}"
                assert "id" in producer.ask("send", topic=scene.topic, body=body, group=group)
        got: list[str] = []
        while len(got) < 9 and (found := poll(consumer)):
            got += [each["body"] for each in found]
            acknowledge(consumer, found)
    for group in ("g", "h", "i"):
        assert [each for each in got if each[0] == group] == [f"{group}{each}" for each in range(3)]


@pytest.mark.thorough
def test_a_listener_that_was_there_first_gets_the_first_message_at_once(
    scene: Scene, program: Program
) -> None:
    skip_without(program, "push")
    scene.begin("early", "NORMAL")
    with scene.push() as consumer, scene.producer() as producer:
        for number in range(4):
            time.sleep(1)
            sent_s = time.monotonic()
            assert "id" in producer.ask("send", topic=scene.topic, body=str(number))
            assert [each["body"] for each in pushed(consumer, 1)] == [str(number)]
            assert time.monotonic() - sent_s < SLACK_S


def dies_in_its_poll(scene: Scene) -> None:
    with scene.simple() as gone:
        threading.Timer(1.5, gone.end).start()
        poll(gone)


@pytest.mark.long
def test_what_a_client_that_died_in_its_poll_has_missed_goes_to_the_next(scene: Scene) -> None:
    scene.begin("died", "NORMAL")
    with scene.producer() as producer:
        with pytest.raises(AssertionError):
            dies_in_its_poll(scene)
        bodies = [str(each) for each in range(4)]
        for body in bodies:
            assert "id" in producer.ask("send", topic=scene.topic, body=body)
        with scene.simple() as consumer:
            began_s = time.monotonic()
            found = received(consumer, len(bodies))
            assert time.monotonic() - began_s < 2 * SLACK_S
            acknowledge(consumer, found)
        assert sorted(each["body"] for each in found) == bodies
        assert {each["attempt"] for each in found} == {1}


@pytest.mark.long
def test_a_dead_letter_topic_reads_as_empty_and_then_has_the_dead_letter(
    scene: Scene, program: Program
) -> None:
    skip_without(program, "push")
    scene.begin("letters", "NORMAL", "--retries-max", "1")
    failing = scene.group
    with scene.producer() as producer, scene.push() as consumer:
        scene.topics, scene.group = [f"%DLQ%{failing}"], f"{failing}-operators"
        with scene.simple() as reader:
            assert poll(reader) == []
            sent = producer.ask("send", topic=scene.topic, body="x", properties={"fails": "9"})
            pushed(consumer, 2)
            assert [each["body"] for each in received(reader, 1)] == ["x"], sent


@pytest.mark.thorough
def test_a_filter_that_cannot_be_read_is_refused_with_its_code(
    scene: Scene, program: Program
) -> None:
    scene.begin("unreadable", "NORMAL")
    for expression in ("a >", "a = 1 nonsense"):
        with scene.simple(f"sql:{expression}") as consumer:
            answer = consumer.ask("receive", max=1, invisible_s=INVISIBLE_S)
            assert code_of(answer) == v2.ILLEGAL_FILTER_EXPRESSION, answer


@pytest.mark.long
def test_a_poll_that_is_refused_swallows_nothing(scene: Scene) -> None:
    scene.begin("greedy", "NORMAL")
    with scene.producer() as producer, scene.simple() as consumer:
        assert "id" in producer.ask("send", topic=scene.topic, body="x")
        for invisible_s in (1, 50_000):
            answer = consumer.ask("receive", max=1, invisible_s=invisible_s)
            assert code_of(answer) in (v2.ILLEGAL_INVISIBLE_TIME, None)
            assert "error" in answer
        assert [each["body"] for each in poll(consumer)] == ["x"]


@pytest.mark.thorough
def test_a_recall_that_is_too_late_fails_and_one_that_is_repeated_does_not(
    scene: Scene, program: Program
) -> None:
    skip_without(program, "recall")
    scene.begin("recalled", "DELAY")
    with scene.producer() as producer:
        asked = {"topic": scene.topic, "body": "x"}
        sent = producer.ask("send", delay_s=60, **asked)
        for _ in range(2):
            answer = producer.ask("recall", topic=scene.topic, handle=sent["handle"])
            assert answer == {"id": sent["id"]}
        late = producer.ask("send", delay_s=1, **asked)
        time.sleep(1 + SLACK_S)
        answer = producer.ask("recall", topic=scene.topic, handle=late["handle"])
        assert code_of(answer) == v2.INTERNAL_SERVER_ERROR
        assert answer.get("id") is None
