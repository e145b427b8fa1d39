"""Consumers as the guide has them, to be ended by a signal; see test_interrupts.py.

Prints each body before it is handled; the body `slow` takes until the interrupt, and longer;
`exit` ends the program.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aerobee import (
    BlockingPullConsumer,
    BlockingPushConsumer,
    ConsumerConfig,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)

CONFIG = ConsumerConfig(session_timeout_ms=500, commit_interval_ms=60_000, release_timeout_ms=300)


def handle(messages: Sequence[ReceivedMessage]) -> None:
    for message in messages:
        print(message.body.decode(), flush=True)
        if message.body == b"slow":
            time.sleep(1.5)
        if message.body == b"exit":
            sys.exit(3)


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


def coroutine(nameserver: str, folder: Path) -> None:
    consumer = PushConsumer(
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
    asyncio.run(consumer.run())
    print("stopped", flush=True)


def own_handler(nameserver: str, folder: Path) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("by its own"))
    push(nameserver, folder)


def pull(nameserver: str) -> None:
    readers = BlockingPullConsumer(
        "g", nameservers=nameserver, start_from=StartFrom.FIRST, config=CONFIG
    )
    with readers.subscribe("single") as consumer:
        for message in consumer:
            print(message.body.decode(), flush=True)
            if message.body == b"slow":
                time.sleep(60)


async def pull_in_a_loop(nameserver: str) -> None:
    print("starting", flush=True)
    consumer = PullConsumer(
        "g", nameservers=nameserver, start_from=StartFrom.FIRST, config=CONFIG
    ).subscribe("single")
    async with consumer:
        async for message in consumer:
            print(message.body.decode(), flush=True)
            if message.body == b"slow":
                await asyncio.sleep(60)


if __name__ == "__main__":
    logging.disable()
    ways = {"push": push, "coroutine": coroutine, "own handler": own_handler}
    if sys.argv[1] in ways:
        ways[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1] == "pull in a loop":
        asyncio.run(pull_in_a_loop(sys.argv[2]))
    else:
        pull(sys.argv[2])
