"""Apache's client for Python, told what to do line by line: JSON in, JSON out.

    {"do": "send", "topic": T, "body": B, "tag": T, "keys": [K], "properties": {N: V},
     "group": G, "delay_s": S, "priority": P}      all but topic and body may be absent
    {"do": "recall", "topic": T, "handle": H}
    {"do": "stop"}

Arguments: the address of a node, and the topics that the producer names.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rocketmq import ClientConfiguration, Credentials, Message, Producer


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


def main(address: str, *topics: str) -> None:
    producer = Producer(ClientConfiguration(address, Credentials()), topics)
    producer.startup()
    print(json.dumps({"started": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "stop":
            break
        try:
            if asked["do"] == "send":
                answer = sent(producer, asked)
            else:
                answer = {"id": producer.recall_message(asked["topic"], asked["handle"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    producer.shutdown()
    print(json.dumps({"stopped": True}), flush=True)


main(*sys.argv[1:])
