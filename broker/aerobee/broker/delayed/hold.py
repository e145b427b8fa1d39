"""Waiting messages keep the log, until a segment has to go: then they are moved on.

Owns: the rolls. A master stores the messages of the oldest segment again, at the end of the log and
with the same due time, so that a message can wait for years without keeping years of log. They
count as moved only once the copies are confirmed and on disk: a power failure must not leave a log
that neither has a message nor knows that it was delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from aerobee.broker.delayed.feeder import Feeder
from aerobee.broker.delayed.finder import Finder
from aerobee.broker.delayed.mover import Mover
from aerobee.broker.delayed.waiting_log import WaitingLog, in_parts
from aerobee.broker.retention.holds import Hold, Need, Upkeep
from aerobee.broker.sending.durability import Durability
from aerobee.broker.timers.entries import TIMER_QUEUE, IntentKind, Source
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.state import TimerJournalState
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, StoreFailed
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_ledger import Candidate

ROLL_TIMEOUT_S: Final = 3.0
"""How long one removal waits for messages to move; the next one continues where it ended."""
FOUND_MAX: Final = 5_000
ROLLED_AT_ONCE: Final = 500
ROLLED_BYTES: Final = 1 << 20
"""Bytes moved at once; a single message may exceed it."""

_WAITS: Final = "delayed messages wait there"
Places = list[tuple[Source, int, int]]
"""Messages with position and size."""


class DelaysHold(Hold):
    """On the loop."""

    def __init__(
        self,
        feeder: Feeder,
        finder: Finder,
        mover: Mover,
        waiting: WaitingLog,
        state: TimerJournalState,
        store: MessageStore,
        durability: Durability,
        clock: Clock,
    ) -> None:
        self._feeder = feeder
        self._finder = finder
        self._mover = mover
        self._waiting = waiting
        self._state = state
        self._store = store
        self._durability = durability
        self._clock = clock

    @property
    def _progress(self) -> TimerProgress:
        """On a master, as decided; on a slave, as far as confirmed."""
        term = self._mover.term
        return self._state.progress if term is None else term.progress

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        end, until_s = candidate.end, self._clock.monotonic_s() + ROLL_TIMEOUT_S
        try:
            while True:
                basis = self._progress
                oldest = await self._oldest_below(end)
                if oldest is None:
                    return await self._safe(candidate)
                position, places = oldest
                if not places:
                    return Need(position, f"{_WAITS}, and are still being read or delivered")
                if not self._mover.is_ready:
                    return Need(position, f"{_WAITS}; their master will store them once more")
                if self._clock.monotonic_s() >= until_s:
                    return Need(position, f"{_WAITS}, and are being stored once more")
                await self._roll(places, basis, until_s)
        except StoreFailed:
            raise
        except AerobeeError as error:
            return Need(candidate.base, f"{_WAITS}, and cannot be stored once more: {error}")

    async def _safe(self, candidate: Candidate) -> Need | None:
        """Everything found done is on disk and on the required replicas, including that intents
        were carried out: a replica that does not know this looks for their sources again."""
        if (term := self._mover.term) is not None:
            term.write_out()
        end, forever = self._store.appended_end, float("inf")
        self._durability.request_flush()
        try:
            async with asyncio.timeout(ROLL_TIMEOUT_S):
                if term is not None and not await self._durability.confirmed.wait(end, forever):
                    return Need(candidate.base, f"{_WAITS}; their master has just changed")
                await self._durability.flushed.wait(end, forever)
        except TimeoutError:
            return Need(candidate.base, f"{_WAITS}, and are not confirmed in another place yet")
        return None

    # ------------------------------------------------------------------------------ looking

    async def _oldest_below(self, end: int) -> tuple[int, Places] | None:
        """The lowest position below `end` at which a message waits, and the first waiting messages
        of its queue (empty if they cannot be rolled now). None: no message waits there. Raises
        AerobeeError."""
        for oldest in (await self._acting(end), await self._unfed(end)):
            if oldest is not None:
                return oldest, []
        rows = await self._finder.oldest(FOUND_MAX)
        rows = rows[rows["position"] < end]
        if len(rows):
            columns = (rows[name].tolist() for name in ("offset", "due_ms", "position", "size"))
            places = [
                (Source(TIMER_QUEUE, offset, due_ms), position, size)
                for offset, due_ms, position, size in zip(*columns, strict=True)
            ]
            return places[0][1], places
        for level in self._feeder.levels:
            if places := await self._of_level(level, end):
                return places[0][1], places
        # A message that waited at the first look only may be in delivery and not have arrived.
        acting = await self._acting(end)
        return None if acting is None else (acting, [])

    async def _acting(self, end: int) -> int | None:
        """The messages being delivered: nobody else knows yet whether their copies are stored."""
        intent = self._progress.open
        if intent is None:
            return None
        positions = []
        for source in intent.sources:
            entry = await self._waiting.entries(source.queue, source.offset, 1)
            positions += [position for position in entry.positions.tolist() if position < end]
        return min(positions, default=None)

    async def _unfed(self, end: int) -> int | None:
        bounds, fed_end = self._waiting.bounds(TIMER_QUEUE), self._feeder.index.fed_end
        if fed_end >= bounds.max_offset:
            return None
        entry = await self._waiting.entries(TIMER_QUEUE, max(fed_end, bounds.min_offset), 1)
        return next((position for position in entry.positions.tolist() if position < end), None)

    async def _of_level(self, level: int, end: int) -> Places:
        progress = self._progress.of(level)
        begin = max(progress.floor, self._waiting.bounds(level).min_offset)
        entries = await self._waiting.entries(level, begin, FOUND_MAX)
        columns = (entries.times_ms, entries.positions, entries.sizes)
        return [
            (Source(level, offset, due_ms), position, size)
            for offset, (due_ms, position, size) in enumerate(
                zip(*(column.tolist() for column in columns), strict=True), begin
            )
            if position < end and offset not in progress.loose
        ]

    # ------------------------------------------------------------------------------ rolling

    async def _roll(self, places: Places, basis: TimerProgress, until_s: float) -> None:
        """Rolls as many as time allows, and at least some. `basis`: what was done when they were
        looked up. Raises AerobeeError."""
        for some in in_parts(places, lambda place: place[2], ROLLED_BYTES, ROLLED_AT_ONCE):
            await self._roll_some(some, basis)
            await asyncio.sleep(0)
            if self._clock.monotonic_s() >= until_s:
                return

    async def _roll_some(
        self, places: Sequence[tuple[Source, int, int]], basis: TimerProgress
    ) -> None:
        sources = [source for source, _, _ in places]
        data = await self._waiting.pieces_there(
            [position for _, position, _ in places], [size for _, _, size in places]
        )
        await self._mover.act_out_of_turn(
            IntentKind.ROLL,
            list(zip(sources, data, strict=True)),
            floor=sources[-1],
            basis=basis,
        )
