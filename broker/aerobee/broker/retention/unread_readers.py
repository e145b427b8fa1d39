"""Which groups still need which messages: what retention must not take from them.

Owns: nothing. Who reads a queue, and from where, is up to `reading.unread`. For retention, a reader
whose beginning is unknown needs the queue from its first message on; nobody's are the messages of
topics that are gone; and the system's topics have owners of their own.

Queues are all that the store has, including those above the topic's present number of queues.

It only reads the tables. Many groups on many queues take a while, so `collect` lets the loop run in
between; the other methods describe a single moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.reading.unread import Readers
from aerobee.domain.names import is_system_group, is_system_topic
from aerobee.domain.topic_attributes import keep_unread_max_bytes
from aerobee.store.engine.retention.unread_search import QueueReaders

_QUEUES_PER_TURN: Final = 200
_NAMES_PER_TURN: Final = 5_000


class UnreadReaders:
    """On the loop."""

    def __init__(self, known: Readers) -> None:
        self._known = known

    async def collect(self) -> AsyncIterator[list[QueueReaders]]:
        """Every queue that some reader has not read to its end, a few at a time."""
        groups_by_topic = await self._groups_by_topic()
        queue_ids = await self._queue_ids()
        found: list[QueueReaders] = []
        looked_at = 0
        for topic, groups in groups_by_topic.items():
            if not self._is_waited_for(topic):
                continue
            for queue_id in queue_ids.get(topic, ()):
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
        """The readers of one queue at this moment; may be empty."""
        if not self._is_waited_for(topic) or not self._end(topic, queue_id):
            return []
        groups = [each for each in self._known.of_topic(topic) if not is_system_group(each)]
        readers = self._readers(topic, queue_id, groups)
        return [] if readers is None else [readers]

    @property
    def revision(self) -> tuple[int, int, int]:
        """While it is unchanged, no reader needs more than before."""
        return (
            self._known.offsets.rewinds,
            self._known.groups.view_changes,
            self._known.topics.changes,
        )

    def refresh(self, known: Iterable[QueueReaders]) -> list[QueueReaders]:
        """The same readers with their offsets at this moment."""
        return [self._refreshed(readers) for readers in known]

    def _refreshed(self, readers: QueueReaders) -> QueueReaders:
        offsets = {}
        for group, before in readers.offsets.items():
            committed = self._known.offsets.query(group, readers.topic, readers.queue_id)
            offsets[group] = before if committed is None else committed
        return replace(readers, offsets=offsets)

    # ---------------------------------------------------------------------- inside

    async def _groups_by_topic(self) -> dict[str, list[str]]:
        """topic -> the groups that read it."""
        groups: dict[str, list[str]] = {}
        for group, topic in await self._known.all(partial(asyncio.sleep, 0)):
            if not is_system_group(group):
                groups.setdefault(topic, []).append(group)
        return groups

    async def _queue_ids(self) -> dict[str, list[int]]:
        """topic -> its queues that ever had a message."""
        queue_ids: dict[str, list[int]] = {}
        for number, queue in enumerate(list(self._known.store.queues), 1):
            if queue.end:
                queue_ids.setdefault(queue.topic, []).append(queue.queue_id)
            if number % _NAMES_PER_TURN == 0:
                await asyncio.sleep(0)
        return queue_ids

    def _readers(self, topic: str, queue_id: int, groups: Iterable[str]) -> QueueReaders | None:
        config = self._known.topics.get(topic)
        if config is None:
            return None
        offsets: dict[str, int] = {}
        for group in groups:
            key = GroupQueue(group, topic, queue_id)
            begin = self._known.begin(key)
            offsets[group] = self._known.bounds(key).min_offset if begin is None else begin
        if not offsets:
            return None
        keep_bytes_max = keep_unread_max_bytes(config.attributes)
        if keep_bytes_max is None:
            keep_bytes_max = self._known.store.retention.keep_bytes_max
        return QueueReaders(topic, queue_id, offsets, keep_bytes_max)

    def _is_waited_for(self, topic: str) -> bool:
        """Whether any reader may want the topic's messages."""
        return topic in self._known.topics and not is_system_topic(topic)

    def _end(self, topic: str, queue_id: int) -> int:
        return self._known.store.queues.bounds(topic, queue_id).max_offset
