"""Nodes end under load and start again: Apache's own clients go on by themselves and lose nothing.

Each client sends, and receives in a group of its own, as a push consumer and as a simple one. What
a producer was told to be sent comes to every group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.rocketmq_api.official.clients import Client, started_client
from tests.rocketmq_api.official.programs import ABILITIES, PROGRAMS
from tests.rocketmq_api.official.scene import code_of
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOPIC = "t"
SENDS_PER_S = 5.0
INVISIBLE_S = 10
LOAD_S = 5.0
PATIENCE_S = 100.0
"""What a push consumer was about to get from a broker that died comes again after 60 s."""
DUPLICATES_MAX = 50


class Sending:
    """A producer that sends on, and what it was told to be sent."""

    def __init__(self, language: str, client: Client) -> None:
        self.sent: set[str] = set()
        self.language, self._client = language, client
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(1 / SENDS_PER_S):
            body = f"{self.language} {number}"
            number += 1
            if "id" in self._client.ask("send", topic=TOPIC, body=body):
                self.sent.add(body)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


class Receiving:
    """A consumer that receives on, and how often each message came. A subclass has `_receive`."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.bodies: set[str] = set()
        self.ids: Counter[str] = Counter()
        self._client = client
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for message in self._receive():
                self.bodies.add(message["body"])
                self.ids[message["id"]] += 1

    def _receive(self) -> Sequence[dict[str, str]]:
        raise NotImplementedError

    @property
    def duplicates(self) -> int:
        return sum(self.ids.values()) - len(self.ids)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


class Listening(Receiving):
    def _receive(self) -> Sequence[dict[str, str]]:
        message = self._client.pushed(1.0)
        return () if message is None else (message,)


class Polling(Receiving):
    def _receive(self) -> Sequence[dict[str, str]]:
        answer = self._client.ask("receive", max=32, invisible_s=INVISIBLE_S)
        messages: Sequence[dict[str, str]] = answer.get("messages", ())
        for message in messages:
            self._acknowledge(message["id"])
        return messages

    def _acknowledge(self, message_id: str) -> None:
        """As an application does it: again, unless it is too late."""
        for _ in range(INVISIBLE_S):
            answer = self._client.ask("ack", id=message_id)
            if "error" not in answer or code_of(answer) == v2.INVALID_RECEIPT_HANDLE:
                return
            time.sleep(0.5)


class Load:
    """What runs against one cluster."""

    def __init__(self, up: Up, programs: Sequence[Program], home: Path) -> None:
        self._up, self._home = up, home
        self.consumers: list[Receiving] = []
        self.producers: list[Sending] = []
        with contextlib.ExitStack() as self._stack:
            for each in programs:
                self._begin_consumers(each)
            for each in programs:
                sending = Sending(each.language, self._client(each, "producer", TOPIC))
                self.producers.append(sending)
            self._stack = self._stack.pop_all()

    def _begin_consumers(self, program: Program) -> None:
        language = program.language
        client = self._client(program, "simple", f"{language}-simple", TOPIC)
        self.consumers.append(Polling(f"{language} simple", client))
        if "push" in ABILITIES[language]:
            client = self._client(program, "push", f"{language}-push", TOPIC)
            self.consumers.append(Listening(f"{language} push", client))

    def _client(self, program: Program, role: str, *rest: str) -> Client:
        address = self._up.document()["nameserver"]
        client = started_client(program, role, address, *rest, home=self._home)
        # How they stop is not what is tried; push consumers take half a minute for it.
        self._stack.callback(client.end)
        return client

    def until_all_go_on(self, what: str) -> None:
        """Each producer has sent something, and each consumer had something, that is new."""
        before = {each: len(each.sent) for each in self.producers}
        had = {each: len(each.bodies) for each in self.consumers}
        self._until(
            lambda: (
                [
                    f"the producer {each.language}"
                    for each in before
                    if len(each.sent) <= before[each]
                ]
                + [each.name for each in had if len(each.bodies) <= had[each]]
            ),
            what,
        )

    def end(self) -> None:
        """All that was sent has come."""
        for producer in self.producers:
            producer.end()
        sent = set().union(*(each.sent for each in self.producers))
        self._until(
            lambda: [
                f"{each.name}: {sorted(sent - each.bodies)}"
                for each in self.consumers
                if not sent <= each.bodies
            ],
            "all that was sent",
        )
        for consumer in self.consumers:
            consumer.end()

    def _until(self, lacking: Callable[[], Sequence[str]], what: str) -> None:
        ends_s = time.monotonic() + PATIENCE_S
        while left := lacking():
            assert time.monotonic() < ends_s, f"{what}: {left}"
            time.sleep(0.2)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *error: object) -> None:
        for producer in self.producers:
            producer.end()
        for consumer in self.consumers:
            consumer.end()
        self._stack.close()


def nodes(up: Up, kind: str) -> list[str]:
    """The names of the nodes of a kind."""
    return [name for name in up.document()["pids"] if name.startswith(kind)]


def restarted(up: Up, name: str, how: signal.Signals) -> None:
    """`aerobee up` starts what has ended."""
    pid = up.document()["pids"][name]
    os.kill(pid, how)
    wait_until(lambda: up.document()["pids"][name] not in (pid, None), name)


ALL = tuple(PROGRAMS)
CASES = [
    pytest.param(("python", "node"), "broker-a", signal.SIGKILL, id="quick"),
    *(
        pytest.param(ALL, kind, how, id=f"{kind}-{how.name}", marks=pytest.mark.long)
        for kind in ("broker", "nameserver")
        for how in (signal.SIGKILL, signal.SIGTERM)
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("languages", "kind", "how"), CASES)
def test_clients_go_on_when_a_node_starts_again_and_lose_nothing(
    languages: Sequence[str], kind: str, how: signal.Signals, tmp_path: Path
) -> None:
    programs = [PROGRAMS[each] for each in languages if not PROGRAMS[each].missing]
    if not programs:
        pytest.skip(PROGRAMS[languages[0]].missing)
    with running(tmp_path, "--brokers", "2") as up:
        up.run("topic", "create", TOPIC, "--queues", "8", "--type", "NORMAL")
        wait_until(lambda: up.knows(TOPIC), "the topic")
        with Load(up, programs, tmp_path) as load:
            load.until_all_go_on("before")
            for name in nodes(up, kind):
                restarted(up, name, how)
                time.sleep(LOAD_S)
                load.until_all_go_on(f"after {name}")
            load.end()
            for consumer in load.consumers:
                print(f"{consumer.name}: {len(consumer.ids)} messages, {consumer.duplicates} again")
                assert consumer.duplicates < DUPLICATES_MAX
