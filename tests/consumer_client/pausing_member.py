"""A pull consumer for test_pauses.py: asks and commits all the time, and says what was raised.

python pausing_member.py NAMESERVER SESSION_MS
"""

from __future__ import annotations

import asyncio
import signal
import sys

from aerobee.client_core import AerobeeError
from aerobee.consumer_client import ConsumerConfig, PullConsumer, StartFrom


async def main(nameserver: str, session_timeout_ms: int) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = PullConsumer(
        "g",
        nameservers=nameserver,
        start_from=StartFrom.FIRST,
        config=ConsumerConfig(
            session_timeout_ms=session_timeout_ms,
            request_timeout_ms=300,
            failover_timeout_ms=1_000,
        ),
    ).subscribe("single")
    async with consumer:
        queues = await consumer.queues_of("single")
        while not stopping.is_set():
            try:
                for message in await consumer.poll(1, timeout=0.05):
                    print("got", message.queue_offset, flush=True)
                await consumer.commit()
                await consumer.end_offsets(queues)
                await consumer.committed(queues)
            except AerobeeError as error:
                print("raised", type(error).__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
