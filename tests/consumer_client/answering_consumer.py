"""A consumer that answers as each body says, and is killed; see test_killed_answers.py.

A body is `KEY NUMBER ANSWER`. Prints `begin KEY NUMBER` before a message is handled, and
`ok`, `reject` or `later` with the same when it answers that.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aerobee.consumer_client import (
    ConsumerConfig,
    Ordering,
    PushConsumer,
    ReceivedMessage,
    Reject,
    RetryLater,
    StartFrom,
)


def say(*words: object) -> None:
    print(" ".join(map(str, words)) + "\n", end="", flush=True)


async def handle(messages: Sequence[ReceivedMessage]) -> None:
    (message,) = messages
    key, number, answer = message.body.decode().split()
    say("begin", key, number)
    await asyncio.sleep(0.001)
    if answer == "reject":
        say("reject", key, number)
        raise Reject("never")
    if answer == "later" and not message.reconsume_times:
        say("later", key, number)
        raise RetryLater("not yet", after=0.05)
    say("ok", key, number)


def main(nameserver: str, folder: str, how: str, client_id: str) -> None:
    order: dict[str, Any] = {"ordering": Ordering(how)} if how != "key" else {}
    if how == "key":
        order["order_by"] = lambda message: message.body.split()[0].decode()
    consumer = PushConsumer(
        "g",
        handle,
        nameservers=nameserver,
        client_id=client_id,
        start_from=StartFrom.FIRST,
        offsets_folder=Path(folder),
        config=ConsumerConfig(session_timeout_ms=500, commit_interval_ms=20),
        **order,
    ).subscribe("single")
    asyncio.run(consumer.run())


main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
