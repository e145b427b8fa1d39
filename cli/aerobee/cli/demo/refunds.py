"""The demo's message that fails: it comes again, ends as a dead letter, is sent again, and handled.

Cancelled flights go to a topic of their own, whose one consumer pays refunds. It cannot handle the
first of them until the passenger list is there. Owns: that consumer, and what it has handled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from aerobee import AdminClient, BackOff, Letter, Message, ReceivedMessage
from aerobee.cli.demo.flights import Flight, parse_flight
from aerobee.cli.demo.settings import REFUNDS_TOPIC, DemoSettings
from aerobee.cli.failures import Failure
from aerobee.consumer_client import PushConsumer, StartFrom
from aerobee.producer_client import Producer
from aerobee.runtime.clock import Clock

LOOK_INTERVAL_S = 0.1


class NoPassengerList(Exception):
    """The flight cannot be handled yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refunded:
    """How it went."""

    group: str
    sent: int
    attempts: int
    """Of the message that failed, until it was a dead letter."""
    reason: str
    """As the dead letter tells it."""
    handled: int
    """Flights that the consumer handled."""
    repeated: int
    """Flights that it handled more than once."""
    letters_left: int

    @property
    def is_proven(self) -> bool:
        return self.handled == self.sent and self.letters_left == 0


class RefundDesk:
    """The consumer of cancelled flights."""

    def __init__(self, broken: Flight) -> None:
        self._broken = broken
        self._has_list = False
        self.handled: Counter[str] = Counter()
        """Flight -> how often."""

    def handle(self, messages: Sequence[ReceivedMessage]) -> None:
        """Raises NoPassengerList: at the broken flight, until `repair`."""
        for message in messages:
            flight = parse_flight(message.body.decode("ascii"))
            if flight == self._broken and not self._has_list:
                raise NoPassengerList(f"no passenger list of {flight.identity}")
            self.handled[flight.identity] += 1

    def repair(self) -> None:
        """From now on all flights can be handled."""
        self._has_list = True


class Refunds:
    """The act: `begin` before the crowd, `end` when it is quiet again."""

    def __init__(
        self,
        admin: AdminClient,
        producer: Producer,
        settings: DemoSettings,
        flights: Sequence[Flight],
        clock: Clock,
    ) -> None:
        self.group = settings.refunds_group
        self._producer = producer
        self._clock = clock
        self._settings = settings
        self._letters = admin.dead_letters
        self._flights = [flight for flight in flights if flight.is_cancelled]
        del self._flights[settings.refunds :]
        if not self._flights:
            raise Failure("none of the flights is cancelled: send more of them")
        self.desk = RefundDesk(self._flights[0])

    async def begin(self) -> None:
        """Send the cancelled flights."""
        messages = [Message(REFUNDS_TOPIC, flight.line) for flight in self._flights]
        await self._producer.send_batch(messages)

    async def until_dead(self) -> Letter:
        """Wait for the dead letter.

        Raises:
            Failure: there is none within `patience_s`.
        """
        found: list[Letter] = []

        async def is_dead() -> bool:
            found.extend(await self._found())
            return bool(found)

        if not await self._wait_for(is_dead):
            raise Failure(f"group {self.group} has no dead letter")
        return found[0]

    async def end(self, letter: Letter) -> Refunded:
        """Repair the consumer, send the letter again, wait until it is handled.

        Raises:
            AerobeeError: the broker refused to send it again.
        """
        self.desk.repair()
        for refused in await self._letters.resend(self.group, [letter]):
            if refused is not None:
                raise refused

        async def is_handled() -> bool:
            return len(self.desk.handled) == len(self._flights)

        await self._wait_for(is_handled)  # What is missing after all is told by the figures.
        return Refunded(
            group=self.group,
            sent=len(self._flights),
            attempts=letter.attempts,
            reason=letter.reason,
            handled=len(self.desk.handled),
            repeated=sum(count > 1 for count in self.desk.handled.values()),
            letters_left=len(await self._found()),
        )

    async def _wait_for(self, has_come: Callable[[], Awaitable[bool]]) -> bool:
        """Whether it came within `patience_s`."""
        deadline_s = self._clock.monotonic_s() + self._settings.patience_s
        while not await has_come():
            if self._clock.monotonic_s() > deadline_s:
                return False
            await asyncio.sleep(LOOK_INTERVAL_S)
        return True

    async def _found(self) -> list[Letter]:
        return [letter async for letter in self._letters.find(self.group)]


@contextlib.asynccontextmanager
async def opened_refunds(
    admin: AdminClient,
    producer: Producer,
    settings: DemoSettings,
    flights: Sequence[Flight],
    nameserver: str,
    clock: Clock,
) -> AsyncIterator[Refunds]:
    """The topic, the group with few and quick attempts, and its consumer, which ends at the end."""
    refunds = Refunds(admin, producer, settings, flights, clock)
    await admin.topics.create(REFUNDS_TOPIC, queues=1)
    await admin.groups.configure(
        settings.refunds_group,
        retries_max=settings.retries_max,
        back_off=BackOff(settings.back_off_ms, 2 * settings.back_off_ms),
    )
    consumer = PushConsumer(
        settings.refunds_group,
        refunds.desk.handle,
        run_in_thread=False,
        nameservers=nameserver,
        start_from=StartFrom.FIRST,
        cluster=admin.connection.cluster,
        tls=False,
    )
    consumer.subscribe(REFUNDS_TOPIC)
    with _silent_failures():
        async with consumer:
            yield refunds


@contextlib.contextmanager
def _silent_failures() -> Iterator[None]:
    """The failures are part of the play: a line of log for each would only alarm."""
    log = logging.getLogger("aerobee.consumer_client.failed_calls")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
