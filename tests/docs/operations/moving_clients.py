"""A producer and a consumer that work while a page is carried out, and the judge of what they did.

    moving_clients.py produce TOPIC FILE FIRST    numbers from FIRST on, each key's in order
    moving_clients.py consume TOPIC GROUP FILE    in order
    moving_clients.py judge SENT,... RECEIVED,...

The first two end by SIGTERM, and write a last line if nothing failed. The judge ends with 0 if all
is well, with 1 while messages are missing, with 2 if something is wrong.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from aerobee.client_core import Message
from aerobee.consumer_client import Ordering, PushConsumer, ReceivedMessage, StartFrom
from aerobee.producer_client import Producer, ProducerConfig

NAMESERVERS_VARIABLE = "AEROBEE_NAMESERVER"
KEYS = 16
PAUSE_S = 0.2
PATIENCE_MS = 60_000
WELL = "ended well"


def stopped() -> asyncio.Event:
    """Set by SIGTERM."""
    event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, event.set)
    return event


async def produce(nameservers: str, topic: str, file: Path, first: int) -> None:
    stop = stopped()
    config = ProducerConfig(send_timeout_ms=PATIENCE_MS)
    with file.open("a", buffering=1) as acknowledged:
        async with Producer(nameservers, config=config) as producer, asyncio.TaskGroup() as tasks:

            async def send(key: int) -> None:
                number = first + key
                while not stop.is_set():
                    body = str(number).encode()
                    await producer.send(Message(topic, body, sharding_key=str(key)))
                    acknowledged.write(f"{number}\n")
                    number += KEYS
                    await asyncio.sleep(PAUSE_S)

            for key in range(KEYS):
                tasks.create_task(send(key))
        acknowledged.write(f"{WELL}\n")


async def consume(nameservers: str, topic: str, group: str, file: Path) -> None:
    stop = stopped()
    with file.open("a", buffering=1) as received:

        def handle(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                place = f"{message.queue}/{message.queue_offset}".replace(" ", "")
                received.write(f"{time.monotonic_ns()} {int(message.body)} {place}\n")

        consumer = PushConsumer(
            group,
            handle,
            run_in_thread=False,
            nameservers=nameservers,
            ordering=Ordering.ORDERLY,
            start_from=StartFrom.FIRST,
        )
        consumer.subscribe(topic)
        async with consumer:
            await stop.wait()
        received.write(f"{WELL}\n")


def judge(sent: list[Path], received: list[Path]) -> int:
    numbers: set[int] = set()
    for file in sent:
        lines = file.read_text().splitlines()
        if lines[-1:] != [WELL]:
            return wrong(f"{file} does not end well")
        numbers.update(map(int, lines[:-1]))
    deliveries: list[tuple[int, int, str]] = []
    for file in received:
        for line in file.read_text().splitlines():
            if line != WELL:
                time_ns, body, place = line.split()
                deliveries.append((int(time_ns), int(body), place))
    places: dict[int, set[str]] = defaultdict(set)
    newest: dict[tuple[int, int], int] = {}
    for _, number, place in sorted(deliveries):
        is_first = number not in places
        places[number].add(place)
        life = (number // 1_000_000, number % KEYS)
        if is_first:
            if number < newest.get(life, -1):
                return wrong(f"{number} came after {newest[life]}")
            newest[life] = number
    twice = [number for number, where in places.items() if len(where) > 1]
    if twice:
        return wrong(f"stored twice: {twice[:9]}")
    missing = numbers - places.keys()
    print(
        f"{len(numbers)} acknowledged, {len(missing)} of them missing, "
        f"{len(deliveries) - len(places)} delivered again"
    )
    return 1 if missing else 0


def wrong(what: str) -> int:
    print(what)
    return 2


def main(nameservers: str, arguments: list[str]) -> NoReturn:
    verb, *rest = arguments
    if verb == "judge":
        sent, received = ([Path(name) for name in names.split(",")] for names in rest)
        sys.exit(judge(sent, received))
    if verb == "produce":
        topic, file, first = rest
        asyncio.run(produce(nameservers, topic, Path(file), int(first)))
    else:
        topic, group, file = rest
        asyncio.run(consume(nameservers, topic, group, Path(file)))
    sys.exit(0)


if __name__ == "__main__":
    main(os.environ[NAMESERVERS_VARIABLE], sys.argv[1:])
