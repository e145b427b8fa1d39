"""Clients of several topics, and listeners that take longer than a message stays invisible."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.rocketmq_api.official.programs import ABILITIES, PROGRAMS
from tests.rocketmq_api.official.scene import Scene, pushed, received
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
START_S_MAX = 15.0
ALL_SEEN_S = 240.0
"""Some clients draw lots for the topic that they poll next: all have their turn by then."""
HELD_S = 62
"""A message is invisible for 60 s at first; its client is heard of every 10 s."""
TAKES_S = HELD_S + 28
"""The clients start one after the other."""


@pytest.mark.thorough
def test_a_client_of_several_topics_starts_and_gets_what_comes_to_each(
    scene: Scene, program: Program
) -> None:
    """The one for Node waits for settings that came before it waited: it is told them again."""
    scene.begin("several", "NORMAL", topics=4)
    began_s = time.monotonic()
    with scene.producer() as producer, scene.simple() as consumer:
        assert time.monotonic() - began_s < START_S_MAX
        for topic in scene.topics:
            assert "id" in producer.ask("send", topic=topic, body=topic)
        missing = set(scene.topics)
        while missing:
            found = received(consumer, 1, patience_s=ALL_SEEN_S)
            assert found, missing
            for each in found:
                assert "id" in consumer.ask("ack", id=each["id"])
                missing.remove(each["body"])
    if "push" not in ABILITIES[program.language]:
        return
    scene.group += "-too"
    with scene.push() as consumer:
        messages = pushed(consumer, len(scene.topics))
    assert sorted((each["topic"], each["body"]) for each in messages) == [
        (topic, topic) for topic in sorted(scene.topics)
    ]


@pytest.mark.long
def test_a_listener_may_take_longer_than_a_message_is_invisible(up: Up, tmp_path: Path) -> None:
    """All clients at once: each takes more than a minute."""
    programs = [each for each in PROGRAMS.values() if "push" in ABILITIES[each.language]]
    scenes = [Scene(each, up, tmp_path) for each in programs if not each.missing]
    with contextlib.ExitStack() as stack:
        consumers = {}
        for scene in scenes:
            scene.begin("long", "NORMAL")
            with scene.producer() as producer:
                properties = {"takes_s": str(TAKES_S)}
                sent = producer.ask("send", topic=scene.topic, body="x", properties=properties)
                assert "id" in sent
            consumers[scene.group] = stack.enter_context(scene.push())
        for consumer in consumers.values():
            pushed(consumer, 1)

        def lags() -> dict[str, int]:
            groups = {each["group"]: int(each["lag"]) for each in up.json("group", "list")}
            return {group: groups[group] for group in consumers}

        time.sleep(HELD_S)
        assert set(lags().values()) == {1}
        wait_until(lambda: set(lags().values()) == {0}, "the acknowledgements", timeout_s=60)
        again = {group: consumer.pushed(0.5) for group, consumer in consumers.items()}
        assert again == dict.fromkeys(consumers)
