"""Apache's own consumers receive from a real cluster what their producers sent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.grpc_core.interop.programs import Program
from tests.rocketmq_api.official.clients import Client, running_client
from tests.rocketmq_api.official.programs import ABILITIES, skip_without
from tests.support.local_up import Up, running
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
INVISIBLE_S = 10
"""The shortest that a client may ask for."""
PATIENCE_S = 60.0
POLL_S = 5.0
"""A client waits so long at a broker that has nothing before it asks the other one."""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("cluster"), "--brokers", "2") as up:
        yield up


class Scene:
    """One client in its roles, with a topic and a group of its own."""

    def __init__(self, program: Program, up: Up, home: Path) -> None:
        self._program, self._up, self._home = program, up, home
        self.group = self.topic = ""

    def begin(self, name: str, kind: str, *rules: str) -> None:
        """`rules`: what `aerobee group configure` is told."""
        self.topic = f"{name}-{self._program.language}"
        self.group = f"{self.topic}-readers"
        self._up.run("topic", "create", self.topic, "--queues", "4", "--type", kind)
        wait_until(lambda: self._up.knows(self.topic), "the topic")
        if rules:
            self._up.run("group", "configure", self.group, *rules)

    def producer(self) -> AbstractContextManager[Client]:
        return self._client("producer", self.topic)

    def simple(self, tags: str = "*") -> AbstractContextManager[Client]:
        return self._client("simple", self.group, f"{self.topic}={tags}")

    def push(self) -> AbstractContextManager[Client]:
        return self._client("push", self.group, self.topic)

    def _client(self, role: str, *rest: str) -> AbstractContextManager[Client]:
        address = self._up.document()["nameserver"]
        return running_client(self._program, role, address, *rest, home=self._home)


@pytest.fixture
def scene(program: Program, up: Up, tmp_path: Path) -> Scene:
    return Scene(program, up, tmp_path)


def received(consumer: Client, count: int, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """Polls until there are so many, or time is up. One poll may see one queue of one broker."""
    messages: list[dict[str, Any]] = []
    ends_s = time.monotonic() + patience_s
    while len(messages) < count and time.monotonic() < ends_s:
        messages += consumer.ask("receive", max=32, invisible_s=INVISIBLE_S)["messages"]
    return messages


def pushed(consumer: Client, count: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for _ in range(count):
        message = consumer.pushed(PATIENCE_S)
        assert message is not None, messages
        messages.append(message)
    return messages


def dead_letters(up: Up, group: str) -> list[dict[str, Any]]:
    """The command ends with 1 while there is none."""
    done = up.run("dead-letter", "list", group, "--json", expect=(0, 1))
    letters: list[dict[str, Any]] = json.loads(done.stdout)["letters"]
    return letters


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


def test_only_the_tags_of_its_subscription_come(scene: Scene) -> None:
    scene.begin("tags", "NORMAL")
    with scene.producer() as producer, scene.simple("paid || refunded") as consumer:
        for number in range(12):
            tag = ("paid", "refunded", "cancelled")[number % 3]
            assert "id" in producer.ask("send", topic=scene.topic, body=str(number), tag=tag)
        messages: list[dict[str, Any]] = []
        while len(messages) < 8:
            found = received(consumer, 1)
            assert found, messages
            for message in found:
                assert "id" in consumer.ask("ack", id=message["id"])
            messages += found
        assert sorted(int(message["body"]) for message in messages) == [0, 1, 3, 4, 6, 7, 9, 10]


@pytest.mark.long
def test_a_listener_gets_each_message_once_and_what_it_failed_again(
    scene: Scene, program: Program
) -> None:
    skip_without(program, "push")
    scene.begin("push", "NORMAL")
    with scene.producer() as producer, scene.push() as consumer:
        for number in range(20):
            assert "id" in producer.ask("send", topic=scene.topic, body=str(number))
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
