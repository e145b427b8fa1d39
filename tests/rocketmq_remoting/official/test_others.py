"""What Apache's remoting clients for Go and for Spring do, unchanged: each promise named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rocketmq_api.official.scene import dead_letters
from tests.rocketmq_remoting.official.programs import OTHERS
from tests.rocketmq_remoting.official.scene import Scene, bodies, is_quiet, pushed
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


@pytest.fixture(params=OTHERS)
def program(request: pytest.FixtureRequest) -> Program:
    program = OTHERS[request.param]
    if program.missing:
        pytest.skip(program.missing)
    return program


@pytest.fixture
def scene(program: Program, up: Up, tmp_path: Path) -> Scene:
    return Scene(program, up, tmp_path)


def test_messages_arrive_as_they_were_sent(scene: Scene) -> None:
    scene.begin("plain")
    with scene.producer() as producer, scene.consumer() as consumer:
        (sent,) = scene.send(producer, "one", tag="a", key="k1 k2", properties={"mine": "päckchen"})
        scene.send(producer, "two", how="async")
        scene.send(producer, "three", how="oneway")
        batch = [{"body": body} for body in ("four", "five")]
        assert producer.ask("send", topic=scene.topic, messages=batch)["status"] == "SEND_OK"
        messages = {message["body"]: message for message in pushed(consumer, 5)}
        assert is_quiet(consumer)
    assert messages.keys() == {"one", "two", "three", "four", "five"}
    one = messages["one"]
    assert (one["id"], one["tag"], one["keys"], one["attempt"]) == (sent["id"], "a", "k1 k2", 1)
    assert one["properties"]["mine"] == "päckchen"


def test_messages_of_a_group_come_in_their_order(scene: Scene) -> None:
    scene.begin("ordered")
    with scene.producer() as producer:
        for number in range(8):
            for group in ("red", "green"):
                fails = {"fails": "2"} if (number, group) == (3, "red") else {}
                scene.send(producer, f"{group}-{number}", group=group, properties=fails)
    with scene.consumer("orderly") as consumer:
        found = bodies(pushed(consumer, 18))
        assert is_quiet(consumer)
    for group in ("red", "green"):
        of_group = [body for body in dict.fromkeys(found) if body.startswith(group)]
        assert of_group == [f"{group}-{number}" for number in range(8)]


def test_a_message_that_fails_comes_again_until_it_is_handled(scene: Scene) -> None:
    scene.begin("retried")
    with scene.consumer(tags="a") as consumer, scene.producer() as producer:
        scene.send(producer, "failing", properties={"fails": "2"}, tag="a")
        scene.send(producer, "unwanted", tag="b")
        messages = pushed(consumer, 3)
        assert is_quiet(consumer)
    assert [(message["body"], message["attempt"]) for message in messages] == [
        ("failing", 1),
        ("failing", 2),
        ("failing", 3),
    ]


def test_a_message_that_is_given_up_in_order_is_a_dead_letter(scene: Scene) -> None:
    scene.begin("given-up", queues=2)
    with scene.producer() as producer:
        scene.send(producer, "poison", group="g", properties={"fails": "1000"})
        scene.send(producer, "after it", group="g")
    with scene.consumer("orderly") as consumer:
        # The client for Go tries once more than it is told.
        tries = 5 if scene.program.language.startswith("go") else 4
        assert bodies(pushed(consumer, tries + 1)) == ["poison"] * tries + ["after it"]
        assert is_quiet(consumer)
    (letter,) = dead_letters(scene.up, scene.group)
    assert letter["topic"] == scene.topic


def test_a_delayed_message_comes_after_its_level(scene: Scene) -> None:
    scene.begin("delayed")
    with scene.consumer() as consumer, scene.producer() as producer:
        scene.send(producer, "first")
        assert bodies(pushed(consumer, 1)) == ["first"]
        scene.send(producer, "later", delay_level=2)
        scene.send(producer, "now")
        assert bodies(pushed(consumer, 2)) == ["now", "later"]


def test_a_broadcast_reaches_every_member(scene: Scene) -> None:
    scene.begin("broadcast")
    with scene.consumer("broadcast") as first, scene.consumer("broadcast") as second:
        with scene.producer() as producer:
            scene.send(producer, "to all", "and again")
        for consumer in (first, second):
            assert sorted(bodies(pushed(consumer, 2))) == ["and again", "to all"]


def test_a_transaction_shows_its_message_once_it_is_committed(scene: Scene) -> None:
    scene.begin("transactions")
    with scene.consumer() as consumer, scene.producer() as producer:
        scene.send(producer, "rolled back", end="rollback")
        scene.send(producer, "committed", end="commit")
        scene.send(producer, "asked", end="open", properties={"answer": "commit"})
        scene.send(producer, "asked in vain", end="open", properties={"answer": "rollback"})
        assert sorted(bodies(pushed(consumer, 2))) == ["asked", "committed"]
        assert is_quiet(consumer)
