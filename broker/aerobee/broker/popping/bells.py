"""Who waits for messages of which queue, and who must check when there may be some.

A poll waits at all queues that it takes from. A new message in one of them wakes the poll that has
waited there longest; a poll that finds something wakes the next, as there may be more. At a retry
topic, which has messages of several topics, one poll per topic is woken.

Polls that wait at another node have one waiter here for each node, group and topic. It is told that
there may be something, and looks over the network; until it says that it has looked, what comes
wakes others, and wakes it again afterwards.

Owns: the waiting polls, when their time is over, and one timer for each queue at which one waits:
an idle poll costs only memory. Invariant: no ring is lost. A woken poll that leaves without having
checked passes it on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.popping.poll_ends import Bucket, PollEnds
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy

PASS_ON_S: Final = 0.25
"""A node that was told and has not looked for so long may hang: others are woken, too."""


class Growth(Protocol):
    """Tells when queues grow; `Egress` does."""

    def wait(self, topic: str, queue_id: int, wake: Callable[[], None]) -> None: ...

    def forget(self, topic: str, queue_id: int, wake: Callable[[], None]) -> None: ...


class Waiter:
    """One poll, between its checks."""

    __slots__ = ("_rung_by", "_waits", "bells", "is_rung")

    def __init__(self, bells: Sequence[_Bell]) -> None:
        self.bells = bells
        self._rung_by: dict[_Bell, None] = {}
        self._waits: asyncio.Future[None] | None = None
        self.is_rung = False

    def looks(self) -> None:
        """Anything that comes from now on is another ring."""
        self.is_rung = False
        self._rung_by.clear()
        for bell in self.bells:
            bell.idle[self] = None

    async def rung(self, timeout_s: float, ends: PollEnds) -> bool:
        """Until there may be something; False if the time runs out, or `wake` is called, first."""
        for bell in self.bells:
            bell.arm()
        if self.is_rung:
            return True
        # Many wait: an Event with `asyncio.timeout` would take three times the memory.
        self._waits = asyncio.get_running_loop().create_future()
        bucket = ends.add(self, timeout_s)
        try:
            await self._waits
        finally:
            bucket.pop(self, None)
            self._waits = None
        return self.is_rung

    def ring(self, bell: _Bell) -> bool:
        """Whether it is going to look because of this ring, and not because of an earlier one."""
        if self.is_rung:
            return False
        self._rung_by[bell] = None
        self.is_rung = True
        self.wake()
        return True

    def wake(self) -> None:
        """Ends its wait."""
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    def goes(self) -> None:
        for bell in self.bells:
            bell.leave(self)
        for bell in self._rung_by:
            bell.ring()


class ParkedWaiter(Waiter):
    """A poll that waits without a task. `on_over` is called once for each `park`, in the turn of a
    ring or of its time's end; it must not look in that turn, as many may end in it."""

    __slots__ = ("_bucket", "_on_over")

    def __init__(self, bells: Sequence[_Bell], on_over: Callable[[], None]) -> None:
        super().__init__(bells)
        self._on_over = on_over
        self._bucket: Bucket | None = None

    def park(self, timeout_s: float, ends: PollEnds) -> None:
        """Wait for a ring since `looks`, or for the time to end."""
        for bell in self.bells:
            bell.arm()
        self._bucket = ends.add(self, timeout_s)
        if self.is_rung:
            self.wake()

    def wake(self) -> None:
        bucket, self._bucket = self._bucket, None
        if bucket is not None:
            bucket.pop(self, None)
            self._on_over()

    def goes(self) -> None:
        bucket, self._bucket = self._bucket, None
        if bucket is not None:
            bucket.pop(self, None)
        super().goes()


