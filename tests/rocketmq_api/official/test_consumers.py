"""Apache's own consumers receive from a real cluster what their producers sent."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.rocketmq_api.official.clients import Client
from tests.rocketmq_api.official.programs import ABILITIES, skip_without
from tests.rocketmq_api.official.scene import (
    INVISIBLE_S,
    PATIENCE_S,
    Scene,
    dead_letters,
    pushed,
    received,
)
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
POLL_S = 5.0
"""A client waits so long at a broker that has nothing before it asks the other one."""


@pytest.mark.long
def test_what_it_receives_says_all_and_is_gone_once_acknowledged(scene: Scene) -> None:
    scene.begin("all", "NORMAL")
    with scene.producer() as producer, scene.simple() as consumer:
        sent = producer.ask(
            "send",
            topic=scene.topic,
            body="Grüße",
            tag="paid",
            keys=["order-7"],
            properties={"carrier": "UA"},
        )
        (message,) = received(consumer, 1)
        assert not message.pop("group")  # one client says that there is none by an empty text
        assert message == {
            "id": sent["id"],
            "topic": scene.topic,
            "body": "Grüße",
            "tag": "paid",
            "keys": ["order-7"],
            "properties": {"carrier": "UA"},
            "attempt": 1,
        }
        assert consumer.ask("ack", id=sent["id"]) == {"id": sent["id"]}
        assert received(consumer, 1, INVISIBLE_S + 2) == []


@pytest.mark.long
def test_what_is_not_acknowledged_comes_again(scene: Scene, program: Program) -> None:
    scene.begin("again", "NORMAL")
    with scene.producer() as producer, scene.simple() as consumer:
        sent = producer.ask("send", topic=scene.topic, body="x")
        (message,) = received(consumer, 1)
        began_s, waits_s = time.monotonic(), float(INVISIBLE_S)
        if "postpone" in ABILITIES[program.language]:
            assert "id" in consumer.ask("postpone", id=sent["id"], invisible_s=2)
            waits_s = 2.0
        (message,) = received(consumer, 1)
        assert (message["id"], message["attempt"]) == (sent["id"], 2)
        # Its waiting began when it was received, a moment before.
        assert waits_s - 0.5 < time.monotonic() - began_s < waits_s + 2 * POLL_S + 5
        assert "id" in consumer.ask("ack", id=sent["id"])


@pytest.mark.thorough
def test_only_the_tags_of_its_subscription_come(scene: Scene) -> None:
    scene.begin("tags", "NORMAL")
    with scene.producer() as producer, scene.simple("paid || refunded") as consumer:
        for number in range(12):
            tag = ("paid", "refunded", "cancelled")[number % 3]
            assert "id" in producer.ask("send", topic=scene.topic, body=str(number), tag=tag)
        assert acknowledged(consumer, 8) == [0, 1, 3, 4, 6, 7, 9, 10]


@pytest.mark.thorough
def test_only_what_its_expression_is_true_for_comes(scene: Scene) -> None:
    scene.begin("sql", "NORMAL")
    with scene.producer() as producer, scene.simple("sql:a > 5 AND b IN ('x', 'y')") as consumer:
        for number in range(15):
            properties = {"a": str(number), "b": "xyz"[number % 3]}
            sent = producer.ask("send", topic=scene.topic, body=str(number), properties=properties)
            assert "id" in sent
        assert acknowledged(consumer, 6) == [6, 7, 9, 10, 12, 13]


def test_a_transaction_is_seen_once_when_it_is_committed_and_never_when_it_is_not(
    scene: Scene, up: Up
) -> None:
    """What its producer leaves open it is asked about, and answers by the message's properties."""
    scene.begin("transactions", "TRANSACTION")
    expected: dict[str, dict[str, Any]] = {}
    with scene.producer() as producer, scene.simple() as consumer:
        for end, answer in (
            ("commit", {}),
            ("rollback", {}),
            ("open", {"answer": "commit"}),
            ("open", {"answer": "rollback"}),
        ):
            properties = {"carrier": "UA", **answer}
            asked: dict[str, Any] = {"tag": "paid", "keys": ["order-7"], "properties": properties}
            sent = producer.ask("send", topic=scene.topic, body="x", end=end, **asked)
            assert sent.get("transaction", sent["id"]) == sent["id"]
            if "commit" in (end, *answer.values()):
                expected[sent["id"]] = asked
        while expected:
            found = received(consumer, 1)
            assert found, expected
            for message in found:
                asked = expected.pop(message["id"])
                asked["properties"]["__transactionId__"] = message["id"]
                assert {name: message[name] for name in asked} == asked
                assert "id" in consumer.ask("ack", id=message["id"])
        wait_until(lambda: open_transactions(up, scene.topic) == [], "the last answer")
    queues = up.json("topic", "show", scene.topic)["queues"]
    assert sum(queue["maxOffset"] - queue["minOffset"] for queue in queues) == 2


