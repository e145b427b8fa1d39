"""Which readers read old messages now, and the threads that wait for the disk meanwhile.

Owns: the turns of readers that are far behind or need cold data. A reader that catches up cannot
monopolise the threads or the loop: it takes its turn among the others, and its waiting reads are
bounded in bytes. While messages are being sent, readers take small steps, because the same loop
must also copy and send what is read, and a pace limits them all together. While few messages come
in, the pace rises as long as the loop is on time. While many do, it is the configured one, but each
reader may read faster than messages come in, or it would never catch up. Small files are not
written here, so that they never wait for a catch-up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from threading import Lock
from typing import Any, TypeVar

from aerobee.broker.cold_reads.fair_turns import FairTurns
from aerobee.broker.cold_reads.pace import LATE_MS, LatenessLimit, Pace, Rate
from aerobee.broker.counters import Counters
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, Busy
from aerobee.runtime.log import log_event
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.runtime.loop_turns import LoopTurns

log = logging.getLogger(__name__)

SENDING_S = 0.25
"""How long after a batch sending counts as going on."""
MANY_BYTES_PER_S = 4 * 1024 * 1024
MANY_MESSAGES_PER_S = 2_000
"""Above either of these, many messages come in."""
GAIN = 2.0
"""Each reader may read at least this many times as fast as messages come in."""
STEP_BYTES = 128 * 1024
"""A turn while many messages are being sent, so that none waits long for the loop."""
LIGHT_STEP_BYTES = 256 * 1024
"""A turn while few are being sent and the loop is on time."""
LOOKUPS = "message lookups"
"""The common name of all lookups of single messages as a reader."""
LOOKUP_THREADS_MAX = 2
"""How many lookups run at once, so that consumers keep the other threads."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Limit of one reader's waiting reads; a pull stream has only a few waiting."""

T = TypeVar("T")
Granted = asyncio.Future[None]


class Turn:
    """A reader's turn, from `ReadPool.turn`."""

    __slots__ = ("_executor", "_running")

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._running: asyncio.Future[Any] | None = None

    @property
    def running(self) -> asyncio.Future[Any] | None:
        """What is running on a thread, whether or not anyone still waits for it."""
        running = self._running
        return None if running is None or running.done() else running

    async def run(self, work: Callable[[], T], cancel: Callable[[], None] | None = None) -> T:
        """Do `work`, which may wait for the disk, on a thread.

        A thread cannot be stopped: a cancelled caller leaves it running, and the turn lasts until
        it is done. `cancel` may then tell the work to hurry.
        """
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        self._running = running
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if cancel is not None:
                cancel()
            raise


