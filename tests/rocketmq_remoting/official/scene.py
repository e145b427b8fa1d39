"""One of Apache's remoting clients in its roles, with a topic and a group of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.rocketmq_api.official.clients import Client, running_client, started_client
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
QUIET_S = 2.0
"""How long nothing must come to believe that nothing more will."""


class Scene:
    """Topics have four queues on two brokers."""

    def __init__(
        self, program: Program, up: Up, home: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment`: of the clients, in addition to the tests' own."""
        self.program, self.up, self._home = program, up, home
        self._environment = environment or {}
        self.topic = self.group = ""

    def begin(self, name: str, *, queues: int = 4) -> None:
        self.topic = f"{name}-{self.program.language}".replace(".", "_")
        self.group = f"{self.topic}-readers"
        self.up.run("topic", "create", self.topic, "--queues", str(queues))
        wait_until(lambda: self.up.knows(self.topic), "the topic")

    @property
    def address(self) -> str:
        address: str = self.up.document()["nameserver"]
        return address

    def producer(self) -> AbstractContextManager[Client]:
        return running_client(
            self.program,
            "producer",
            self.address,
            home=self._home,
            environment=self._environment,
        )

    def consumer(self, role: str = "push", tags: str = "*") -> AbstractContextManager[Client]:
        wanted = self.topic if role == "pull" or tags == "*" else f"{self.topic}={tags}"
        return running_client(
            self.program,
            role,
            self.address,
            self.group,
            wanted,
            home=self._home,
            environment=self._environment,
        )

    def consumer_that_dies(self, role: str = "push") -> Client:
        """The caller ends it."""
        return started_client(
            self.program, role, self.address, self.group, self.topic, home=self._home
        )

    def send(self, producer: Client, *bodies: str, **message: Any) -> list[dict[str, Any]]:
        """One after the other; each is stored."""
        answers = [producer.ask("send", topic=self.topic, body=body, **message) for body in bodies]
        assert all(each.get("status") in ("SEND_OK", "ONEWAY") for each in answers), answers
        return answers


def trusting(up: Up) -> dict[str, str]:
    """Java's remoting clients encrypt, and accept only what the cluster's authority vouches for."""
    settings = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": up.document()["tls"]["ca"],
    }
    return {"JAVA_TOOL_OPTIONS": " ".join(f"-D{name}={value}" for name, value in settings.items())}


def as_user(up: Up, name: str, folder: Path, *flags: str) -> dict[str, str]:
    """A new user's keys."""
    file = folder / f"{name}.keys"
    up.run("user", "create", name, *flags, "--credentials-file", str(file))
    lines = (line.partition("=") for line in file.read_text().splitlines())
    return {key.strip().upper(): value.strip() for key, equals, value in lines if equals}


def pushed(consumer: Client, count: int) -> list[dict[str, Any]]:
    """The next messages that its listener is called with."""
    messages: list[dict[str, Any]] = []
    for _ in range(count):
        message = consumer.pushed(PATIENCE_S)
        assert message is not None, messages
        messages.append(message)
    return messages


def received(consumer: Client, count: int) -> list[dict[str, Any]]:
    """Polls until there are so many."""
    messages: list[dict[str, Any]] = []
    while len(messages) < count:
        found = consumer.ask("receive")
        assert found["messages"], (found, messages)
        messages += found["messages"]
    return messages


def is_quiet(consumer: Client) -> bool:
    return consumer.pushed(QUIET_S) is None


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]
