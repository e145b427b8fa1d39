"""Tasks of taskiq: mails that a worker sends, again later if the server is busy.

taskiq worker --workers 2 taskiq_mails:broker     (in examples/)
python examples/taskiq_mails.py ada@example.com nobody
aerobee dead-letter list mailers
"""

from __future__ import annotations

import asyncio
import random
import sys

from aerobee import Reject, RetryLater
from aerobee.integrations.taskiq import AerobeeBroker

chance = random.Random()
broker = AerobeeBroker(topic="example_mails", group="mailers", on_failure="retry")


@broker.task(task_name="send_mail")  # the same in both programs
async def send_mail(address: str) -> None:
    """May run twice, if a worker is killed in the middle."""
    if "@" not in address:
        raise Reject(f"{address} is no address")
    if chance.random() < 0.3:
        raise RetryLater("the mail server is busy", after=0.2)
    print(f"sent to {address}", flush=True)


async def main(addresses: list[str]) -> None:
    await broker.startup()
    for address in addresses:
        await send_mail.kiq(address)
    await broker.shutdown()
    print(f"{len(addresses)} mails are stored", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
