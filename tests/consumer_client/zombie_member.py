"""A consumer process for test_zombie_process: notes each call and its time on standard output.

python zombie_member.py NAMESERVER CLIENT_ID
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

from aerobee.consumer_client import ConsumerConfig, PushConsumer, ReceivedMessage, StartFrom


async def listener(messages: Sequence[ReceivedMessage]) -> None:
    print(messages[0].queue_offset, time.monotonic(), flush=True)
    await asyncio.sleep(0.01)


async def main(nameserver: str, client_id: str) -> None:
    consumer = PushConsumer(
        "g",
        listener,
        nameservers=nameserver,
        client_id=client_id,
        max_concurrency=1,
        start_from=StartFrom.FIRST,
        config=ConsumerConfig(session_timeout_ms=1_000, commit_interval_ms=100),
    )
    await consumer.subscribe("single").run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
