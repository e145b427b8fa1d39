"""The demo's clerk, a process that is killed: it books flights, each in a transaction.

What it has booked stands in a ledger, one flight on a line, which is its database: a booking is
written there before its transaction is committed. Of the last flights it ends no transaction; then
it waits to be killed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import click

from aerobee.cli.demo.settings import BOOKINGS_TOPIC
from aerobee.client_core import Message
from aerobee.producer_client import Producer


class FullyBooked(Exception):
    """The flight has no seat left."""


class Ledger:
    """What is booked, and a file that says that the clerk is done."""

    def __init__(self, path: Path, ready: Path) -> None:
        self._file = path.open("a")
        self._ready = ready

    def book(self, number: int) -> None:
        """Raises FullyBooked: every third one."""
        if number % 3 == 0:
            raise FullyBooked(f"booking {number}")
        self._file.write(f"{number}\n")
        self._file.flush()

    def tell_ready(self) -> None:
        """All bookings are begun."""
        self._ready.touch()


@click.command()
@click.option("--nameserver", required=True)
@click.option("--cluster", required=True)
@click.option("--ledger", required=True, type=click.Path(path_type=Path))
@click.option("--ready", required=True, type=click.Path(path_type=Path))
@click.option("--bookings", required=True, type=int)
@click.option("--left", required=True, type=int)
def clerk(
    nameserver: str, cluster: str, ledger: Path, ready: Path, bookings: int, left: int
) -> None:
    """Book flights, and leave some transactions open."""
    asyncio.run(_book(nameserver, cluster, Ledger(ledger, ready), bookings, left))


async def _book(nameserver: str, cluster: str, ledger: Ledger, bookings: int, left: int) -> None:
    async with Producer(nameserver, cluster) as producer:
        for number in range(bookings):
            message = Message(BOOKINGS_TOPIC, b"%d" % number)
            with suppress(FullyBooked):
                if number < bookings - left:
                    async with producer.transaction(message):
                        ledger.book(number)
                else:
                    await producer.begin(message)
                    ledger.book(number)
        ledger.tell_ready()
        await asyncio.Event().wait()


if __name__ == "__main__":
    clerk(prog_name="clerk")
