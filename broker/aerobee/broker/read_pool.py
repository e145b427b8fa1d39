"""Who reads old messages now, and the threads that wait for the disk meanwhile.

Owns: the turns of readers that are far behind or hit upon cold data. A reader that catches up can
keep neither the threads nor the loop: it has its turn among the others, and what it may wait for is
bounded in bytes. While messages are being sent, all of them together keep to a pace and take small
steps, because what is read must also be copied and sent, by the same loop; but each may read faster
than messages come in, or it would never catch up. Small files are not written here, so that they
never stand behind a catch-up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aerobee.broker.fair_turns import FairTurns
from aerobee.broker.pace import Pace, Rate
from aerobee.broker.stats import Counters
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, MqError
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

SENDING_S = 0.25
"""So long after a batch came in messages count as being sent."""
GAIN = 2.0
"""So many times as fast as messages come in may each reader at least read."""
STEP_BYTES = 128 * 1024
"""A turn while messages are being sent, so that none waits long for the loop."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""What one reader may have waiting; a pull stream has a few reads waiting at most."""

T = TypeVar("T")
Turn = asyncio.Future[None]


class ReadPool:
    """Belongs to the loop; works run on the executor, at most `threads` turns at a time."""

    def __init__(
        self,
        executor: Executor,
        counters: Counters,
        clock: Clock,
        *,
        threads: int,
        bytes_per_s: int,
    ) -> None:
        """`bytes_per_s` is the pace while messages are being sent; 0: no limit."""
        self._executor = executor
        self._counters = counters
        self._clock = clock
        self._turns: FairTurns[Turn] = FairTurns(threads)
        self._bytes_per_s = bytes_per_s
        self._pace = Pace(bytes_per_s)
        self._incoming = Rate(SENDING_S)
        self._batches_seen = 0
        self._sent_s = -SENDING_S
        self._timer: asyncio.TimerHandle | None = None

    def spares_sends(self) -> bool:
        """Whether messages are being sent, so that reading must not take all it can."""
        now_s = self._clock.monotonic_s()
        if self._counters.batches_in != self._batches_seen:
            self._batches_seen = self._counters.batches_in
            self._sent_s = now_s
        return now_s - self._sent_s < SENDING_S

    @property
    def has_waiting(self) -> bool:
        return self._turns.waiting > 0

    @asynccontextmanager
    async def turn(self, reader: str, size: int) -> AsyncIterator[None]:
        """Wait for the reader's turn to read about `size` bytes; it lasts as long as the context.

        Raises:
            Busy: this reader has too much waiting already.
            MqError: the disk could not be read; the broker lives on, what was asked for may not.
        """
        turns = self._turns
        waiting_bytes = turns.waiting_bytes(reader)
        if waiting_bytes and waiting_bytes + size > WAITING_BYTES_MAX:
            raise Busy(
                f"{waiting_bytes} bytes of older messages are being read for {reader} already; "
                "try again in a moment"
            )
        turn: Turn = asyncio.get_running_loop().create_future()
        turns.add(reader, turn, size)
        self._grant_some()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                turns.remove(reader, turn)
            else:
                turns.done(reader)
            self._grant_some()
            raise
        try:
            yield
        except OSError as error:
            raise MqError(
                f"the disk could not be read ({error.strerror or error}): check it, and the folder "
                "with `aerobee store verify`"
            ) from error
        finally:
            turns.done(reader)
            self._grant_some()

    async def run(self, work: Callable[[], T]) -> T:
        """Do `work`, which may wait for the disk, on a thread. To be called in a turn."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def run_in_turn(self, reader: str, size: int, work: Callable[[], T]) -> T:
        """The same in a turn of its own. Raises as `turn`, and what `work` raises."""
        async with self.turn(reader, size):
            return await self.run(work)

    def spend(self, size: int) -> None:
        """So many bytes were read for a reader that is behind."""
        now_s = self._clock.monotonic_s()
        self._incoming.observe(now_s, self._counters.bytes_in)
        if self._bytes_per_s:
            needed = GAIN * self._incoming.per_s * self._turns.readers
            self._pace.bytes_per_s = max(self._bytes_per_s, needed)
        self._pace.start(now_s, size)

    def run_aside(self, work: Callable[[], None]) -> None:
        """Do `work` on a thread some time soon; whether it succeeds changes no answer."""
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        running.add_done_callback(_tell_failure)

    # ---------------------------------------------------------------------- inside

    def _grant_some(self) -> None:
        while self._may_start() and (next_turn := self._turns.next()) is not None:
            reader, turn = next_turn
            if turn.done():  # cancelled a moment ago
                self._turns.done(reader)
            else:
                turn.set_result(None)
        self._counters.cold_reads_waiting = self._turns.waiting

    def _may_start(self) -> bool:
        """Whether the pace allows another one now; if not, it is tried again in time."""
        if not self.spares_sends():
            self._pace.clear()
            return True
        wait_s = self._pace.wait_s(self._clock.monotonic_s())
        if wait_s > 0 and self._timer is None and self._turns.waiting:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_time)
        return wait_s == 0

    def _on_time(self) -> None:
        self._timer = None
        self._grant_some()


def _tell_failure(running: asyncio.Future[Any]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        log_event(log, "advice to the kernel failed", level=logging.WARNING, reason=error)
