"""Who waits for messages of which queue, and who must check when there may be some.

A poll waits at all queues that it takes from. A new message in one of them wakes the poll that has
waited there longest; a poll that finds something wakes the next, as there may be more. At a retry
topic, which has messages of several topics, one poll per topic is woken.

Owns: the waiting polls, and one timer for each queue at which one waits: an idle poll costs only
memory. Invariant: no ring is lost. A woken poll that leaves without having checked passes it on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy


class Growth(Protocol):
    """Tells when queues grow; `Egress` does."""

    def wait(self, topic: str, queue_id: int, wake: Callable[[], None]) -> None: ...

    def forget(self, topic: str, queue_id: int, wake: Callable[[], None]) -> None: ...


class Waiter:
    """One poll, between its checks."""

    __slots__ = ("_bells", "_rung_by", "_waits", "is_rung")

    def __init__(self, bells: Sequence[_Bell]) -> None:
        self._bells = bells
        self._rung_by: dict[_Bell, None] = {}
        self._waits: asyncio.Future[None] | None = None
        self.is_rung = False

    def looks(self) -> None:
        """Anything that comes from now on is another ring."""
        self.is_rung = False
        self._rung_by.clear()
        for bell in self._bells:
            bell.idle[self] = None

    async def rung(self, timeout_s: float) -> bool:
        """Until there may be something; False if the time runs out first."""
        for bell in self._bells:
            bell.arm()
        if self.is_rung:
            return True
        # Many wait: an Event with `asyncio.timeout` would take three times the memory.
        loop = asyncio.get_running_loop()
        self._waits = loop.create_future()
        timer = loop.call_later(timeout_s, self._wake)
        try:
            await self._waits
        finally:
            timer.cancel()
            self._waits = None
        return self.is_rung

    def ring(self, bell: _Bell) -> None:
        self._rung_by[bell] = None
        self.is_rung = True
        self._wake()

    def _wake(self) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    def goes(self) -> None:
        for bell in self._bells:
            bell.leave(self)
        for bell in self._rung_by:
            bell.ring()


class _Bell:
    """The bell of one queue of a group."""

    def __init__(
        self,
        key: GroupQueue,
        growth: Growth,
        clock: Clock,
        next_ms: Callable[[GroupQueue], int | None],
    ) -> None:
        self._key = key
        self._growth = growth
        self._clock = clock
        self._next_ms = next_ms
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.waiters = 0
        # Unlike a dict, it finds its first entry at once after many have been removed there.
        self.idle: OrderedDict[Waiter, None] = OrderedDict()
        """Those not woken yet, longest waiting first."""
        growth.wait(key.topic, key.queue_id, self._on_grown)

    def arm(self) -> None:
        """Ring when a message is due for redelivery."""
        at_ms = self._next_ms(self._key)
        if at_ms is None or (self._timer is not None and self._timer_ms <= at_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = at_ms
        delay_s = max(0, at_ms - self._clock.now_ms()) / 1_000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_time)

    def ring(self) -> None:
        while self.idle:
            waiter, _ = self.idle.popitem(last=False)
            if not waiter.is_rung:
                waiter.ring(self)
                return

    def leave(self, waiter: Waiter) -> None:
        self.idle.pop(waiter, None)
        self.waiters -= 1

    def end(self) -> None:
        self._growth.forget(self._key.topic, self._key.queue_id, self._on_grown)
        if self._timer is not None:
            self._timer.cancel()

    def _on_grown(self) -> None:
        self._growth.wait(self._key.topic, self._key.queue_id, self._on_grown)
        self.ring()

    def _on_time(self) -> None:
        self._timer = None
        self.ring()


class Bells:
    """On the loop."""

    def __init__(
        self,
        growth: Growth,
        clock: Clock,
        *,
        next_ms: Callable[[GroupQueue], int | None],
        polls_max: int = 100_000,
    ) -> None:
        """`next_ms`: when a message of a queue may be redelivered, Unix ms; None: never.
        `polls_max`: how many may wait."""
        self._polls_max = polls_max
        self.polls = 0
        """The number of waiting polls."""
        self._growth = growth
        self._clock = clock
        self._next_ms = next_ms
        self._bells: dict[GroupQueue, dict[str, _Bell]] = {}
        """The inner key is the topic that polls are for."""

    def is_waited_at(self, key: GroupQueue) -> bool:
        """Whether a poll waits there."""
        return key in self._bells

    @contextmanager
    def waiting_at(self, keys: Sequence[GroupQueue], topic: str = "") -> Iterator[Waiter]:
        """A poll for this topic waits at these queues meanwhile. Raises Busy: too many wait."""
        if self.polls >= self._polls_max:
            raise Busy(
                f"{self.polls} calls already wait for messages here: poll again later, or ask the "
                "operator to raise groups.waiting_polls_max"
            )
        self.polls += 1
        bells = [self._bell(key, topic) for key in keys]
        waiter = Waiter(bells)
        for bell in bells:
            bell.waiters += 1
        try:
            yield waiter
        finally:
            self.polls -= 1
            waiter.goes()
            for key, bell in zip(keys, bells, strict=True):
                if not bell.waiters and (there := self._bells.get(key, {})).get(topic) is bell:
                    bell.end()
                    del there[topic]
                    if not there:
                        del self._bells[key]

    def ring(self, key: GroupQueue) -> None:
        """There may be something in the queue."""
        for bell in self._bells.get(key, {}).values():
            bell.ring()

    def times_changed(self, key: GroupQueue) -> None:
        """A message of the queue may be redelivered earlier than known so far."""
        for bell in self._bells.get(key, {}).values():
            bell.arm()

    def ring_all(self) -> None:
        """Everyone must check: the role has changed."""
        for bell in [each for there in self._bells.values() for each in there.values()]:
            for _ in range(len(bell.idle)):
                bell.ring()

    def _bell(self, key: GroupQueue, topic: str) -> _Bell:
        there = self._bells.setdefault(key, {})
        bell = there.get(topic)
        if bell is None:
            bell = there[topic] = _Bell(key, self._growth, self._clock, self._next_ms)
        return bell
