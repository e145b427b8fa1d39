"""How old and how many the unread messages of a group are, as far as can be read.

The log is read for the time of one message per lagging commit. For a group whose members filter by
tags the unread entries are counted, and for one with SQL filters the unread records are evaluated.
All of this runs on the read pool, in turns, within limits above which a value is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.groups.members import Members
from aerobee.broker.observe.audit.rows import UNKNOWN, CommitRows, QueueRows, SegmentRows
from aerobee.broker.reading.filters import AnyFilter
from aerobee.broker.reading.sql_filter import SqlFilter
from aerobee.broker.reading.tag_filter import TagFilter
from aerobee.broker.reading.unread import Place, UnreadSpan
from aerobee.domain.sql_filter.expression import CompiledExpressions, SqlExpression
from aerobee.domain.tag_expression import parse_tags
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.runtime.errors import FilterIllegal
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.reading import Filter
from aerobee.store.engine.queues.surveys import COUNTED_ENTRIES, Counted
from aerobee.store.format.consume_queue_entry import ENTRY_SIZE

T = TypeVar("T")

READER = "an audit"
TIMES_PER_TURN = 128
TIME_BYTES = 4_096
"""Approximate bytes read to find one message's time: a page."""
TIMES_MAX = 500_000
"""Messages whose times one snapshot looks up."""
COUNTED_PER_ROW_MAX = 5_000_000
COUNTED_MAX = 100_000_000
"""Entries examined for one commit, and for one snapshot."""
JUDGED_PER_ROW_MAX = 500_000
JUDGED_MAX = 5_000_000
"""Records evaluated for one commit, and for one snapshot, where entries do not decide: with SQL
filters, and if the tags codes are stored elsewhere."""
JUDGED_PER_TURN = 1_000
JUDGED_BYTES = 1 << 20