class FarWaiter(Waiter):
    """The polls of another node. It is told by `on_ring`, and `looks` says that it has looked since
    and waits again. Its first `looks` rings immediately."""

    __slots__ = ("_is_looking", "_may_have", "_on_ring", "_passes_on", "_was_missed")

    def __init__(
        self,
        bells: Sequence[_Bell],
        on_ring: Callable[[], None],
        may_have: Callable[[], bool],
    ) -> None:
        """`may_have`: whether there may be anything in its queues; asked only after a ring."""
        super().__init__(bells)
        self._on_ring = on_ring
        self._may_have = may_have
        self._is_looking = False
        self._was_missed = True
        """Something came that the current look may not have seen."""
        self._passes_on: asyncio.TimerHandle | None = None

    def looks(self) -> None:
        was_missed = self._was_missed
        self._is_looking = self._was_missed = False
        self._cancel_timer()
        super().looks()
        if was_missed and self._may_have():
            self._tell()
            return
        for bell in self.bells:
            bell.arm()

    def ring(self, bell: _Bell) -> bool:
        if self._is_looking:
            self._was_missed = True
            return False
        self._rung_by[bell] = None
        self._tell()
        return True

    def pass_on(self) -> None:
        """It does not look for what it was told, or not soon."""
        self._cancel_timer()
        rung_by, self._rung_by = self._rung_by, {}
        for bell in rung_by:
            bell.ring()

    def goes(self) -> None:
        self._cancel_timer()
        super().goes()

    def _tell(self) -> None:
        self._is_looking = True
        for bell in self.bells:
            bell.idle[self] = None
        self._passes_on = asyncio.get_running_loop().call_later(PASS_ON_S, self.pass_on)
        self._on_ring()

    def _cancel_timer(self) -> None:
        if self._passes_on is not None:
            self._passes_on.cancel()
            self._passes_on = None


class _Bell:
    """The bell of one queue of a group."""

    def __init__(
        self,
        key: GroupQueue,
        growth: Growth,
        clock: Clock,
        next_ms: Callable[[GroupQueue], int | None],
        topic: str,
    ) -> None:
        self._key = key
        self.name = key, topic
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
            if waiter.ring(self):
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
        `polls_max`: how many may wait, and how many of other nodes."""
        self._polls_max = polls_max
        self.polls = 0
        """The number of waiting polls."""
        self.far = 0
        """The number of waiters for other nodes."""
        self.ends = PollEnds()
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
        self._enter()
        waiter = Waiter(self._bells_of(keys, topic))
        try:
            yield waiter
        finally:
            self.leave(waiter)

    def waits_parked(
        self, keys: Sequence[GroupQueue], topic: str, on_over: Callable[[], None]
    ) -> ParkedWaiter:
        """The same for a poll that waits without a task, until `leave`. Raises Busy."""
        self._enter()
        return ParkedWaiter(self._bells_of(keys, topic), on_over)

    def _enter(self) -> None:
        if self.polls >= self._polls_max:
            raise Busy(
                f"{self.polls} calls already wait for messages here: poll again later, or ask the "
                "operator to raise groups.waiting_polls_max"
            )
        self.polls += 1

    def leave(self, waiter: Waiter) -> None:
        """The poll is over."""
        self.polls -= 1
        self._leave(waiter)

    def waiting(self, keys: Iterable[GroupQueue]) -> int:
        """How many polls wait at these queues; one at several of them counts for each."""
        bells = (bell for key in keys for bell in self._bells.get(key, {}).values())
        return sum(bell.waiters for bell in bells)

    def wait_far(
        self,
        keys: Sequence[GroupQueue],
        topic: str,
        on_ring: Callable[[], None],
        may_have: Callable[[], bool],
    ) -> FarWaiter:
        """The same for the polls of another node, until `leave_far`. Raises Busy."""
        if self.far >= self._polls_max:
            raise Busy(f"{self.far} groups of other nodes already wait for messages here")
        self.far += 1
        return FarWaiter(self._bells_of(keys, topic), on_ring, may_have)

    def leave_far(self, waiter: FarWaiter) -> None:
        """Its polls are over."""
        self.far -= 1
        self._leave(waiter)

    def _bells_of(self, keys: Sequence[GroupQueue], topic: str) -> list[_Bell]:
        bells = [self._bell(key, topic) for key in keys]
        for bell in bells:
            bell.waiters += 1
        return bells

    def _leave(self, waiter: Waiter) -> None:
        waiter.goes()
        for bell in waiter.bells:
            key, topic = bell.name
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
            bell = there[topic] = _Bell(key, self._growth, self._clock, self._next_ms, topic)
        return bell
