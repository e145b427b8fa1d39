"""Consumers as the guide has them, to be ended by Ctrl-C; see test_interrupts.py.

Prints each body before it is handled; the body `slow` takes until the interrupt, and longer.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aerobee import (
    BlockingPullConsumer,
    BlockingPushConsumer,
    ConsumerConfig,
    ReceivedMessage,
    StartFrom,
)

CONFIG = ConsumerConfig(session_timeout_ms=500, commit_interval_ms=100, close_timeout_ms=300)


def handle(messages: Sequence[ReceivedMessage]) -> None:
    for message in messages:
        print(message.body.decode(), flush=True)
        if message.body == b"slow":
            time.sleep(1.5)


def push(nameserver: str, folder: Path) -> None:
    consumer = BlockingPushConsumer(
        "g",
        handle,
        nameservers=nameserver,
        start_from=StartFrom.FIRST,
        max_concurrency=1,
        offsets_folder=folder,
        config=CONFIG,
    )
    consumer.subscribe("single")
    print("starting", flush=True)
    consumer.run()
    print("stopped", flush=True)


def pull(nameserver: str) -> None:
    readers = BlockingPullConsumer(
        "g", nameservers=nameserver, start_from=StartFrom.FIRST, config=CONFIG
    )
    with readers.subscribe("single") as consumer:
        for message in consumer:
            print(message.body.decode(), flush=True)
            if message.body == b"slow":
                time.sleep(60)


if __name__ == "__main__":
    logging.disable()
    if sys.argv[1] == "push":
        push(sys.argv[2], Path(sys.argv[3]))
    else:
        pull(sys.argv[2])
