"""A consumer whose listener ends its process at a body that says how; see test_attempts.py.

Prints `BODY reconsume_times` before each message is handled, `skipped BODY failures` when it is
given up, and ends with 0 once `last` was handled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from aerobee.consumer_client import (
    ConsumerConfig,
    Exhausted,
    PushConsumer,
    ReceivedMessage,
    RetryPolicy,
    StartFrom,
)


def main(nameserver: str, folder: str, batch_max: int) -> None:
    def handle(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            print(message.body.decode(), message.reconsume_times, flush=True)
        for message in messages:
            match message.body:
                case b"exit":
                    os._exit(3)
                case b"kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                case b"sys.exit":
                    sys.exit(3)
                case b"last":
                    consumer.stop()

    def give_up(messages: Sequence[ReceivedMessage], failures: int) -> Exhausted:
        print("skipped", messages[0].body.decode(), failures, flush=True)
        return Exhausted.SKIP

    consumer = PushConsumer(
        "g",
        handle,
        run_in_thread=False,
        nameservers=nameserver,
        start_from=StartFrom.FIRST,
        max_concurrency=1,
        consume_batch_max=batch_max,
        retry=RetryPolicy(attempts_max=2),
        on_exhausted=give_up,
        offsets_folder=Path(folder),
        config=ConsumerConfig(session_timeout_ms=500, commit_interval_ms=60_000),
    ).subscribe("single")
    asyncio.run(consumer.run())


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