class ReadPool:
    """Belongs to the loop; works run on the executor, at most `threads` turns at a time."""

    def __init__(
        self,
        executor: Executor,
        counters: Counters,
        clock: Clock,
        *,
        loop_delay: LoopDelay,
        threads: int,
        bytes_per_s: int,
    ) -> None:
        """`bytes_per_s` is the pace while many messages are being sent; 0: no limit."""
        self._executor = executor
        self._counters = counters
        self._clock = clock
        self._turns: FairTurns[Granted] = FairTurns(threads, {LOOKUPS: LOOKUP_THREADS_MAX})
        self._bytes_per_s = bytes_per_s
        self._pace = Pace(bytes_per_s)
        self._loop_delay = loop_delay
        self._limit = LatenessLimit(bytes_per_s)
        self._incoming_bytes = Rate(SENDING_S)
        self._incoming_messages = Rate(SENDING_S)
        self._has_many_incoming = False
        self._batches_seen = 0
        self._sent_s = -SENDING_S
        self._timer: asyncio.TimerHandle | None = None
        self.judging = Lock()
        """Held by the one thread that may evaluate records: more would compete with the loop."""
        self.loop_turns = LoopTurns(clock, self.spares_sends)
        """For all long work on the loop, whether it reads or not."""

    def spares_sends(self) -> bool:
        """Whether messages are being sent, so that reading must leave capacity for them."""
        now_s = self._clock.monotonic_s()
        if self._counters.batches_in != self._batches_seen:
            self._batches_seen = self._counters.batches_in
            self._sent_s = now_s
        return now_s - self._sent_s < SENDING_S

    @property
    def step_bytes(self) -> int:
        """The most that a reader should want in one turn while messages are being sent."""
        if self._has_many_incoming or self._loop_delay.last_ms > LATE_MS:
            return STEP_BYTES
        return LIGHT_STEP_BYTES

    @property
    def has_waiting(self) -> bool:
        return self._turns.waiting > 0

    @asynccontextmanager
    async def turn(self, reader: str, size: int) -> AsyncIterator[Turn]:
        """Wait for the reader's turn to read about `size` bytes; the turn lasts as long as the
        context and any work left running in it.

        Raises:
            Busy: this reader already has too much waiting.
            AerobeeError: the disk could not be read; the broker continues, but this read failed.
        """
        turns = self._turns
        waiting_bytes = turns.waiting_bytes(reader)
        if waiting_bytes and waiting_bytes + size > WAITING_BYTES_MAX:
            raise Busy(
                f"{waiting_bytes} bytes of older messages are being read for {reader} already; "
                "try again in a moment"
            )
        granted: Granted = asyncio.get_running_loop().create_future()
        turns.add(reader, granted, size)
        self._grant_some()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                turns.remove(reader, granted)
            else:
                turns.done(reader)
            self._grant_some()
            raise
        turn = Turn(self._executor)
        try:
            yield turn
        except OSError as error:
            raise AerobeeError(
                f"the disk could not be read ({error.strerror or error}): check it, and the folder "
                "with `aerobee store verify`"
            ) from error
        finally:
            if (running := turn.running) is not None:
                running.add_done_callback(lambda _: self._end(reader))
            else:
                self._end(reader)

    def _end(self, reader: str) -> None:
        self._turns.done(reader)
        self._grant_some()

    async def run_in_turn(
        self,
        reader: str,
        size: int,
        work: Callable[[], T],
        cancel: Callable[[], None] | None = None,
    ) -> T:
        """Do `work` on a thread in a turn of its own. Raises as `turn`, and what `work` raises."""
        async with self.turn(reader, size) as turn:
            return await turn.run(work, cancel)

    def spend(self, size: int) -> None:
        """This many bytes were read for a reader that is behind."""
        now_s = self._clock.monotonic_s()
        allowed_per_s = self._allowed_per_s(now_s)
        if self._bytes_per_s:
            self._pace.bytes_per_s = allowed_per_s
        self._pace.start(now_s, size)

    def run_aside(self, work: Callable[[], None]) -> None:
        """Do `work` on a thread soon; no answer depends on its success."""
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        running.add_done_callback(_tell_failure)

    # ---------------------------------------------------------------------- inside

    def _allowed_per_s(self, now_s: float) -> float:
        """How fast readers may go while messages are being sent."""
        incoming, messages = self._incoming_bytes, self._incoming_messages
        incoming.observe(now_s, self._counters.bytes_in)
        messages.observe(now_s, self._counters.messages_in)
        self._has_many_incoming = (
            incoming.per_s > MANY_BYTES_PER_S or messages.per_s > MANY_MESSAGES_PER_S
        )
        if self._has_many_incoming:
            self._limit.reset()
        else:
            self._limit.observe(now_s, self._loop_delay.last_ms)
        return max(self._limit.per_s, GAIN * incoming.per_s * self._turns.readers)

    def _grant_some(self) -> None:
        while self._may_start() and (next_turn := self._turns.next()) is not None:
            reader, granted = next_turn
            if granted.done():  # just cancelled
                self._turns.done(reader)
            else:
                granted.set_result(None)
        self._counters.cold_reads_waiting = self._turns.waiting

    def _may_start(self) -> bool:
        """Whether the pace allows another one now; if not, a retry is scheduled."""
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
