"""The topics in which a group's failed messages come again or lie as dead letters: one queue each,
in every replica set that needs them.

Owns: when they are made. No nameserver keeps a list of them: the route of such a
name has all replica sets. A group that only sends back at one broker has them there alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.format.dead_letter_fields import GroupNameTooLong, dead_letter_topic, retry_topic


def make_retry_topic(topics: TopicTable, name: str) -> bool:
    """Whether it was missing."""
    if name in topics:
        return False
    topics.put(TopicConfig(name=name, read_queue_count=1, write_queue_count=1))
    return True


class RetryTopics:
    """On the loop."""

    def __init__(self, topics: TopicTable, save: Callable[[], Awaitable[None]]) -> None:
        """`save` writes the table, if there is room."""
        self._topics = topics
        self._save = save

    async def make(self, group: str) -> None:
        """Both topics are there, and on the disk if it has room: before a message is sent back.
        Raises StoreFailed."""
        await self._make(self._names(group))

    async def make_subscribed(self, group: str, subscribed: Iterable[str]) -> None:
        """The retry topic, if it is among these: before a member asks for its queue. Raises
        StoreFailed."""
        names = self._names(group)
        if names and names[0] in set(subscribed):
            await self._make(names[:1])

    async def _make(self, names: list[str]) -> None:
        made = [name for name in names if make_retry_topic(self._topics, name)]
        if made:
            await self._save()

    @staticmethod
    def _names(group: str) -> list[str]:
        names = []
        for make in (retry_topic, dead_letter_topic):
            try:
                names.append(make(group))
            except GroupNameTooLong:
                break
        return names
