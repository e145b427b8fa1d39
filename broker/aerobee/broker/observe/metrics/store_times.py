"""When single messages were stored: looked up off the loop and remembered.

The first message that a group has not read may be in memory or on a slow disk, so it is read on the
read pool, in a turn of its own, with a time limit: what is not known by then is left out, and often
known at the next scrape. A group that does not move costs no read at all.

Owns: the times of the places requested last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.reading.unread import Place
from aerobee.runtime.errors import AerobeeError
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.surveys import UNKNOWN

READER = "metrics"
PLACES_PER_TURN = 64
PLACES_PER_STEP = 256
PLACE_BYTES = 4_096
"""Approximate bytes read to find one time: a page."""
TIMEOUT_S = 1.0
"""For all places of one scrape."""


class StoreTimes:
    """On the loop."""

    def __init__(self, store: MessageStore, reads: ReadPool) -> None:
        self._store = store
        self._reads = reads
        self._known: dict[Place, int] = {}
        self._first_position = -1
        self._first_ms: int | None = None

    async def of_places(self, places: Sequence[Place], slices: Slices) -> Mapping[Place, int]:
        """Unix ms by place; places whose message could not be found in time are missing."""
        known, missing = await self._remembered(places, slices)
        self._known = known
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for begin in range(0, len(missing), PLACES_PER_TURN):
                    await self._find(missing[begin : begin + PLACES_PER_TURN])
        except TimeoutError:
            pass
        return known

    async def _remembered(
        self, places: Sequence[Place], slices: Slices
    ) -> tuple[dict[Place, int], list[Place]]:
        known: dict[Place, int] = {}
        missing: dict[Place, None] = {}
        for number, place in enumerate(places, 1):
            stored_ms = self._known.get(place)
            if stored_ms is None:
                missing[place] = None
            else:
                known[place] = stored_ms
            if number % PLACES_PER_STEP == 0:
                await slices.breathe()
        return known, list(missing)

    async def first_ms(self) -> int | None:
        """When the oldest remaining message was stored; None: unknown."""
        store = self._store
        position = store.min_offset
        if position == store.appended_end:
            return None
        if position != self._first_position:
            self._first_ms = None
            times = store.surveys.times()
            times.add(position)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    (found,) = await self._reads.run_in_turn(READER, PLACE_BYTES, times.run)
            except (AerobeeError, TimeoutError):
                return None
            if found == UNKNOWN:
                return None
            self._first_position, self._first_ms = position, found
        return self._first_ms

    async def _find(self, places: Iterable[Place]) -> None:
        times = self._store.surveys.times()
        planned: list[Place] = []
        for place in places:
            entry = self._store.surveys.entry(*place)
            if entry is not None:
                times.add(entry)
                planned.append(place)
        if not planned:
            return
        try:
            found = await self._reads.run_in_turn(READER, len(planned) * PLACE_BYTES, times.run)
        except AerobeeError:
            return  # as if the disk were slow
        for place, stored_ms in zip(planned, found, strict=True):
            if stored_ms != UNKNOWN:
                self._known[place] = stored_ms
