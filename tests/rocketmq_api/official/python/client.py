"""Apache's client for Python, told what to do line by line; programs.py says in which words."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

AWAIT_S = 5
TLS = bool(os.environ.get("OFFICIAL_TLS"))
writing = threading.Lock()


def say(answer: dict[str, object]) -> None:
    with writing:
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
    transaction = producer.begin_transaction() if "end" in asked else None
    receipt = producer.send(message, transaction)
    if transaction is not None and asked["end"] != "open":
        transaction.commit() if asked["end"] == "commit" else transaction.rollback()
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


class Checker(TransactionChecker):  # type: ignore[misc]  # it comes without types
    def check(self, message: Message) -> TransactionResolution:
        unknown = "transaction_resolution_unspecified"
        return TransactionResolution.Value(message.properties.get("answer", unknown).upper())


def produce(configuration: ClientConfiguration, *topics: str) -> None:
    producer = Producer(configuration, topics, Checker(), tls_enable=TLS)
    producer.startup()

    def answer(asked: dict[str, Any]) -> dict[str, object]:
        if asked["do"] == "send":
            return sent(producer, asked)
        return {"id": producer.recall_message(asked["topic"], asked["handle"])}

    obey(answer)
    producer.shutdown()


def seen(message: Message) -> dict[str, object]:
    return {
        "id": message.message_id,
        "topic": message.topic,
        "body": message.body.decode(),
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "group": message.message_group,
        "attempt": message.delivery_attempt,
    }


def subscription(topics: tuple[str, ...]) -> dict[str, FilterExpression]:
    pairs = (topic.partition("=") for topic in topics)
    return {topic: filter_of(tags or "*") for topic, _, tags in pairs}


def filter_of(tags: str) -> FilterExpression:
    if tags.startswith("sql:"):
        return FilterExpression(tags.removeprefix("sql:"), FilterType.SQL)
    return FilterExpression(tags)


def receive(configuration: ClientConfiguration, group: str, *topics: str) -> None:
    consumer = SimpleConsumer(
        configuration, group, subscription(topics), await_duration=AWAIT_S, tls_enable=TLS
    )
    consumer.startup()
    held: dict[str, Message] = {}

    def answer(asked: dict[str, Any]) -> dict[str, object]:
        if asked["do"] == "receive":
            messages = consumer.receive(asked["max"], asked["invisible_s"])
            held.update((message.message_id, message) for message in messages)
            return {"messages": [seen(message) for message in messages]}
        if asked["do"] == "ack":
            consumer.ack(held[asked["id"]])
        else:
            consumer.change_invisible_duration(held[asked["id"]], asked["invisible_s"])
        return {"id": asked["id"]}

    obey(answer)
    consumer.shutdown()


class Listener(MessageListener):  # type: ignore[misc]  # it comes without types
    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._counting = threading.Lock()

    def consume(self, message: Message) -> ConsumeResult:
        with self._counting:
            self._calls[message.message_id] += 1
            has_failed = self._calls[message.message_id] <= int(message.properties.get("fails", 0))
        say({"message": seen(message)})
        time.sleep(int(message.properties.get("takes_s", 0)))
        return ConsumeResult.FAILURE if has_failed else ConsumeResult.SUCCESS


def listen(configuration: ClientConfiguration, group: str, *topics: str) -> None:
    consumer = PushConsumer(configuration, group, Listener(), subscription(topics), tls_enable=TLS)
    consumer.startup()
    obey(lambda asked: {})
    consumer.shutdown()


def main(role: str, address: str, *rest: str) -> None:
    keys = Credentials(os.environ.get("TEST_ACCESS_KEY", ""), os.environ.get("TEST_SECRET_KEY", ""))
    ROLES[role](ClientConfiguration(address, keys), *rest)
    say({"stopped": True})


ROLES: dict[str, Callable[..., None]] = {"producer": produce, "simple": receive, "push": listen}
main(*sys.argv[1:])
