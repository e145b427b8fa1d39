"""A worker of taskiq that is killed; see test_taskiq.py. Prints the numbers of its tasks."""

from __future__ import annotations

import asyncio
import sys

from taskiq.api import run_receiver_task

from aerobee.integrations.taskiq import AerobeeBroker


async def main(nameserver: str, group: str, topic: str) -> None:
    broker = AerobeeBroker(nameserver, topic=topic, group=group, invisible=10)

    @broker.task(task_name="note")
    async def note(number: int) -> None:
        await asyncio.sleep(0.01)
        print(f"{number}\n", end="", flush=True)

    await broker.startup()
    await run_receiver_task(broker, max_async_tasks=4)


asyncio.run(main(*sys.argv[1:]))
