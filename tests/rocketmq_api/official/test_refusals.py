"""What a client may not do is refused with the code that Apache's server has for it.

Some clients refuse by themselves, before anything is sent: then there is no code.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.rocketmq_api.official.programs import ABILITIES
from tests.rocketmq_api.official.scene import INVISIBLE_S, Scene, code_of, received
from tests.rpc.core.interop.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MIB = 1 << 20
REFUSED: dict[str, tuple[dict[str, Any], int, frozenset[str]]] = {
    "absent topic": ({"topic": "absent"}, v2.TOPIC_NOT_FOUND, frozenset({"python"})),
    "illegal topic": ({"topic": "a b"}, v2.ILLEGAL_TOPIC, frozenset({"python", "java"})),
    "no body": ({"body": ""}, v2.MESSAGE_BODY_EMPTY, frozenset({"python", "java"})),
    "large body": (
        {"body": "x" * (4 * MIB + 1)},
        v2.MESSAGE_BODY_TOO_LARGE,
        frozenset({"python", "node", "java", "go"}),
    ),
    "many properties": (
        {"properties": {f"p{number}": "v" for number in range(129)}},
        v2.MESSAGE_PROPERTIES_TOO_LARGE,
        frozenset(),
    ),
    "large properties": (
        {"properties": {"p": "v" * (16 << 10)}},
        v2.MESSAGE_PROPERTIES_TOO_LARGE,
        frozenset(),
    ),
}
"""What is asked, the code, and the clients that refuse it by themselves."""


def test_what_cannot_be_sent_is_refused_with_its_code(scene: Scene, program: Program) -> None:
    scene.begin("refused", "NORMAL")
    language = program.language
    told: dict[str, int | None] = {}
    with scene.producer() as producer:
        for name, (asked, _, _) in REFUSED.items():
            answer = producer.ask("send", **{"topic": scene.topic, "body": "x", **asked})
            assert "error" in answer, name
            told[name] = code_of(answer)
        assert "id" in producer.ask("send", topic=scene.topic, body="and goes on")
    expected = {
        name: None if language in by_themselves else code
        for name, (_, code, by_themselves) in REFUSED.items()
    }
    if language == "rust":
        expected["no body"] = v2.BAD_REQUEST  # the right code would end it: it knows it not
    assert told == expected


@pytest.mark.long
def test_a_stale_handle_is_refused_by_its_code(scene: Scene, program: Program) -> None:
    scene.begin("stale", "NORMAL")
    with scene.producer() as producer, scene.simple() as late, scene.simple() as other:
        sent = producer.ask("send", topic=scene.topic, body="x")
        assert [each["id"] for each in received(late, 1)] == [sent["id"]]
        time.sleep(INVISIBLE_S)
        assert [each["id"] for each in received(other, 1)] == [sent["id"]]
        answer = late.ask("ack", id=sent["id"])
        if program.language == "go":
            assert "error" not in answer  # this client does not look at it
        else:
            assert code_of(answer) == v2.INVALID_RECEIPT_HANDLE
        if "postpone" in ABILITIES[program.language]:
            answer = late.ask("postpone", id=sent["id"], invisible_s=INVISIBLE_S)
            assert code_of(answer) == v2.INVALID_RECEIPT_HANDLE
        assert other.ask("ack", id=sent["id"]) == {"id": sent["id"]}


@pytest.mark.long
def test_an_illegal_group_is_refused(scene: Scene, program: Program) -> None:
    scene.begin("no-group", "NORMAL")
    scene.group = "a b"
    codes: list[int | None] = []
    with (
        pytest.raises(AssertionError, match=r"the client has ended|ILLEGAL"),
        scene.simple() as consumer,
    ):
        # Only the one for Rust starts. It ends with an error, too, when it is told to stop.
        codes.append(code_of(consumer.ask("receive", max=1, invisible_s=INVISIBLE_S)))
    assert codes == ([v2.ILLEGAL_CONSUMER_GROUP] if program.language == "rust" else [])
