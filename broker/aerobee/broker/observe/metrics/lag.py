"""How far each group is behind on each topic: what it has not read, and how old that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aerobee.broker.observe.metrics.store_times import StoreTimes
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.pop.entries import POP_JOURNAL_TOPIC
from aerobee.broker.reading.unread import GroupUnread, UnreadCounts
from aerobee.broker.recurring.entries import SCHEDULE_JOURNAL_TOPIC
from aerobee.broker.timers.entries import TIMER_JOURNAL_TOPIC
from aerobee.runtime.metrics.slices import Slices

_JOURNALS: Final = (
    JOURNAL_TOPIC,
    TIMER_JOURNAL_TOPIC,
    POP_JOURNAL_TOPIC,
    SCHEDULE_JOURNAL_TOPIC,
)


@dataclass(slots=True)
class GroupLag:
    """One group on one topic; None: unknown."""

    group: str
    topic: str
    lag: int | None = 0
    inflight: int | None = 0
    ready: int | None = 0
    latency_ms: int | None = None
    """The age of the oldest message that the group has not committed; 0 if there is none."""

    @classmethod
    def of(cls, unread: GroupUnread) -> GroupLag:
        return cls(unread.group, unread.topic, unread.count, unread.in_flight, unread.ready)


class LagReading:
    """One reading of all groups."""

    def __init__(self, unread: UnreadCounts, times: StoreTimes) -> None:
        self._unread = unread
        self._times = times

    async def read(self, now_ms: Callable[[], int], slices: Slices) -> list[GroupLag]:
        """Everything known now."""
        found = await self._unread.read(slices, lambda group, topic: topic not in _JOURNALS)
        wanted = [place for each in found for place in each.first_unread]
        await slices.breathe()
        stored = await self._times.of_places(wanted, slices)
        slices.begin()
        now = now_ms()
        rows = []
        for unread in found:
            row = GroupLag.of(unread)
            rows.append(row)
            if row.lag == 0:
                row.latency_ms = 0
            elif row.lag is not None:
                times = [stored.get(place) for place in unread.first_unread]
                known = [stored_ms for stored_ms in times if stored_ms is not None]
                if len(known) == len(times):
                    row.latency_ms = max(0, now - min(known))
            await slices.breathe()
        return rows
