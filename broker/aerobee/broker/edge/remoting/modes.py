"""Which topics a group takes by POP, as an operator has set it: for clients that let the broker
divide the queues.

Owns: the meaning of one attribute of groups, which slaves copy with the rest of their table. As
with Apache's brokers, each replica set has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.retries.feature import Retries
from aerobee.broker.sending.guard import Guard
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting.assignments import read_mode
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.tables.config_tables import SubscriptionGroupTable
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX

ATTRIBUTE: Final = "aerobee.pop.topics"
"""Names separated by blanks."""
TOPICS_MAX: Final = 256
"""Of one group."""


class Parts(Protocol):
    """What it needs of the broker."""

    groups: SubscriptionGroupTable
    retries: Retries
    offsets: ConsumerOffsets
    guard: Guard


class Modes:
    """On the loop."""

    def __init__(self, parts: Parts, *, on_changed: Callable[[str, str], None]) -> None:
        """`on_changed` gets a group and the topic whose mode has changed."""
        self._groups = parts.groups
        self._settings = parts.retries.settings
        self._offsets = parts.offsets
        self._guard = parts.guard
        self._on_changed = on_changed

    def is_pop(self, group: str, topic: str) -> bool:
        """Whether the group's members take a topic by POP. Called for each pull."""
        config = self._groups.get(group)
        if config is None or ATTRIBUTE not in config.attributes:
            return False
        return topic in config.attributes[ATTRIBUTE].split(" ")

    async def put(self, connection: Connection, request: Command) -> Command:
        """Code 401: at this replica set. Returns once it is on disk. Raises AerobeeError."""
        wanted = read_mode(request.body)
        group, topic = wanted.group, wanted.topic
        await self._offsets.acting_for(group)
        if topic.startswith(RETRY_PREFIX):
            raise InvalidArgument(
                "a retry topic has no mode: its messages come with those of topics"
            )
        self._guard.topic(topic)
        config = self._groups.get(group)
        text = config.attributes.get(ATTRIBUTE, "") if config is not None else ""
        topics = set(filter(None, text.split(" ")))
        if (topic in topics) == wanted.is_pop:
            return request.answer()
        topics ^= {topic}
        if len(topics) > TOPICS_MAX:
            raise InvalidArgument(
                f"group {group} takes {TOPICS_MAX} topics by POP already; let it pull some again"
            )
        await self._settings.set_attribute(group, ATTRIBUTE, " ".join(sorted(topics)))
        self._on_changed(group, topic)
        return request.answer()
