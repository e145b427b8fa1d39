"""What all groups have not read, for those who ask often: one reading serves them for a while.

A reading of many groups costs as much as a scrape of the metrics. So the next one begins only after
two hundred times as long as the last one took, and however many ask, the broker spends at most a
two-hundredth of its time on it.

Owns: the last reading.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from aerobee.broker.observe.metrics.lag import GroupLag, LagReading
from aerobee.broker.observe.unsettled import unsettled_letters
from aerobee.broker.opened import OpenedFolder
from aerobee.domain.names import RETRY_PREFIX
from aerobee.runtime.clock import Clock
from aerobee.runtime.metrics.slices import Slices
from aerobee.runtime.waiting import Waiters
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.message_store import MessageStore

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
FRESH_S_MIN: Final = 1.0
FRESH_S_MAX: Final = 300.0
"""A reading that took longer than 1.5 s is made again after this all the same."""
FRESH_FACTOR: Final = 200
LONG_S: Final = 0.2
"""Nobody waits for a reading that takes this long, but for the first one."""


class Parts(Protocol):
    """What the reading needs of the broker."""

    store: MessageStore
    folder: OpenedFolder
    clock: Clock
    lag: LagReading


@dataclass(slots=True)
class GroupTotal:
    """One group on some topics; None: unknown."""

    topics: int = 0
    """Without its retry topic."""
    unread: int | None = 0
    in_flight: int | None = 0
    oldest_age_ms: int | None = 0
    """Age of the oldest unread message; 0: there is none."""

    @classmethod
    def of(cls, rows: Sequence[GroupLag]) -> GroupTotal:
        total = cls()
        for row in rows:
            total.topics += not row.topic.startswith(RETRY_PREFIX)
            total.unread = _plus(total.unread, row.lag)
            total.in_flight = _plus(total.in_flight, row.inflight)
            if row.latency_ms is None or total.oldest_age_ms is None:
                total.oldest_age_ms = None
            else:
                total.oldest_age_ms = max(total.oldest_age_ms, row.latency_ms)
        return total


@dataclass(frozen=True, slots=True)
class TotalsRead:
    """One reading."""

    rows: Mapping[str, Sequence[GroupLag]]
    """By group."""
    totals: Mapping[str, GroupTotal]
    topics: frozenset[str]
    """All that occur in the rows."""
    dead_letters: Mapping[str, int]
    """Those that nobody settled, by group; without groups that have none."""
    read_s: float
    """When, monotonic."""


class GroupTotals:
    """On the loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._worker = Worker(
            self._read_anew, warns(log, "what groups have not read is unknown"), retry_s=RETRY_S
        )
        self._read_again = Waiters()
        self._last: TotalsRead | None = None
        self._took_s = 0.0
        self._next_s = -inf

    async def run(self) -> None:
        """Read whenever somebody wants it. A task of its own, so that a caller that gives up does
        not end the reading for which others wait. Raises StoreFailed."""
        await self._worker.rest(None)  # the first reading, too, is made only if it is wanted
        await self._worker.run()

    async def _read_anew(self) -> None:
        """Raises AerobeeError."""
        began_s = self._parts.clock.monotonic_s()
        if began_s < self._next_s:
            return  # it was wanted while the last one was made
        self._last = await self._read(began_s)
        ended_s = self._parts.clock.monotonic_s()
        self._took_s = ended_s - began_s
        self._next_s = ended_s + min(max(self._took_s * FRESH_FACTOR, FRESH_S_MIN), FRESH_S_MAX)
        self._read_again.wake()

    async def read(self) -> TotalsRead:
        """The last reading if it is fresh enough, else the next one; while a long one is made, the
        one before."""
        last = self._last
        if last is not None and self._parts.clock.monotonic_s() < self._next_s:
            return last
        self._worker.wake()
        if last is not None and self._took_s >= LONG_S:
            return last
        await self._read_again.wait()
        assert self._last is not None
        return self._last

    async def _read(self, began_s: float) -> TotalsRead:
        parts, slices = self._parts, Slices(self._parts.clock)
        rows: dict[str, list[GroupLag]] = {}
        for row in await parts.lag.read(parts.clock.now_ms, slices):
            rows.setdefault(row.group, []).append(row)
            await slices.breathe()
        totals = {}
        for group, some in rows.items():
            totals[group] = GroupTotal.of(some)
            await slices.breathe()
        return TotalsRead(
            rows=rows,
            totals=totals,
            topics=frozenset(row.topic for some in rows.values() for row in some),
            dead_letters=await unsettled_letters(parts, slices),
            read_s=began_s,
        )


def _plus(sum_so_far: int | None, value: int | None) -> int | None:
    return None if sum_so_far is None or value is None else sum_so_far + value
