"""A producer and a consumer as programs of their own, to be paused and killed.

    python -m tests.faults.workers produce NAMESERVER TOPIC NAME JOURNAL
    python -m tests.faults.workers consume NAMESERVER TOPIC NAME JOURNAL

Each notes what it did in a journal, one line per write(2), so that a kill loses at most the line
that was never begun. The producer sends `NAME-number` until it is ended and notes each body that
was acknowledged. The consumer is a member of the group GROUP with the client id NAME; for each
message, before it handles it, it notes `monotonic-seconds broker queue-id offset body`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aerobee.client_core import Message
from aerobee.consumer_client import (
    ConsumerConfig,
    Ordering,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from aerobee.producer_client import Producer, ProducerConfig
from aerobee.runtime.errors import AerobeeError
from tests.faults.serving import Process
from tests.support.waiting import until

GROUP = "fault-group"
SESSION_TIMEOUT_MS = 1_500
SENDERS = 8
SEND_PAUSE_S = 0.01
HANDLE_S = 0.002


@dataclass(frozen=True)
class Handled:
    """One line of a consumer's journal."""

    began_s: float
    broker: str
    queue_id: int
    offset: int
    body: str
    member: str


class Worker(Process):
    """One of the two programs, with its journal."""

    def __init__(self, kind: str, nameserver: str, topic: str, name: str, folder: Path) -> None:
        self.journal = folder / f"{name}.journal"
        super().__init__(
            name,
            (
                *(sys.executable, "-m", "tests.faults.workers"),
                *(kind, nameserver, topic, name, str(self.journal)),
            ),
            folder / f"{name}.log",
        )

    async def start(self) -> Self:
        """Returns once it can be told to end."""
        await super().start()
        await until(lambda: self.has_ended or self.journal.exists(), "the journal")
        assert not self.has_ended, self.said()
        return self

    def lines(self) -> list[str]:
        """Whole lines only."""
        if not self.journal.exists():
            return []
        return self.journal.read_text().rpartition("\n")[0].split("\n")

    def handled(self) -> list[Handled]:
        found = []
        for line in filter(None, self.lines()):
            began_s, broker, queue_id, offset, body = line.split(" ")
            found.append(
                Handled(float(began_s), broker, int(queue_id), int(offset), body, self.name)
            )
        return found


class Journal:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


async def produce(nameserver: str, topic: str, name: str, path: str) -> None:
    stop = stopped_by_signal()
    journal = Journal(path)
    numbers = itertools.count()
    config = ProducerConfig(send_timeout_ms=2_000)

    async def send(producer: Producer) -> None:
        while not stop.is_set():
            body = f"{name}-{next(numbers)}"
            try:
                await producer.send(Message(topic, body.encode()))
            except AerobeeError:
                continue  # not acknowledged: it may be stored or not
            journal.note(body)
            await asyncio.sleep(SEND_PAUSE_S)

    async with Producer(nameserver, config=config) as producer, asyncio.TaskGroup() as tasks:
        for _ in range(SENDERS):
            tasks.create_task(send(producer))


async def consume(nameserver: str, topic: str, name: str, path: str) -> None:
    stop = stopped_by_signal()
    journal = Journal(path)

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            queue = message.queue
            journal.note(
                f"{time.monotonic():.6f} {queue.broker_name} {queue.queue_id} "
                f"{message.queue_offset} {bytes(message.body).decode()}"
            )
        await asyncio.sleep(HANDLE_S)

    consumer = PushConsumer(
        GROUP,
        handle,
        nameservers=nameserver,
        ordering=Ordering.ORDERLY,
        consume_batch_max=8,
        client_id=name,
        start_from=StartFrom.FIRST,
        config=ConsumerConfig(
            session_timeout_ms=SESSION_TIMEOUT_MS, commit_interval_ms=100, await_topics=True
        ),
    ).subscribe(topic)
    async with consumer:
        await stop.wait()


def stopped_by_signal() -> asyncio.Event:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop


def main() -> None:
    kind, nameserver, topic, name, path = sys.argv[1:]
    program = produce if kind == "produce" else consume
    asyncio.run(program(nameserver, topic, name, path))


if __name__ == "__main__":
    main()
