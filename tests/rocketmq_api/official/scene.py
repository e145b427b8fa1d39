"""One of Apache's clients in its roles, and what its consumers get."""

from __future__ import annotations

import json
import re
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from apache.rocketmq.v2 import definition_pb2 as v2
from tests.rocketmq_api.official.clients import Client, running_client
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up
from tests.support.waiting import wait_until

INVISIBLE_S = 10
"""The shortest that a client may ask for."""
PATIENCE_S = 60.0

_CODE = re.compile(
    r"response-code=(\d+)"  # Java and Node
    r"|CODE: ([A-Z_]+)"  # Go
    r"|code: ([A-Z_]+)"  # Rust
    r"|Exception: (\d+)"  # Python
    r"|\(code: (\d+)\)"  # Node, of a recall
)


class Scene:
    """One client in its roles, with topics and a group of its own."""

    def __init__(self, program: Program, up: Up, home: Path) -> None:
        self._program, self._up, self._home = program, up, home
        self.group = self.topic = ""
        self.topics: list[str] = []
        """`topic` and others."""

    def begin(self, name: str, kind: str, *rules: str, topics: int = 1) -> None:
        """`rules`: what `aerobee group configure` is told."""
        self.topic = f"{name}-{self._program.language}"
        self.topics = [self.topic, *(f"{self.topic}-{number}" for number in range(1, topics))]
        self.group = f"{self.topic}-readers"
        self._up.run("topic", "create", *self.topics, "--queues", "4", "--type", kind)
        wait_until(lambda: all(map(self._up.knows, self.topics)), "the topics")
        if rules:
            self._up.run("group", "configure", self.group, *rules)

    def producer(self) -> AbstractContextManager[Client]:
        return self._client("producer", *self.topics)

    def simple(self, tags: str = "*") -> AbstractContextManager[Client]:
        return self._client("simple", self.group, *(f"{each}={tags}" for each in self.topics))

    def push(self, tags: str = "*") -> AbstractContextManager[Client]:
        return self._client("push", self.group, *(f"{each}={tags}" for each in self.topics))

    def _client(self, role: str, *rest: str) -> AbstractContextManager[Client]:
        address = self._up.document()["nameserver"]
        return running_client(self._program, role, address, *rest, home=self._home)


def code_of(answer: dict[str, Any]) -> int | None:
    """The code that the client was told; None: it refused by itself, or has done it."""
    found = _CODE.search(answer.get("error", ""))
    if found is None:
        return None
    (word,) = filter(None, found.groups())
    return int(word) if word.isdigit() else v2.Code.Value(word)


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
