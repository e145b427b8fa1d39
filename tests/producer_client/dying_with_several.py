"""A program that sends three messages in one transaction, and is killed at a step of it.

python -m tests.producer_client.dying_with_several NAMESERVER DATABASE STEP
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client import Message, Producer, ProducerConfig
from aerobee.producer_client.transactions import Transaction

STEPS = (
    "the first message is stored",
    "all messages are stored",
    "the database is committed",
    "the first message is committed",
    "the second message is committed",
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(nameserver: str, database: Path, step: int) -> None:
    commits = 0
    commit = Transaction.commit

    async def counted(self: Transaction, *, timeout: float | None = None) -> None:
        nonlocal commits
        commits += 1
        number = commits
        if number == 2 and step == 3:
            die()
        if number == 3:
            await asyncio.sleep(5)  # after the second one
        await commit(self, timeout=timeout)
        if number == 2 and step == 4:
            die()

    Transaction.commit = counted  # type: ignore[method-assign]
    config = ProducerConfig(send_timeout_ms=20_000)
    async with Producer(nameserver, config=config) as producer, producer.transaction() as tx:
        await tx.send(Message("orders", b"order"), queue=MessageQueue("orders", "a", 0))
        if step == 0:
            die()
        await tx.send(Message("orders", b"other"), queue=MessageQueue("orders", "b", 0))
        await tx.send(Message("bills", b"bill"), queue=MessageQueue("bills", "b", 0))
        if step == 1:
            die()
        database.touch()
        if step == 2:
            die()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
