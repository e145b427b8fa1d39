"""What each group has not read: the one answer for metrics, audits, retention, and what would be
lost with a broker.

    a group that committed on the queue        from that offset on
    one that committed on another queue of     from the queue's first message on: the queue came
      the topic                                while the group was away
    one that never did, with live members      unknown: where it will begin is known to its members
                                               only, until one of them reads the queue here
    one that never did, without members        it is no reader
    broadcasting members                       no readers: they keep their offsets themselves
    the group in which brokers note what       no reader
      topics keep

    first ........... sent ........... end
    |    in flight     |     ready      |
    |              count                |

POP finishes messages in any order, so of a queue that it consumes every message is counted that is
not finished. What is in flight is unknown while a member that holds a queue does not read it here,
as it may read at a slave.

Owns: these rules. Unknown is None, never 0: retention then keeps the whole queue, a removal counts
all of it, and metrics say nothing.
Invariants: count = in flight + ready if both are known; all of one queue is read in one step.
On the loop, a few queues at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from aerobee.broker.groups.members import Members
from aerobee.broker.groups.queue_leases import GroupQueue, QueueLeases
from aerobee.broker.reading.pull_session import PullPlace, PullSession
from aerobee.domain.names import KEPT_FROM_GROUP
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.reading import QueueBounds
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable

QUEUES_PER_STEP: Final = 64

Place = tuple[str, int, int]
"""Topic, queue, offset."""


class PoppedQueue(Protocol):
    """A queue that POP consumes."""

    @property
    def in_flight(self) -> int: ...

    def unfinished(self, queue_end: int) -> int: ...


class UnreadSpan(NamedTuple):
    """The messages of a queue from an offset on, as far as they still exist: [first, end)."""

    first: int
    end: int

    @classmethod
    def of(cls, bounds: QueueBounds, offset: int) -> UnreadSpan:
        """`offset` may be outside the queue: messages were removed, or the log lost its end."""
        end = bounds.max_offset
        return cls(min(max(offset, bounds.min_offset), end), end)


@dataclass(slots=True)
class GroupUnread:
    """One group on one topic; None: unknown."""

    group: str
    topic: str
    count: int | None = 0
    in_flight: int | None = 0
    ready: int | None = 0
    first_unread: list[Place] = field(default_factory=list, repr=False)
    """Of each queue that has any."""

    def add(self, count: int | None, in_flight: int | None) -> None:
        """A queue's."""
        ready = None if count is None or in_flight is None else count - in_flight
        self.count = _plus(self.count, count)
        self.in_flight = _plus(self.in_flight, in_flight)
        self.ready = _plus(self.ready, ready)


