"""A member that is killed; see test_simple_consumer.py. Prints what it is about to acknowledge
(`?` before it), and what it has."""

from __future__ import annotations

import asyncio
import sys

from aerobee.consumer_client import SimpleConsumer


async def main(nameserver: str, group: str, topic: str) -> None:
    consumer = SimpleConsumer(group, nameservers=nameserver, invisible=10).subscribe(topic)
    async with consumer:
        while True:
            for message in await consumer.receive(8, timeout=5.0):
                print(f"?{message.body.decode()}\n", end="", flush=True)
                await consumer.ack(message)
                print(f"{message.body.decode()}\n", end="", flush=True)


asyncio.run(main(*sys.argv[1:]))
