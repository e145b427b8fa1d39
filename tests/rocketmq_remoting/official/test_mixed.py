"""One topic, three protocols: what each of them sends comes to each of them, equal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.rocketmq_api.official.clients import Client, running_client
from tests.rocketmq_api.official.programs import PROGRAMS as V2_PROGRAMS
from tests.rocketmq_api.official.scene import received
from tests.rocketmq_remoting.official.scene import Scene, pushed
from tests.rpc.core.interop.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
ROUNDS = 4


class Seen(NamedTuple):
    """What every protocol tells of a message."""

    id: str
    body: str
    tag: str | None
    keys: frozenset[str]
    mine: str


@pytest.fixture(params=("python", "java"))
def v2(request: pytest.FixtureRequest) -> Program:
    program = V2_PROGRAMS[request.param]
    if program.missing:
        pytest.skip(program.missing)
    return program


def seen(messages: Sequence[dict[str, Any]]) -> list[Seen]:
    """Of Apache's clients."""
    return [
        Seen(
            each["id"],
            each["body"],
            each["tag"],
            frozenset(each["keys"].split() if isinstance(each["keys"], str) else each["keys"]),
            each["properties"]["mine"],
        )
        for each in messages
    ]


def seen_by_own(scene: Scene, group: str, count: int) -> list[Seen]:
    done = scene.up.run(
        *("consume", scene.topic, "--group", group, "--count", str(count)),
        *("--from", "first", "--format", "json"),
    )
    found = map(json.loads, done.stdout.splitlines())
    return [
        Seen(
            each["messageId"],
            each["body"],
            each["tag"],
            frozenset(each["keys"]),
            each["properties"]["mine"],
        )
        for each in found
    ]


def send_of_each(scene: Scene, remoting: Client, v2: Client) -> list[str]:
    """In turn, so that the order of the queue is that of the sends."""
    bodies = []
    for number in range(ROUNDS):
        told = {"tag": "a", "properties": {"mine": "päckchen"}}
        own = {"body": f"own-{number}", "keys": ["k1", "k2"], **told}
        scene.up.run("produce", scene.topic, "--format", "json", given=json.dumps(own) + "\n")
        scene.send(remoting, f"remoting-{number}", key="k1 k2", **told)
        answer = v2.ask("send", topic=scene.topic, body=f"v2-{number}", keys=["k1", "k2"], **told)
        assert "error" not in answer, answer
        bodies += [f"own-{number}", f"remoting-{number}", f"v2-{number}"]
    return bodies


def test_each_protocol_gets_what_each_sends_in_one_order(
    scene: Scene, v2: Program, tmp_path: Path
) -> None:
    scene.begin(f"mixed-{v2.language}", queues=1)
    address = scene.address
    with (
        scene.producer() as remoting,
        running_client(v2, "producer", address, scene.topic, home=tmp_path) as by_v2,
    ):
        sent = send_of_each(scene, remoting, by_v2)
    with scene.consumer("orderly") as consumer:
        by_remoting = seen(pushed(consumer, len(sent)))
    group = f"{scene.group}-v2"
    with running_client(v2, "simple", address, group, f"{scene.topic}=*", home=tmp_path) as simple:
        by_simple = seen(received(simple, len(sent)))
    by_own = seen_by_own(scene, f"{scene.group}-own", len(sent))
    assert [each.body for each in by_own] == sent
    assert by_remoting == by_own
    assert by_simple == by_own
    assert len({each.id for each in by_own}) == len(sent)


def test_a_group_goes_from_protocol_to_protocol_without_losing_its_place(
    scene: Scene, v2: Program, tmp_path: Path
) -> None:
    scene.begin(f"handed-on-{v2.language}", queues=1)
    address, group = scene.address, scene.group

    def by_v2(count: int) -> list[str]:
        topics = f"{scene.topic}=*"
        with running_client(v2, "simple", address, group, topics, home=tmp_path) as simple:
            messages = received(simple, count)
            for message in messages:
                assert "error" not in simple.ask("ack", id=message["id"])
        return [message["body"] for message in messages]

    told: dict[str, Any] = {"tag": "a", "key": "k", "properties": {"mine": "x"}}
    with scene.producer() as producer:
        for number in range(2):
            scene.send(producer, f"remoting-{number}", **told)
            with scene.consumer() as consumer:
                assert [each["body"] for each in pushed(consumer, 1)] == [f"remoting-{number}"]
            scene.send(producer, f"v2-{number}", **told)
            assert by_v2(1) == [f"v2-{number}"]
            scene.send(producer, f"own-{number}", **told)
            assert [each.body for each in seen_by_own(scene, group, 1)] == [f"own-{number}"]
