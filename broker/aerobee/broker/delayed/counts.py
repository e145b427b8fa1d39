"""How many messages wait, by their destination topic.

Owns: nothing. Counting scans the whole timer index on a thread, and reads records of delay levels,
whose queues do not name the destination. It is meant for metrics and audits, not for every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

from aerobee.broker.delayed.finder import Fed, Finder
from aerobee.broker.delayed.waiting_log import WaitingEntries, WaitingLog, in_parts
from aerobee.broker.timers.pending import FIRST, LAST, BoolArray, Rows, by_topic
from aerobee.broker.timers.progress import TimerProgress
from aerobee.broker.timers.record_rows import REQUEST_DUE_MS
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.java_hash import java_string_hash
from aerobee.store.format.record_layout import RecordCorrupt
from aerobee.store.format.record_view import Record

LOOKED_AT_MAX: Final = 20_000
"""At most this many records of delay levels are read per count; the rest count without a topic."""
ENTRIES_AT_ONCE: Final = 4_096
READ_AT_ONCE: Final = 1_000
READ_AT_ONCE_BYTES: Final = 1 << 20
_ALL: Final = 1 << 40


class WaitingCount(NamedTuple):
    """Messages of one topic that wait for a time or for a delay level."""

    topic: str
    """Empty: unknown."""
    is_timer: bool
    messages: int
    first_due_ms: int
    """Unix ms."""


class WaitingCounts:
    """On the loop."""

    def __init__(
        self,
        finder: Finder,
        waiting: WaitingLog,
        feeder: Fed,
        progress: Callable[[], TimerProgress],
        topics: TopicTable,
        works: Executor,
    ) -> None:
        """`progress`: what is done so far; `works` runs what takes long."""
        self._finder = finder
        self._works = works
        self._waiting = waiting
        self._feeder = feeder
        self._progress = progress
        self._topics = topics

    async def by_topic(self) -> list[WaitingCount]:
        """All that waits. A slave reports what it knows of. Raises AerobeeError."""
        return [*await self.timers(), *await self._of_levels()]

    async def timers(self) -> list[WaitingCount]:
        """What waits for a time. Raises AerobeeError."""
        rows = await self._finder.search(FIRST, LAST, limit=_ALL, accepts=_is_message)
        loop = asyncio.get_running_loop()
        names = {java_string_hash(name): name for name in self._topics.names()}
        return [
            WaitingCount(names.get(each.topic_hash, ""), True, each.messages, each.first_due_ms)
            for each in await loop.run_in_executor(self._works, by_topic, rows)
        ]

    async def _of_levels(self) -> list[WaitingCount]:
        found: dict[str, tuple[int, int]] = {}
        left = LOOKED_AT_MAX
        for level in self._feeder.levels:
            progress = self._progress().of(level)
            begin = max(progress.floor, self._waiting.bounds(level).min_offset)
            while len(entries := await self._waiting.entries(level, begin, ENTRIES_AT_ONCE)):
                waits = [at for at in range(len(entries)) if begin + at not in progress.loose]
                topics = await self._topics_of(entries, waits[:left])
                topics += [""] * (len(waits) - len(topics))
                left = max(0, left - len(waits))
                for topic, due_ms in zip(topics, entries.times_ms[waits].tolist(), strict=True):
                    count, first_due_ms = found.get(topic, (0, due_ms))
                    found[topic] = count + 1, min(first_due_ms, due_ms)
                begin += len(entries)
        return [WaitingCount(topic, False, *sums) for topic, sums in found.items()]

    async def _topics_of(self, entries: WaitingEntries, wanted: Sequence[int]) -> list[str]:
        positions, sizes = entries.positions.tolist(), entries.sizes.tolist()
        topics: list[str] = []
        for some in in_parts(wanted, sizes.__getitem__, READ_AT_ONCE_BYTES, READ_AT_ONCE):
            data = await self._waiting.pieces_there(
                [positions[at] for at in some], [sizes[at] for at in some]
            )
            topics += [_topic_of(piece) for piece in data]
        return topics


def _topic_of(data: bytes | None) -> str:
    try:
        return "" if data is None else Record(data).property_value("REAL_TOPIC") or ""
    except RecordCorrupt:
        return ""


def _is_message(rows: Rows) -> BoolArray:
    accepted: BoolArray = rows["due_ms"] > REQUEST_DUE_MS
    return accepted
