"""Apache's client for Python, told what to do line by line; programs.py says in which words."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from rocketmq import ClientConfiguration, Credentials, Message, Producer


def say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


def sent(producer: Producer, asked: dict[str, Any]) -> dict[str, object]:
    message = Message()
    message.topic = asked["topic"]
    message.body = asked["body"].encode()
    if "tag" in asked:
        message.tag = asked["tag"]
    for key in asked.get("keys", ()):
        message.keys = key
    for name, value in asked.get("properties", {}).items():
        message.add_property(name, value)
    if "group" in asked:
        message.message_group = asked["group"]
    if "delay_s" in asked:
        message.delivery_timestamp = int(time.time()) + asked["delay_s"]
    if "priority" in asked:
        message.priority = asked["priority"]
    receipt = producer.send(message)
    return {
        "id": receipt.message_id,
        "transaction": receipt.transaction_id,
        "handle": receipt.recall_handle,
    }


def obey(role: Callable[[dict[str, Any]], dict[str, object]]) -> None:
    """Answers line by line until it is told to stop."""
    say({"started": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "stop":
            return
        try:
            say(role(asked))
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})


def produce(configuration: ClientConfiguration, *topics: str) -> None:
    producer = Producer(configuration, topics)
    producer.startup()

    def answer(asked: dict[str, Any]) -> dict[str, object]:
        if asked["do"] == "send":
            return sent(producer, asked)
        return {"id": producer.recall_message(asked["topic"], asked["handle"])}

    obey(answer)
    producer.shutdown()


def main(role: str, address: str, *rest: str) -> None:
    ROLES[role](ClientConfiguration(address, Credentials()), *rest)
    say({"stopped": True})


ROLES = {"producer": produce}
main(*sys.argv[1:])
