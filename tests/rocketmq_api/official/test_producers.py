"""Apache's own producers send to a real cluster, and our consumer reads what they sent."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.rocketmq_api.official.clients import Client, running_client
from tests.rocketmq_api.official.programs import ABILITIES, skip_without
from tests.rpc.core.interop.programs import Program
from tests.support.local_up import Up, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TOPICS = {
    "t": "NORMAL",
    "batches": "NORMAL",
    "large": "NORMAL",
    "fifo": "FIFO",
    "later": "DELAY",
    "urgent": "PRIORITY",
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two brokers and a nameserver, which is all that clients are told."""
    with running(tmp_path_factory.mktemp("cluster"), "--brokers", "2") as up:
        for topic, kind in TOPICS.items():
            up.run("topic", "create", topic, "--queues", "4", "--type", kind)
        yield up


def producing(program: Program, up: Up, home: Path, *topics: str) -> AbstractContextManager[Client]:
    return running_client(program, "producer", up.document()["nameserver"], *topics, home=home)


def consumed(up: Up, topic: str, group: str, count: int) -> list[dict[str, Any]]:
    done = up.run("consume", topic, "--group", group, "--count", str(count), "--format", "json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_it_sends_arrives_with_all_that_it_says(
    program: Program, up: Up, tmp_path: Path
) -> None:
    with producing(program, up, tmp_path, "t", "fifo") as producer:
        answer = producer.ask(
            "send",
            topic="t",
            body=f"by {program.language}",
            tag="paid",
            keys=["order-7"],
            properties={"carrier": "UA"},
        )
        assert answer.get("transaction", answer["id"]) == answer["id"]
        (message,) = consumed(up, "t", "readers", 1)
        assert message["messageId"] == answer["id"]
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


def test_its_priority_is_taken(program: Program, up: Up, tmp_path: Path) -> None:
    skip_without(program, "priority")
    with producing(program, up, tmp_path, "urgent") as producer:
        assert "id" in producer.ask("send", topic="urgent", body="now", priority=1)
    (message,) = consumed(up, "urgent", "readers", 1)
    assert message["body"] == "now"


def test_its_batch_arrives_whole_in_order_and_each_message_as_it_was(
    program: Program, up: Up, tmp_path: Path
) -> None:
    skip_without(program, "batch")
    batch = [
        {"topic": "batches", "body": str(number), "tag": f"tag-{number}", "keys": [f"key-{number}"]}
        for number in range(10)
    ]
    with producing(program, up, tmp_path, "batches") as producer:
        answer = producer.ask("send", topic="batches", messages=batch)
    assert len(set(answer["ids"])) == len(batch)
    messages = consumed(up, "batches", "readers", len(batch))
    assert [message["messageId"] for message in messages] == answer["ids"]
    for message, sent in zip(messages, batch, strict=True):
        assert {name: message[name] for name in ("body", "tag", "keys")} == {
            name: sent[name] for name in ("body", "tag", "keys")
        }


def test_what_it_sends_for_later_comes_later(program: Program, up: Up, tmp_path: Path) -> None:
    body = f"soon by {program.language}"
    with producing(program, up, tmp_path, "later") as producer:
        recalled = None
        if "recall" in ABILITIES[program.language]:
            recalled = producer.ask("send", topic="later", body="never", delay_s=4)
            assert recalled["handle"]
        before = time.time()
        soon = producer.ask("send", topic="later", body=body, delay_s=3)
        assert "id" in soon
        if recalled is not None:
            answer = producer.ask("recall", topic="later", handle=recalled["handle"])
            assert answer == {"id": recalled["id"]}
        (message,) = consumed(up, "later", "readers", 1)
        assert message["body"] == body
        # Some clients send whole seconds.
        assert time.time() - before > 2


def test_it_sends_what_is_large_and_is_told_what_is_refused(
    program: Program, up: Up, tmp_path: Path
) -> None:
    with producing(program, up, tmp_path, "large", "fifo") as producer:
        for topic, size, why in (
            ("fifo", 1, "message.type"),
            ("large", (4 << 20) + 1, "body (size|has)"),
            ("absent", 1, "absent"),
        ):
            answer = producer.ask("send", topic=topic, body="x" * size)
            assert re.search(why, answer["error"]), answer
        assert "id" in producer.ask("send", topic="large", body="x" * (4 << 20))
