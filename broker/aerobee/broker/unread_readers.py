"""Which groups still want which messages: what retention must not take from them.

Owns: the rule of who counts as a reader of a queue.

    a group that committed on the queue        from that offset on
    one that never did, with live members      from the queue's first message on: where it will
                                               begin is known to its members only
    one that never did, without members        does not count
    broadcasting members                       do not count: they keep their offsets themselves
    topics that are gone, and the system's     nobody's messages

It reads the tables and changes nothing. Many groups on many queues take a while, so `collect` lets
the loop run in between; the others tell how it is at one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace

from aerobee.broker.consumer_groups import ConsumerGroups
from aerobee.broker.store.message_store import MessageStore
from aerobee.broker.store.retention.queue_readers import QueueReaders
from aerobee.broker.store.tables.config_tables import TopicConfig, TopicTable
from aerobee.broker.store.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.runtime.names import is_system_topic
from aerobee.runtime.topic_attributes import keep_unread_max_bytes

_QUEUES_PER_TURN = 200
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_SYSTEM_GROUPS = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)


class UnreadReaders:
    """See the module; on the loop."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        groups: ConsumerGroups,
        store: MessageStore,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._groups = groups
        self._store = store

    async def collect(self) -> AsyncIterator[list[QueueReaders]]:
        """Every queue that somebody has not read to its end, a few at a time."""
        groups_by_topic = await self._groups_by_topic()
        found: list[QueueReaders] = []
        looked_at = 0
        for topic, groups in groups_by_topic.items():
            for queue_id in range(self._queue_count(topic)):
                readers = self._readers(topic, queue_id, groups)
                if readers is not None and readers.oldest < self._end(topic, queue_id):
                    found.append(readers)
                looked_at += 1
                if looked_at % _QUEUES_PER_TURN == 0:
                    yield found
                    found = []
                    await asyncio.sleep(0)
        yield found

    def of_queue(self, topic: str, queue_id: int) -> list[QueueReaders]:
        """The readers of one queue at this moment; none if there are none."""
        if queue_id >= self._queue_count(topic):
            return []
        groups = dict.fromkeys(self._committed_groups(), False)
        groups.update(
            {group: True for group, subscribed in self._subscribed() if subscribed == topic}
        )
        readers = self._readers(topic, queue_id, groups)
        return [] if readers is None else [readers]

    def refresh(self, known: Iterable[QueueReaders]) -> list[QueueReaders]:
        """The same readers with their offsets at this moment."""
        return [self._refreshed(readers) for readers in known]

    def _refreshed(self, readers: QueueReaders) -> QueueReaders:
        offsets = {}
        for group, before in readers.offsets.items():
            committed = self._offsets.query(group, readers.topic, readers.queue_id)
            offsets[group] = before if committed is None else committed
        return replace(readers, offsets=offsets)

    # ---------------------------------------------------------------------- inside

    def _committed_groups(self) -> list[str]:
        """Groups that ever committed anything, without the system's."""
        return [
            group
            for group in self._offsets.groups()
            if group not in _SYSTEM_GROUPS and not group.startswith(_SYSTEM_GROUP_PREFIX)
        ]

    async def _groups_by_topic(self) -> dict[str, dict[str, bool]]:
        """topic -> group -> whether it has live members that share the topic's queues."""
        groups: dict[str, dict[str, bool]] = {}
        for group in self._committed_groups():
            for topic in self._offsets.topics_of(group):
                groups.setdefault(topic, {})[group] = False
            await asyncio.sleep(0)
        for group, topic in self._subscribed():
            groups.setdefault(topic, {})[group] = True
        return groups

    def _subscribed(self) -> Iterator[tuple[str, str]]:
        for member in self._groups.all_members():
            if not member.broadcasting:
                for subscription in member.subscriptions:
                    yield member.group, subscription.topic

    def _readers(
        self, topic: str, queue_id: int, groups: Mapping[str, bool]
    ) -> QueueReaders | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        offsets: dict[str, int] = {}
        for group, is_live in groups.items():
            offset = self._offsets.query(group, topic, queue_id)
            if offset is None and is_live:
                offset = self._store.queue_bounds(topic, queue_id).min_offset
            if offset is not None:
                offsets[group] = offset
        if not offsets:
            return None
        return QueueReaders(topic, queue_id, offsets, keep_unread_max_bytes(config.attributes))

    def _queue_count(self, topic: str) -> int:
        """0 for topics whose messages nobody waits for."""
        config: TopicConfig | None = self._topics.get(topic)
        if config is None or is_system_topic(topic):
            return 0
        return max(config.read_queue_count, config.write_queue_count)

    def _end(self, topic: str, queue_id: int) -> int:
        return self._store.queue_bounds(topic, queue_id).max_offset
