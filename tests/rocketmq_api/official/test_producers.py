"""Apache's own producers send to a real cluster, and our consumer reads what they sent."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.grpc_core.interop.programs import Program
from tests.rocketmq_api.official.programs import PROGRAMS
from tests.support.local_up import Up, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TOPICS = {"t": "NORMAL", "fifo": "FIFO", "later": "DELAY", "urgent": "PRIORITY"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two brokers and a nameserver, which is all that clients are told."""
    with running(tmp_path_factory.mktemp("cluster"), "--brokers", "2") as up:
        for topic, kind in TOPICS.items():
            up.run("topic", "create", topic, "--queues", "4", "--attribute", f"message.type={kind}")
        yield up


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    program = PROGRAMS[request.param]
    if program.missing:
        pytest.skip(program.missing)
    return program


class Producer:
    """A client's process; each call waits for its line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the client has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, do: str, **asked: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **asked}) + "\n")
        self._process.stdin.flush()
        return self.answer()


@contextmanager
def producing(program: Program, up: Up, home: Path, *topics: str) -> Iterator[Producer]:
    process = subprocess.Popen(
        program.command_line(up.document()["nameserver"], *topics),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(home)},  # they write logs there
    )
    try:
        producer = Producer(process)
        assert producer.answer() == {"started": True}
        yield producer
        assert producer.ask("stop") == {"stopped": True}
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def consumed(up: Up, topic: str, group: str, count: int) -> list[dict[str, Any]]:
    done = up.run("consume", topic, "--group", group, "--count", str(count), "--format", "json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_it_sends_arrives_with_all_that_it_says(
    program: Program, up: Up, tmp_path: Path
) -> None:
    with producing(program, up, tmp_path, *TOPICS) as producer:
        answer = producer.ask(
            "send",
            topic="t",
            body=f"by {program.language}",
            tag="paid",
            keys=["order-7"],
            properties={"carrier": "UA"},
        )
        assert answer["id"] == answer["transaction"]
        (message,) = consumed(up, "t", "readers", 1)
        assert message["body"] == f"by {program.language}"
        assert message["tag"] == "paid"
        assert message["keys"] == ["order-7"]
        assert message["properties"]["carrier"] == "UA"

        for number in range(6):
            asked = {"topic": "fifo", "body": str(number), "group": f"g{number % 2}"}
            assert "id" in producer.ask("send", **asked)
        bodies = [message["body"] for message in consumed(up, "fifo", "readers", 6)]
        for half in (("0", "2", "4"), ("1", "3", "5")):
            assert tuple(body for body in bodies if body in half) == half

        assert "id" in producer.ask("send", topic="urgent", body="now", priority=1)
        (message,) = consumed(up, "urgent", "readers", 1)
        assert message["body"] == "now"


def test_it_calls_off_what_it_sent_for_later(program: Program, up: Up, tmp_path: Path) -> None:
    with producing(program, up, tmp_path, "later") as producer:
        recalled = producer.ask("send", topic="later", body="never", delay_s=60)
        assert recalled["handle"]
        body = f"soon by {program.language}"
        soon = producer.ask("send", topic="later", body=body, delay_s=2)
        assert "id" in soon
        answer = producer.ask("recall", topic="later", handle=recalled["handle"])
        assert answer == {"id": recalled["id"]}
        (message,) = consumed(up, "later", "readers", 1)
        assert message["body"] == body


def test_it_is_told_what_is_refused(program: Program, up: Up, tmp_path: Path) -> None:
    with producing(program, up, tmp_path, "t") as producer:
        assert "error" in producer.ask("send", topic="fifo", body="without a group")
        assert "error" in producer.ask("send", topic="t", body="x" * ((4 << 20) + 1))
        assert "error" in producer.ask("send", topic="absent", body="x")
        assert "id" in producer.ask("send", topic="t", body="x" * ((4 << 20) - 100))