class UnreadSurvey:
    """The survey of one snapshot; on the loop."""

    def __init__(
        self,
        store: MessageStore,
        groups: Members,
        clients: ClientTable,
        reads: ReadPool,
        expressions: CompiledExpressions,
        counters: Counters,
    ) -> None:
        self._store = store
        self._expressions = expressions
        self._counters = counters
        self._judged_left = JUDGED_MAX
        self._groups = groups
        self._clients = clients
        self._reads = reads
        self._times: dict[Place, int] = {}
        self._times_left = TIMES_MAX
        self._entries_left = COUNTED_MAX
        self._filters: dict[tuple[str, str], Filter | None] = {}

    async def add_first_unread(self, rows: CommitRows) -> None:
        """When the first message that the group has not read and that still exists was stored."""
        places: list[Place | None] = []
        for row, offset in enumerate(rows.offsets):
            _, topic = rows.names(row)
            queue_id = rows.queue_ids[row]
            first, end = self._span(topic, queue_id, offset)
            places.append((topic, queue_id, first) if first < end else None)
        rows.first_unread_ms = await self._times_of(places)

    async def add_last_store_times(self, rows: QueueRows) -> None:
        """When each queue's last message was stored."""
        places: list[Place | None] = []
        for row, end in enumerate(rows.max_offsets):
            topic = rows.topics.names[rows.topic_codes[row]]
            has_any = rows.min_offsets[row] < end
            places.append((topic, rows.queue_ids[row], end - 1) if has_any else None)
        rows.last_store_ms = await self._times_of(places)

    async def add_first_store_times(self, rows: SegmentRows) -> None:
        """When each segment's first record was stored."""
        found: list[int] = []
        for start in range(0, len(rows), TIMES_PER_TURN):
            times = self._store.surveys.times()
            for position in rows.positions[start : start + TIMES_PER_TURN]:
                times.add(position)
            found += await self._run(len(times) * TIME_BYTES, times.run)
        rows.first_store_ms = found

    async def add_matching(self, rows: CommitRows) -> None:
        """How many messages that the group has not read pass its members' filters; unknown if
        nothing is filtered, as all do."""
        found = [UNKNOWN] * len(rows)
        for row, offset in enumerate(rows.offsets):
            group, topic = rows.names(row)
            wanted = self._filter(group, topic)
            if wanted is not None:
                found[row] = await self._matching(topic, rows.queue_ids[row], offset, wanted)
        rows.matching_unread = found

    # ------------------------------------------------------------------------------ inside

    def _span(self, topic: str, queue_id: int, offset: int) -> UnreadSpan:
        return UnreadSpan.of(self._store.queues.bounds(topic, queue_id), offset)

    async def _run(self, size: int, work: Callable[[], T]) -> T:
        """In a turn, and at the pace of readers of old messages while others are being sent."""
        done = await self._reads.run_in_turn(READER, size, work)
        self._reads.spend(size)
        return done

    async def _times_of(self, places: Sequence[Place | None]) -> list[int]:
        wanted = [
            place
            for place in dict.fromkeys(places)
            if place is not None and place not in self._times
        ]
        wanted = wanted[: self._times_left]
        self._times_left -= len(wanted)
        for start in range(0, len(wanted), TIMES_PER_TURN):
            await self._read_times(wanted[start : start + TIMES_PER_TURN])
        return [UNKNOWN if place is None else self._times.get(place, UNKNOWN) for place in places]

    async def _read_times(self, places: Iterable[Place]) -> None:
        times = self._store.surveys.times()
        planned: list[Place] = []
        for place in places:
            entry = self._store.surveys.entry(*place)
            if entry is not None:
                times.add(entry)
                planned.append(place)
        if planned:
            found = await self._run(len(planned) * TIME_BYTES, times.run)
            self._times.update(zip(planned, found, strict=True))

    def _filter(self, group: str, topic: str) -> Filter | None:
        """What any member that shares the queues subscribes to; None: all messages."""
        if (group, topic) not in self._filters:
            self._filters[group, topic] = self._wanted(group, topic)
        return self._filters[group, topic]

    def _wanted(self, group: str, topic: str) -> Filter | None:
        tags: set[str] = set()
        expressions: dict[SqlExpression, None] = {}
        try:
            for wish in self._wishes(group, topic):
                if wish is None:
                    return None
                if isinstance(wish, SqlExpression):
                    expressions[wish] = None
                else:
                    tags.update(wish)
        except FilterIllegal:
            return None
        if not expressions:
            return TagFilter(tags) if tags else None
        filters: list[Filter] = [SqlFilter(each) for each in expressions]
        if tags:
            filters.append(TagFilter(tags))
        return filters[0] if len(filters) == 1 else AnyFilter(filters)

    def _wishes(self, group: str, topic: str) -> Iterator[Iterable[str] | SqlExpression | None]:
        """For each subscription: tags, an expression, or None for all. Raises FilterIllegal."""
        for member in self._groups.clustering_members(group):
            for subscription in member.subscriptions:
                if subscription.topic == topic:
                    if subscription.is_sql:
                        yield self._expressions.of(subscription.expression)
                    else:
                        yield parse_tags(subscription.expression)
        for client in self._clients.members(group):
            if topic in client.subscriptions:
                kept = client.subscriptions[topic]
                yield self._expressions.of(kept) if isinstance(kept, str) else kept

    async def _matching(self, topic: str, queue_id: int, offset: int, wanted: Filter) -> int:
        start, end = self._span(topic, queue_id, offset)
        unread = end - start
        if unread > min(COUNTED_PER_ROW_MAX, self._entries_left):
            return UNKNOWN
        self._entries_left -= unread
        row = _Row(topic, queue_id, wanted)
        total = 0
        while start < end:
            count = min(COUNTED_ENTRIES, end - start)
            work = self._store.surveys.count_matching(topic, queue_id, start, count, wanted)
            if work is None:
                return UNKNOWN
            found = await self._run(count * ENTRY_SIZE, work.run)
            if found is None:
                return UNKNOWN
            judged = await self._judged(row, found)
            if judged == UNKNOWN:
                return UNKNOWN
            total += found.matching + judged
            start += count
        return total

    async def _judged(self, row: _Row, counted: Counted) -> int:
        """How many of the records whose entries do not decide match."""
        positions, sizes = counted.positions, counted.sizes
        row.judged += len(positions)
        if row.judged > min(JUDGED_PER_ROW_MAX, self._judged_left):
            return UNKNOWN
        self._judged_left -= len(positions)
        ends = sizes.cumsum()
        total = start = done = 0
        while start < len(positions):
            within = int(ends.searchsorted(done + JUDGED_BYTES, side="right"))
            end = min(max(start + 1, within), start + JUDGED_PER_TURN)
            piece = slice(start, end)
            work = self._store.surveys.judge(
                row.topic, row.queue_id, row.wanted, positions[piece], sizes[piece]
            )
            found = await self._run(int(ends[end - 1]) - done, work.run)
            if found == UNKNOWN:
                return UNKNOWN
            self._counters.filter_judged += end - start
            self._counters.filter_matched += found
            total += found
            start, done = end, int(ends[end - 1])
        return total


@dataclass(slots=True)
class _Row:
    """One commit whose unread messages are counted."""

    topic: str
    queue_id: int
    wanted: Filter
    judged: int = 0
