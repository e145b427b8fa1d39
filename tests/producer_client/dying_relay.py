"""A relay of an outbox that is killed at a step.

python -m tests.producer_client.dying_relay NAMESERVER DATABASE_URL STEP
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import sqlalchemy as sql

from aerobee.client_core.message import Message
from aerobee.client_core.transactions import TransactionOutcome
from aerobee.producer_client import Producer, Transaction
from aerobee.producer_client.outbox import Outbox, OutboxRelay

STEPS = (
    "a message is begun",
    "all messages are begun",
    "the rows name them",
    "a message is committed",
    "all messages are committed",
    "the rows are removed",
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(nameserver: str, url: str, step: int) -> None:
    engine = sql.create_engine(url)
    ends = changes = 0
    begin, end = Producer.begin, Producer.end

    async def begun(self: Producer, message: Message, **fields: Any) -> Transaction:
        transaction = await begin(self, message, **fields)
        if step == 0:
            die()
        return transaction

    async def counted(
        self: Producer, place: str, outcome: TransactionOutcome
    ) -> TransactionOutcome:
        nonlocal ends
        if step == 2:
            die()
        ended = await end(self, place, outcome)
        ends += 1
        if step == 3 and ends == 2:
            die()
        return ended

    @sql.event.listens_for(engine, "after_execute")
    def executed(connection: Any, clause: Any, *_: Any) -> None:
        nonlocal changes
        if isinstance(clause, sql.Update) and step == 1:
            die()
        if isinstance(clause, sql.Delete) and step == 4:
            die()
        changes += isinstance(clause, sql.Delete)

    @sql.event.listens_for(engine, "checkin")
    def returned(*_: Any) -> None:
        if changes and step == 5:
            die()

    Producer.begin = begun  # type: ignore[method-assign]
    Producer.end = counted  # type: ignore[method-assign]
    async with OutboxRelay(Outbox(), engine, nameserver):
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
