"""The demo's transactions: a clerk books flights, is killed between booking and commit, and brokers
ask another producer, who reads the clerk's ledger, how the open transactions end.

Owns: the clerk's process, and what consumers saw in the end.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aerobee import AdminClient, ReceivedMessage
from aerobee.cli.demo.settings import BOOKINGS_TOPIC, DemoSettings
from aerobee.cli.failures import Failure
from aerobee.cli.local_cluster.child import spawn_tied
from aerobee.consumer_client import PushConsumer, StartFrom
from aerobee.producer_client import CheckAnswer, Producer, TransactionCheck
from aerobee.runtime.clock import Clock

LOOK_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """How it went."""

    begun: int
    booked: int
    """Those in the clerk's ledger."""
    left_open: int
    """When the clerk was killed."""
    asked: int
    """How many of them the brokers asked about."""
    seen: int
    """Bookings that consumers saw."""
    stored: int
    """Messages that can be seen at all."""
    wrong: int
    """Bookings that were seen and are not in the ledger, or were not seen and are there."""

    @property
    def is_proven(self) -> bool:
        return self.wrong == 0 and self.stored == self.booked == self.seen


async def play_bookings(
    admin: AdminClient,
    settings: DemoSettings,
    nameserver: str,
    folder: Path,
    clock: Clock,
) -> Booked:
    """The whole act.

    Raises:
        Failure: the clerk ended by itself, or nothing moved for `patience_s`.
    """
    await admin.topics.create(BOOKINGS_TOPIC, queues=settings.queues)
    ledger = folder / "clerk.ledger"
    deadline_s = clock.monotonic_s() + settings.patience_s
    await _book_and_die(admin, settings, nameserver, folder, ledger, clock, deadline_s)
    booked = set(ledger.read_text().split())
    left_open = len((await admin.transactions.list(BOOKINGS_TOPIC)).transactions)
    asked: set[str] = set()

    async def check(check: TransactionCheck) -> CheckAnswer:
        asked.add(check.transaction_id)
        is_booked = check.message.body.decode() in booked
        return CheckAnswer.COMMIT if is_booked else CheckAnswer.ROLLBACK

    async with Producer(
        connection=admin.connection, check_transaction=check, transaction_topics=[BOOKINGS_TOPIC]
    ):
        while (await admin.transactions.list(BOOKINGS_TOPIC)).transactions:
            if clock.monotonic_s() > deadline_s:
                raise Failure("the transactions of the killed clerk were not ended")
            await asyncio.sleep(LOOK_INTERVAL_S)
    queues = (await admin.topics.describe(BOOKINGS_TOPIC)).queues
    bounds = await admin.offsets.bounds([each.queue for each in queues])
    stored = sum(each.count for each in bounds.values())
    seen = await _seen(admin, nameserver, stored, clock, deadline_s)
    return Booked(
        begun=settings.bookings,
        booked=len(booked),
        left_open=left_open,
        asked=len(asked),
        seen=len(seen),
        stored=stored,
        wrong=len(booked ^ seen.keys()),
    )


async def _book_and_die(
    admin: AdminClient,
    settings: DemoSettings,
    nameserver: str,
    folder: Path,
    ledger: Path,
    clock: Clock,
    deadline_s: float,
) -> None:
    ready = folder / "clerk.ready"
    process = await spawn_tied(
        (
            sys.executable,
            *("-m", "aerobee.cli.demo.clerk"),
            *("--nameserver", nameserver),
            *("--cluster", admin.connection.cluster),
            *("--ledger", str(ledger)),
            *("--ready", str(ready)),
            *("--bookings", str(settings.bookings)),
            *("--left", str(settings.bookings_left)),
        ),
        log=folder / "clerk.log",
    )
    try:
        while not ready.exists():
            if process.returncode is not None or clock.monotonic_s() > deadline_s:
                raise Failure(f"the clerk did not book its flights: see {folder / 'clerk.log'}")
            await asyncio.sleep(LOOK_INTERVAL_S)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _seen(
    admin: AdminClient, nameserver: str, count: int, clock: Clock, deadline_s: float
) -> Counter[str]:
    """Bookings, and how often each came."""
    seen: Counter[str] = Counter()

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        seen.update(message.body.decode() for message in messages)

    consumer = PushConsumer(
        "travellers",
        handle,
        run_in_thread=False,
        nameservers=nameserver,
        start_from=StartFrom.FIRST,
        cluster=admin.connection.cluster,
    )
    consumer.subscribe(BOOKINGS_TOPIC)
    async with consumer:
        while seen.total() < count:
            if clock.monotonic_s() > deadline_s:
                break  # What is missing is told by the figures.
            await asyncio.sleep(LOOK_INTERVAL_S)
    return seen


def booking_lines(booked: Booked) -> list[str]:
    """What became of the bookings."""
    return [
        f"bookings: {booked.begun:,} transactions, {booked.booked:,} in the ledger, "
        f"{booked.left_open:,} open when the clerk was killed; brokers asked another producer "
        f"about {booked.asked:,}",
        f"  consumers saw {booked.seen:,} bookings in {booked.stored:,} messages, "
        f"{booked.wrong:,} of them wrong or missing",
    ]
