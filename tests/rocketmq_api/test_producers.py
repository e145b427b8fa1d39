"""Who is asked about a topic's transactions: those that name it, then the sender, then others."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest

from aerobee.rocketmq_api.clients import producers
from aerobee.rocketmq_api.clients.producers import ProducerTable
from aerobee.rocketmq_api.services.telemetry import OFFERED_MAX, TelemetryStream
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

COMMAND = service_pb2.TelemetryCommand()


class Stream:
    """Counts what it takes."""

    def __init__(self) -> None:
        self.count = 0
        self.is_full = False
        self.denied: set[str] = set()

    def may_send(self, topic: str) -> bool:
        return topic not in self.denied

    def offer(self, command: service_pb2.TelemetryCommand) -> bool:
        self.count += not self.is_full
        return not self.is_full


class Scene:
    def __init__(self) -> None:
        self.changes = 0
        self.table = ProducerTable(on_topics=self._changed)
        self.streams: dict[str, Stream] = {}
        self.asked: list[str] = []

    def _changed(self) -> None:
        self.changes += 1

    def open(self, client_id: str, *topics: str) -> Stream:
        stream = self.streams[client_id] = Stream()
        self.table.stream_began(client_id, stream)
        if topics:
            self.name(client_id, *topics)
        return stream

    def name(self, client_id: str, *topics: str) -> None:
        resources = {each: v2.Resource(name=f"{client_id}:{each}") for each in topics}
        self.table.told(client_id, resources, needs_plain_body=client_id == "cpp")

    def close(self, client_id: str) -> None:
        self.table.stream_ended(client_id, self.streams.pop(client_id))

    def sent(self, client_id: str, message_id: str, topic: str = "t") -> None:
        self.table.sent(client_id, topic, v2.Resource(name=topic), message_id)

    def ask(self, message_id: str = "m", topic: str = "t") -> str:
        """Who takes the question; empty: nobody."""
        before = {name: stream.count for name, stream in self.streams.items()}
        is_asked = self.table.ask(topic, message_id, lambda resource, needs_plain: COMMAND)
        found = [name for name, count in before.items() if self.streams[name].count > count]
        assert is_asked == bool(found)
        return found[0] if found else ""


def test_who_names_the_topic_comes_first_each_in_turn() -> None:
    scene = Scene()
    scene.open("sender")
    scene.sent("sender", "m")
    assert scene.ask() == "sender"
    for name in ("a", "b", "c"):
        scene.open(name, "t", "u")
    assert Counter(scene.ask() for _ in range(9)) == {"a": 3, "b": 3, "c": 3}
    scene.streams["b"].is_full = True
    assert Counter(scene.ask() for _ in range(6)) == {"a": 3, "c": 3}
    for name in ("a", "b", "c"):
        scene.close(name)
    assert scene.ask() == "sender"


def test_the_sender_comes_before_others_that_sent_to_the_topic() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.open(name)
        scene.sent(name, f"by-{name}")
    assert [scene.ask("by-b") for _ in range(3)] == ["b"] * 3
    assert {scene.ask("by-another") for _ in range(2)} == {"a", "b"}
    scene.close("b")
    assert scene.ask("by-b") == "a"
    scene.close("a")
    assert scene.ask("by-b") == ""


def test_topics_outlive_a_stream_and_end_with_settings_and_with_a_goodbye() -> None:
    scene = Scene()
    scene.open("a", "t")
    scene.close("a")
    assert not scene.table.topics
    scene.open("a")  # its settings come minutes later
    assert scene.ask() == "a"
    scene.name("a", "u")
    assert scene.ask() == ""
    assert scene.table.topics == {"u"}
    scene.table.left("a")
    assert not scene.table.topics
    assert scene.changes == 6


def test_a_newer_stream_takes_the_place_of_an_older_one() -> None:
    scene = Scene()
    old = scene.open("a", "t")
    new = scene.open("a")
    scene.table.stream_ended("a", old)
    scene.ask()
    assert (old.count, new.count) == (0, 1)


def test_each_is_asked_in_its_own_words() -> None:
    scene, made = Scene(), []
    scene.open("cpp", "t")

    def make(resource: v2.Resource, needs_plain_body: bool) -> service_pb2.TelemetryCommand:
        made.append((resource.name, needs_plain_body))
        return COMMAND

    scene.table.ask("t", "m", make)
    assert made == [("cpp:t", True)]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWAY_MAX", "SENDERS_MAX", "TOPICS_MAX"):
        monkeypatch.setattr(producers, name, 10)
    scene = Scene()
    for number in range(50):
        scene.open(f"c-{number}", *(f"t-{each}" for each in range(50)))
        scene.sent(f"c-{number}", f"m-{number}", f"s-{number}")
        scene.close(f"c-{number}")
        scene.sent("never-here", f"n-{number}", f"s-{number}")
    assert repr(scene.table) == "ProducerTable(here=[], away=10, senders=10)"
    assert not scene.table.topics
    full = Scene()
    for number in range(50):
        full.open(f"c-{number}", "t").is_full = True
    assert full.ask() == ""


async def test_a_stream_takes_a_bounded_number_and_none_while_it_ends() -> None:
    going = asyncio.Event()

    class Context:
        async def write(self, command: Any) -> None:
            await going.wait()

    async def ends() -> TelemetryStream:
        scope = asyncio.timeout(None)
        with contextlib.suppress(TimeoutError):
            async with scope:
                stream = TelemetryStream(Context(), scope)
                taken = [stream.offer(COMMAND) for _ in range(OFFERED_MAX + 1)]
                assert taken[-2:] == [True, False]
                going.set()
                await asyncio.sleep(0.01)
                assert stream.offer(COMMAND)
                stream.stop()
                assert not stream.offer(COMMAND)
                await asyncio.sleep(10)
        assert scope.expired()
        stream.end()
        return stream

    assert not (await ends()).offer(COMMAND)


def test_a_stream_whose_user_may_not_send_to_the_topic_now_is_never_asked() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.open(name, "t")
    scene.sent("b", "m")
    scene.streams["b"].denied.add("t")
    assert [scene.ask() for _ in range(4)] == ["a"] * 4
    scene.close("a")
    assert scene.ask() == ""
    scene.streams["b"].denied.clear()
    assert scene.ask() == "b"
