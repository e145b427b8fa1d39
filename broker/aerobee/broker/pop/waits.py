"""PURE: when messages that clients have are redelivered.

A message with a time is redelivered at that time. A message of a client that set none is
redelivered when the client is no longer alive, which other parts know.

Owns: both kinds of times. An entry for a message that is finished or has another time by now is
left in place and skipped when its time comes; their number is bounded by roughly the number of
messages in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from aerobee.broker.pop.entries import Flight

_STALE_MAX: Final = 1_000

HeldUntil = Callable[[str, int], int]
"""When a message that a client took at a given time is redelivered; Unix ms, as known now. It may
grow while the client is alive, and fall only with `client_gone`."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """What the last master handed out at its very end: the answers may not have been sent.

    A client that set no time keeps its messages while it is alive, so one that it never received
    would wait for hours. The next master redelivers these unless they are acknowledged soon.
    """

    serials: frozenset[int] = frozenset()
    until_ms: int = 0

    @classmethod
    def of(cls, flights: Iterable[Flight], begin_ms: int, until_ms: int) -> Unsure:
        """The flights that were taken at `begin_ms` or later."""
        serials = (each.serial for each in flights if each.holder and each.taken_ms >= begin_ms)
        return cls(frozenset(serials), until_ms)


@dataclass(slots=True)
class _Held:
    """What a client holds while it is alive."""

    check_ms: int
    """When to check whether it still is."""
    offsets: set[int]


class Waits:
    """The waits of one queue. `flights` is what is in flight, kept up to date by its owner."""

    def __init__(
        self, flights: dict[int, Flight], held_until_ms: HeldUntil, unsure: Unsure
    ) -> None:
        self._flights = flights
        self._held_until_ms = held_until_ms
        self._unsure = unsure
        self._times: list[tuple[int, int, int]] = []
        self._checks: list[tuple[int, str]] = []
        self._held: dict[str, _Held] = {}

    def next_ms(self) -> int | None:
        """When something may be redelivered; None: never."""
        return min((heap[0][0] for heap in (self._times, self._checks) if heap), default=None)

    def watch(self, offset: int, flight: Flight) -> None:
        """The message is in flight, as described."""
        if not flight.holder:
            heappush(self._times, (flight.visible_ms, offset, flight.serial))
            if len(self._times) > 2 * len(self._flights) + _STALE_MAX:
                self._drop_stale()
            return
        held = self._held.get(flight.holder)
        if held is None:
            until_ms = self._until_ms(flight)
            held = self._held[flight.holder] = _Held(until_ms, set())
            heappush(self._checks, (until_ms, flight.holder))
        held.offsets.add(offset)

    def _until_ms(self, flight: Flight) -> int:
        until_ms = self._held_until_ms(flight.holder, flight.taken_ms)
        is_unsure = flight.serial in self._unsure.serials
        return min(until_ms, self._unsure.until_ms) if is_unsure else until_ms

    def forget(self, offset: int, flight: Flight) -> None:
        """It is no longer in flight as it was described."""
        held = self._held.get(flight.holder)
        if held is not None:
            held.offsets.discard(offset)

    def client_gone(self, client_id: str, now_ms: int) -> None:
        """The redelivery times of the client's messages may have changed."""
        held = self._held.get(client_id)
        if held is not None:
            held.check_ms = now_ms
            heappush(self._checks, (now_ms, client_id))

    def due(self, now_ms: int) -> list[int]:
        """The messages whose time is up, each once."""
        found: list[int] = []
        times, flights = self._times, self._flights
        while times and times[0][0] <= now_ms:
            _, offset, serial = heappop(times)
            flight = flights.get(offset)
            if flight is not None and flight.serial == serial:
                found.append(offset)
        checks = self._checks
        while checks and checks[0][0] <= now_ms:
            check_ms, client_id = heappop(checks)
            held = self._held.get(client_id)
            if held is not None and held.check_ms == check_ms:
                found += self._check(client_id, held, now_ms)
        return found

    def _check(self, client_id: str, held: _Held, now_ms: int) -> list[int]:
        """The messages that the client has lost."""
        found: list[int] = []
        next_ms = None
        for offset in list(held.offsets):
            flight = self._flights.get(offset)
            if flight is None or flight.holder != client_id:
                held.offsets.discard(offset)
                continue
            until_ms = self._until_ms(flight)
            if until_ms > now_ms:
                next_ms = until_ms if next_ms is None else min(next_ms, until_ms)
            else:
                held.offsets.discard(offset)
                found.append(offset)
        if next_ms is None:
            del self._held[client_id]
        else:
            held.check_ms = next_ms
            heappush(self._checks, (next_ms, client_id))
        return found

    def _drop_stale(self) -> None:
        """Most messages are finished long before their time."""
        flights = self._flights
        self._times = [
            (visible_ms, offset, serial)
            for visible_ms, offset, serial in self._times
            if (flight := flights.get(offset)) is not None and flight.serial == serial
        ]
        heapify(self._times)
