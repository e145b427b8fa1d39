"""The demo's producer: every flight becomes a message, carrier as tag, tail number as key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aerobee.cli.demo.flights import Flight
from aerobee.client_core import Message
from aerobee.producer_client import Producer
from aerobee.runtime.clock import Clock

BATCHES_IN_FLIGHT = 4


@dataclass(slots=True)
class Feed:
    """How far the producer is."""

    clock: Clock
    acknowledged: int = 0
    started_s: float = 0.0
    last_s: float = 0.0
    """Of the newest acknowledgement."""
    ended_s: float | None = None
    retried_batches: int = 0

    @property
    def elapsed_s(self) -> float:
        end_s = self.clock.monotonic_s() if self.ended_s is None else self.ended_s
        return end_s - self.started_s

    @property
    def per_second(self) -> float:
        elapsed_s = self.elapsed_s
        return self.acknowledged / elapsed_s if elapsed_s > 0 else 0.0

    async def run(
        self, producer: Producer, topic: str, flights: Sequence[Flight], *, batch_messages: int
    ) -> None:
        """Send all; returns when every message is acknowledged.

        Raises:
            AerobeeError: one was not, after all retries.
        """
        self.started_s = self.clock.monotonic_s()
        batches = _batches(topic, flights, batch_messages)

        async def sender() -> None:
            for batch in batches:
                receipts = await producer.send_batch(batch)
                self.acknowledged += len(receipts)
                self.last_s = self.clock.monotonic_s()

        async with asyncio.TaskGroup() as senders:
            for number in range(BATCHES_IN_FLIGHT):
                senders.create_task(sender(), name=f"feed-{number}")
        self.retried_batches = producer.statistics().batches_retried
        self.ended_s = self.clock.monotonic_s()


def message_of(topic: str, flight: Flight) -> Message:
    """The body is the row of the data, unchanged."""
    keys = () if flight.tail_number is None else (flight.tail_number,)
    return Message(topic, flight.line, tag=flight.carrier, keys=keys)


def _batches(topic: str, flights: Sequence[Flight], size: int) -> Iterator[list[Message]]:
    for start in range(0, len(flights), size):
        yield [message_of(topic, flight) for flight in flights[start : start + size]]