def open_transactions(up: Up, topic: str) -> list[dict[str, Any]]:
    """The command ends with 1 while there is none."""
    done = up.run("transaction", "list", topic, "--json", expect=(0, 1))
    transactions: list[dict[str, Any]] = json.loads(done.stdout)["transactions"]
    return transactions


def acknowledged(consumer: Client, count: int) -> list[int]:
    """The numbers that are bodies."""
    messages: list[dict[str, Any]] = []
    while len(messages) < count:
        found = received(consumer, 1)
        assert found, messages
        for message in found:
            assert "id" in consumer.ask("ack", id=message["id"])
        messages += found
    return sorted(int(message["body"]) for message in messages)


@pytest.mark.long
def test_a_listener_gets_each_message_once_and_what_it_failed_again(
    scene: Scene, program: Program
) -> None:
    """Its expression holds for what fails and comes again, too."""
    skip_without(program, "push")
    scene.begin("push", "NORMAL")
    with scene.producer() as producer, scene.push("sql:b IS NULL OR b > 0") as consumer:
        for number in range(20):
            assert "id" in producer.ask("send", topic=scene.topic, body=str(number))
        assert "id" in producer.ask("send", topic=scene.topic, body="no", properties={"b": "0"})
        sent = producer.ask("send", topic=scene.topic, body="hard", properties={"fails": "2"})
        messages = pushed(consumer, 23)
        assert consumer.pushed(2) is None
    easy = [int(message["body"]) for message in messages if message["id"] != sent["id"]]
    assert sorted(easy) == list(range(20))
    attempts = [message["attempt"] for message in messages if message["id"] == sent["id"]]
    assert attempts == [1, 2, 3]


@pytest.mark.long
def test_a_message_that_fails_holds_up_its_message_group_alone(
    scene: Scene, program: Program
) -> None:
    skip_without(program, "push")
    scene.begin("order", "FIFO", "--ordered")
    with scene.producer() as producer:
        for number in range(12):
            sent = producer.ask(
                "send",
                topic=scene.topic,
                body=str(number),
                group=f"g{number % 3}",
                properties={"fails": "1" if number == 3 else "0"},
            )
            assert "id" in sent
    with scene.push() as consumer:
        messages = pushed(consumer, 13)
        assert consumer.pushed(2) is None
    for group, bodies in (("g0", "0 3 3 6 9"), ("g1", "1 4 7 10"), ("g2", "2 5 8 11")):
        got = [message["body"] for message in messages if message["group"] == group]
        assert got == bodies.split()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])
def test_what_always_fails_is_a_dead_letter_in_the_end(
    scene: Scene, program: Program, up: Up, kind: str
) -> None:
    skip_without(program, "push")
    rules = ("--ordered", "--retries-max", "1") if kind == "FIFO" else ("--retries-max", "1")
    scene.begin(f"dead-{kind}", kind, *rules)
    asked = {"group": "g"} if kind == "FIFO" else {}
    with scene.producer() as producer, scene.push() as consumer:
        sent = producer.ask("send", topic=scene.topic, body="x", properties={"fails": "9"}, **asked)
        assert [message["id"] for message in pushed(consumer, 2)] == [sent["id"]] * 2
        later = producer.ask("send", topic=scene.topic, body="next", **asked)
        assert [message["id"] for message in pushed(consumer, 1)] == [later["id"]]
        wait_until(lambda: dead_letters(up, scene.group), "the dead letter", timeout_s=PATIENCE_S)
    assert [letter["messageId"] for letter in dead_letters(up, scene.group)] == [sent["id"]]
