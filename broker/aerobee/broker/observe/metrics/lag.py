"""How far each group is behind on each topic: how much it has not committed, and where that is.

    committed ......... sent ......... end
    |    inflight       |    ready     |
    |             lag                  |

Counted only on the master, which knows the committed offsets. Unread means the same as for
retention: a group that committed on other queues of a topic wants a queue from its first message
on. Only its members know where a group without commits on a topic begins, so it is not reported
before one of them reads; and in-flight messages are not reported while a member that holds a queue
does not read it here, as it may read at a slave.

Invariant: lag = inflight + ready if both are reported; everything of one queue is read in one step.
On the loop, a few queues at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.observe.metrics.store_times import Place, StoreTimes
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.pop.entries import POP_JOURNAL_TOPIC
from aerobee.broker.reading.pull_session import PullPlace, PullSession
from aerobee.broker.timers.entries import TIMER_JOURNAL_TOPIC
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable

QUEUES_PER_STEP = 64
_JOURNALS = (JOURNAL_TOPIC, TIMER_JOURNAL_TOPIC, POP_JOURNAL_TOPIC)


class PoppedQueue(Protocol):
    """A queue that POP consumes."""

    @property
    def in_flight(self) -> int: ...

    def unfinished(self, queue_end: int) -> int: ...


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
    first_unread: list[Place] = field(default_factory=list, repr=False)


class LagReading:
    """One reading of all groups."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        coordinator: GroupCoordinator,
        sessions: Callable[[], list[PullSession]],
        times: StoreTimes,
        popped: Callable[[GroupQueue], PoppedQueue | None],
    ) -> None:
        """`popped`: None where POP consumes nothing."""
        self._popped = popped
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._coordinator = coordinator
        self._sessions = sessions
        self._times = times

    async def read(self, now_ms: Callable[[], int], slices: Slices) -> list[GroupLag]:
        """Everything known now."""
        places = await self._places(slices)
        rows = []
        for group, topic in await self._pairs(slices):
            rows.append(await self._row(group, topic, places, slices))
        wanted = [place for row in rows for place in row.first_unread]
        await slices.breathe()
        found = await self._times.of_places(wanted, slices)
        slices.begin()
        now = now_ms()
        for row in rows:
            if row.lag == 0:
                row.latency_ms = 0
            elif row.lag is not None:
                times = [found.get(place) for place in row.first_unread]
                known = [stored_ms for stored_ms in times if stored_ms is not None]
                if len(known) == len(times):
                    row.latency_ms = max(0, now - min(known))
            await slices.breathe()
        return rows

    async def _places(self, slices: Slices) -> dict[GroupQueue, PullPlace]:
        """How far each leased queue was sent. Read before the commits, so that what is committed
        was also sent."""
        places: dict[GroupQueue, PullPlace] = {}
        for session in self._sessions():
            for place in session.places():
                places[place.key] = place
            await slices.breathe()
        return places

    async def _pairs(self, slices: Slices) -> Iterable[tuple[str, str]]:
        """Groups and the topics which their live members share, or on which they committed; in this
        order, so that a limit cuts off abandoned groups first."""
        offsets, topics = self._offsets, self._topics
        pairs: dict[tuple[str, str], None] = {}
        for member in list(self._coordinator.members.all_members()):
            if not member.broadcasting:
                for subscription in member.subscriptions:
                    pairs[member.group, subscription.topic] = None
        await slices.breathe()
        for group in offsets.groups():
            for topic in offsets.topics_of(group):
                pairs[group, topic] = None
            await slices.breathe()
        return [pair for pair in pairs if pair[1] in topics and pair[1] not in _JOURNALS]

    async def _row(
        self, group: str, topic: str, places: dict[GroupQueue, PullPlace], slices: Slices
    ) -> GroupLag:
        row = GroupLag(group, topic)
        config = self._topics.get(topic)
        queues = 0 if config is None else max(config.read_queue_count, config.write_queue_count)
        for begin in range(0, queues, QUEUES_PER_STEP):
            has_committed = self._offsets.has_committed(group, topic)
            for queue_id in range(begin, min(begin + QUEUES_PER_STEP, queues)):
                key = GroupQueue(group, topic, queue_id)
                self._add(row, key, places.get(key), has_committed=has_committed)
            await slices.breathe()
        return row

    def _add(
        self, row: GroupLag, key: GroupQueue, place: PullPlace | None, *, has_committed: bool
    ) -> None:
        bounds = self._store.queues.bounds(key.topic, key.queue_id)
        first, end = bounds.min_offset, bounds.max_offset
        if first == end:
            return
        committed = self._offsets.query(*key)
        if committed is None and place is not None:
            committed = place.start
        if committed is None and not has_committed:
            row.lag = row.inflight = row.ready = None
            return
        first = min(max(first, committed or 0), end)
        if first == end:
            return
        if (queue := self._popped(key)) is not None:
            lag, inflight = queue.unfinished(end), queue.in_flight
            row.lag, row.inflight = _plus(row.lag, lag), _plus(row.inflight, inflight)
            row.ready = _plus(row.ready, lag - inflight)
            if lag:
                row.first_unread.append((key.topic, key.queue_id, first))
            return
        sent: int | None = None
        if place is not None:
            sent = min(max(place.position, first), end)
        elif self._coordinator.ownership.leases.holder(key) is None:
            sent = first
        row.lag = _plus(row.lag, end - first)
        row.inflight = _plus(row.inflight, None if sent is None else sent - first)
        row.ready = _plus(row.ready, None if sent is None else end - sent)
        row.first_unread.append((key.topic, key.queue_id, first))


def _plus(sum_so_far: int | None, value: int | None) -> int | None:
    return None if sum_so_far is None or value is None else sum_so_far + value
