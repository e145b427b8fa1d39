"""A consumer by key that is killed; see test_keys_in_order.py. Prints each body it has handled."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from aerobee.consumer_client import ConsumerConfig, PushConsumer, ReceivedMessage, StartFrom


def main(nameserver: str, folder: str, group: str, topic: str) -> None:
    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        await asyncio.sleep(0.001)
        print(messages[0].body.decode() + "\n", end="", flush=True)

    consumer = PushConsumer(
        group,
        handle,
        nameservers=nameserver,
        order_by=lambda message: message.body.split()[0].decode(),
        start_from=StartFrom.FIRST,
        offsets_folder=Path(folder),
        config=ConsumerConfig(session_timeout_ms=500, commit_interval_ms=20),
    ).subscribe(topic)
    asyncio.run(consumer.run())


main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
