"""The queues of a pull consumer, in the order in which `poll` looks at them.

Owns: the turn, so that a full queue does not starve the others; which queues handed something out
that is not acknowledged yet; which are paused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.pull_queue import PullQueue
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import MqError


class PulledQueues:
    """Queues by turn. Dropped ones leave by themselves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn: deque[PullQueue] = deque()
        self._unsettled: set[PullQueue] = set()
        self._paused: set[MessageQueue] = set()
        self._has_come = asyncio.Event()
        self._is_closed = False

    def add(self, pulled: PullQueue) -> None:
        pulled.set_paused(pulled.assignment.queue in self._paused)
        self._turn.append(pulled)

    def live(self) -> list[PullQueue]:
        """Queues that were not dropped, ascending."""
        live = [pulled for pulled in self._turn if not pulled.is_dropped]
        return sorted(live, key=lambda pulled: pulled.assignment.queue)

    def on_ready(self) -> None:
        """Some queue may have messages."""
        self._has_come.set()

    async def wait(self, end_s: float, failure: Callable[[], MqError | None]) -> bool:
        """Until some queue has messages (True), or the time is over, or `close`.

        Raises:
            MqError: the `failure` that ended the consumer meanwhile.
        """
        try:
            return await self._wait(end_s)
        except asyncio.CancelledError:
            # What ends a consumer cancels whoever started it.
            if (error := failure()) is not None:
                raise error from None
            raise

    async def _wait(self, end_s: float) -> bool:
        # The reader of the pull stream gets a turn even if the user never has to wait.
        await asyncio.sleep(0)
        while not self._has_messages():
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0 or self._is_closed:
                return False
            self._has_come.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._has_come.wait()
            except TimeoutError:
                continue
        return True

    def _has_messages(self) -> bool:
        return any(pulled.has_messages for pulled in self._turn)

    def next(self) -> PullQueue | None:
        """The next queue with messages whose lease may still be trusted; it goes to the end."""
        turn = self._turn
        for _ in range(len(turn)):
            if not turn:
                return None
            pulled = turn[0]
            if pulled.is_dropped:
                turn.popleft()
                continue
            turn.rotate(-1)
            if not pulled.has_messages:
                continue
            trust = pulled.trust
            if self._clock.monotonic_s() < trust.deadline_s or trust.check_deadline():
                return pulled
        return None

    def on_handed_out(self, pulled: PullQueue) -> None:
        """Messages of this queue are in the user's hands."""
        self._unsettled.add(pulled)

    def settle(self) -> None:
        """The user is done with everything handed out so far."""
        for pulled in self._unsettled:
            pulled.settle()
        self._unsettled.clear()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        self._paused.update(queues)
        self._apply_pauses()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._paused.difference_update(queues)
        self._apply_pauses()

    def _apply_pauses(self) -> None:
        for pulled in self.live():
            pulled.set_paused(pulled.assignment.queue in self._paused)

    def close(self) -> None:
        """Whoever closes is not working on messages: no queue waits for another poll."""
        self._is_closed = True
        self._has_come.set()
        for pulled in self._turn:
            pulled.release()
