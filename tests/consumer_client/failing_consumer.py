"""A consumer that fails as each body says; see test_failing_processes.py.

Prints `BODY reconsume_times` before each message is handled.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from aerobee.consumer_client import ConsumerConfig, Ordering, PushConsumer, StartFrom
from aerobee.consumer_client import ReceivedMessage as Message


def main(nameserver: str, folder: str, ordering: Ordering, client_id: str) -> None:
    def handle(messages: Sequence[Message]) -> None:
        for message in messages:
            print(message.body.decode(), message.reconsume_times, flush=True)
            if message.body.startswith(b"exit"):
                os._exit(3)
            if message.body.startswith(b"raise"):
                raise ValueError("it cannot be read")

    consumer = PushConsumer(
        "g",
        handle,
        run_in_thread=False,
        nameservers=nameserver,
        client_id=client_id,
        ordering=ordering,
        start_from=StartFrom.FIRST,
        suspend_ms=100,
        offsets_folder=Path(folder),
        config=ConsumerConfig(session_timeout_ms=500, commit_interval_ms=100),
    ).subscribe("single")
    asyncio.run(consumer.run())


main(sys.argv[1], sys.argv[2], Ordering(sys.argv[3]), sys.argv[4])
