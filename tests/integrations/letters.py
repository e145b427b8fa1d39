"""The dead letters of a test's group."""

from __future__ import annotations

from typing import NamedTuple

from aerobee.consumer_client import SimpleConsumer
from aerobee.store.format.dead_letter_fields import read_dead_letter
from tests.support.own_topic import OwnTopic
from tests.support.waiting import PATIENCE_S


class Letter(NamedTuple):
    body: bytes
    attempts: int
    reason: str


async def next_letter(own: OwnTopic) -> Letter:
    """Waits for it."""
    reader = SimpleConsumer(f"{own.group_name}-reader", nameservers=own.nameservers)
    async with reader.subscribe(f"%DLQ%{own.group_name}"):
        (message,) = await reader.receive(1, timeout=PATIENCE_S)
        await reader.ack(message)
    death = read_dead_letter(message.record).death
    return Letter(message.body, death.attempts, death.reason)
