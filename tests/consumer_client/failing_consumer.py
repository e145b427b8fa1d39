"""A consumer that fails as each body says; see test_failing_processes.py.

Prints `BODY reconsume_times` before each message is handled, and `BODY done` after those that take
their time. With `threads` several calls run at a time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aerobee.consumer_client import ConsumerConfig, Ordering, PushConsumer, StartFrom
from aerobee.consumer_client import ReceivedMessage as Message

IN_COMPANY_S = 0.3


def main(nameserver: str, folder: str, how: str, client_id: str) -> None:
    in_threads = how == "threads"
    ordering = Ordering.CONCURRENT if in_threads else Ordering(how)
    running = 0

    def handle(messages: Sequence[Message]) -> None:
        nonlocal running
        for message in messages:
            print(f"{message.body.decode()} {message.reconsume_times}\n", end="", flush=True)
            running += 1
            if message.body.startswith(b"exit"):
                end_s = time.monotonic() + IN_COMPANY_S
                while in_threads and running < 3 and time.monotonic() < end_s:
                    time.sleep(0.01)
                os._exit(3)
            if message.body.startswith(b"slow"):
                time.sleep(IN_COMPANY_S)
                print(f"{message.body.decode()} done\n", end="", flush=True)
            running -= 1
            if message.body.startswith(b"raise"):
                raise ValueError("it cannot be read")

    consumer = PushConsumer(
        "g",
        handle,
        run_in_thread=in_threads,
        nameservers=nameserver,
        client_id=client_id,
        ordering=ordering,
        start_from=StartFrom.FIRST,
        suspend_ms=100,
        offsets_folder=Path(folder),
        config=ConsumerConfig(session_timeout_ms=500, commit_interval_ms=100),
    ).subscribe("single")
    asyncio.run(consumer.run())


main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