class Readers:
    """Which group reads which topic, and from where."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, offsets: ConsumerOffsetTable, groups: Members
    ) -> None:
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.groups = groups

    async def all(self, pause: Callable[[], Awaitable[None]]) -> dict[tuple[str, str], None]:
        """Each group, and each existing topic that it reads. Groups with live members come first,
        so that a limit cuts off abandoned groups. The loop runs in `pause`, after each group."""
        pairs = dict.fromkeys(self._subscribed())
        await pause()
        for group in self._groups():
            for topic in self.offsets.topics_of(group):
                pairs[group, topic] = None
            await pause()
        return {pair: None for pair in pairs if pair[1] in self.topics}

    def of_topic(self, topic: str) -> dict[str, None]:
        """The groups that read one topic now."""
        if topic not in self.topics:
            return {}
        groups = [each for each in self._groups() if self._has_committed(each, topic)]
        groups += [group for group, subscribed in self._subscribed() if subscribed == topic]
        return dict.fromkeys(groups)

    def begin(self, key: GroupQueue, place: PullPlace | None = None) -> int | None:
        """The offset from which a reader of the topic wants a queue; None: unknown. `place`: where
        a member reads it."""
        committed = self.offsets.query(*key)
        if committed is not None:
            return committed
        if place is not None:
            return place.start
        if self._has_committed(key.group, key.topic):
            return self.bounds(key).min_offset
        return None

    def bounds(self, key: GroupQueue) -> QueueBounds:
        return self.store.queues.bounds(key.topic, key.queue_id)

    def queues(self, topic: str) -> int:
        """How many queues a topic has, for sending or for reading."""
        config = self.topics.get(topic)
        return 0 if config is None else max(config.read_queue_count, config.write_queue_count)

    def _groups(self) -> list[str]:
        return [each for each in self.offsets.groups() if each != KEPT_FROM_GROUP]

    def _has_committed(self, group: str, topic: str) -> bool:
        return self.offsets.has_committed(group, topic)

    def _subscribed(self) -> Iterator[tuple[str, str]]:
        """Live members that share the queues, and their topics."""
        for member in self.groups.all_members():
            if not member.broadcasting:
                for subscription in member.subscriptions:
                    yield member.group, subscription.topic


class UnreadCounts:
    """How much of each topic its readers have not read; of a master, which knows the offsets."""

    def __init__(
        self,
        readers: Readers,
        leases: QueueLeases,
        sessions: Callable[[], list[PullSession]],
        popped: Callable[[GroupQueue], PoppedQueue | None],
    ) -> None:
        """`popped`: None where POP consumes nothing."""
        self._readers = readers
        self._leases = leases
        self._sessions = sessions
        self._popped = popped

    async def read(
        self, slices: Slices, wants: Callable[[str, str], bool] = lambda group, topic: True
    ) -> list[GroupUnread]:
        """All groups and topics that are wanted, in the order of `Readers.all`."""
        places = await self._places(slices)
        pairs = [pair for pair in await self._readers.all(slices.breathe) if wants(*pair)]
        return [await self._of_topic(*pair, places, slices) for pair in pairs]

    async def stored(self, topic: str, slices: Slices) -> int:
        """All messages of a topic: what a group may want whose beginning is unknown."""
        found, queues = 0, self._readers.queues(topic)
        for begin in range(0, queues, QUEUES_PER_STEP):
            for queue_id in range(begin, min(begin + QUEUES_PER_STEP, queues)):
                bounds = self._readers.bounds(GroupQueue("", topic, queue_id))
                found += bounds.max_offset - bounds.min_offset
            await slices.breathe()
        return found

    async def _places(self, slices: Slices) -> dict[GroupQueue, PullPlace]:
        """How far each leased queue was sent. Read before the commits, so that what is committed
        was also sent."""
        places: dict[GroupQueue, PullPlace] = {}
        for session in self._sessions():
            for place in session.places():
                places[place.key] = place
            await slices.breathe()
        return places

    async def _of_topic(
        self, group: str, topic: str, places: dict[GroupQueue, PullPlace], slices: Slices
    ) -> GroupUnread:
        row, queues = GroupUnread(group, topic), self._readers.queues(topic)
        for begin in range(0, queues, QUEUES_PER_STEP):
            for queue_id in range(begin, min(begin + QUEUES_PER_STEP, queues)):
                key = GroupQueue(group, topic, queue_id)
                self._add(row, key, places.get(key))
            await slices.breathe()
        return row

    def _add(self, row: GroupUnread, key: GroupQueue, place: PullPlace | None) -> None:
        bounds = self._readers.bounds(key)
        if bounds.min_offset == bounds.max_offset:
            return
        begin = self._readers.begin(key, place)
        if begin is None:
            row.add(None, None)
            return
        first, end = UnreadSpan.of(bounds, begin)
        if first == end:
            return
        if (queue := self._popped(key)) is None:
            count = end - first
            row.add(count, self._in_flight(key, place, first, end))
        else:
            # What was finished before `first` no longer counts, and neither does what was not.
            count = min(queue.unfinished(end), end - first)
            row.add(count, queue.in_flight)
        if count:
            row.first_unread.append((key.topic, key.queue_id, first))

    def _in_flight(
        self, key: GroupQueue, place: PullPlace | None, first: int, end: int
    ) -> int | None:
        if place is not None:
            return min(max(place.position, first), end) - first
        return 0 if self._leases.holder(key) is None else None


def _plus(sum_so_far: int | None, value: int | None) -> int | None:
    return None if sum_so_far is None or value is None else sum_so_far + value
