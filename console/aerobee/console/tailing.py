"""The newest messages of a topic as they come, for somebody who looks: no group, no offset.

One look asks each broker once where its queues end, and reads some queues that have grown. So a
tail costs brokers the same however many messages come; what comes faster than it is shown is
skipped, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.message import ReceivedMessage
from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import (
    AccessDenied,
    AerobeeError,
    InvalidArgument,
    TopicNotFound,
    Unauthenticated,
)

QUEUES_PER_LOOK_MAX: Final = 8
MESSAGES_PER_QUEUE_MAX: Final = 5
BEHIND_MAX: Final = 50
"""Messages of a queue; with more to read, the oldest of them are skipped."""
QUEUES_MAX: Final = 1_024
LASTING: Final = (AccessDenied, Unauthenticated, InvalidArgument, TopicNotFound)
"""Waiting does not help."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Which messages are shown."""

    tags: str = "*"
    sql: str = ""
    """In place of tags."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw."""

    messages: Sequence[ReceivedMessage] = ()
    skipped: int = 0
    """At most so many others came, that the filter may or may not let through."""
    unanswered: tuple[str, ...] = ()


class Tail:
    """Owns: how far each queue was read."""

    def __init__(self, admin: AdminClient, topic: str, wish: Wish) -> None:
        self._admin = admin
        self._topic = topic
        self._wish = wish
        self._places: dict[MessageQueue, int] = {}
        self._is_begun = False

    async def look(self) -> Look:
        """What came since the look before; the first look shows nothing. Raises AerobeeError."""
        described = await self._admin.topics.describe(self._topic)
        queues = [each.queue for each in described.queues][:QUEUES_MAX]
        bounds, unanswered = await self._admin.offsets.bounds_by_broker(queues)
        grown = list[MessageQueue]()
        skipped = 0
        for queue, held in bounds.items():
            # A queue that is new, or that did not answer before, is read from its begin.
            place = self._places.setdefault(
                queue, held.min_offset if self._is_begun else held.max_offset_end
            )
            if place > held.max_offset_end:  # the topic was made anew
                place = held.min_offset
            if held.max_offset_end - place > BEHIND_MAX:
                skipped += held.max_offset_end - BEHIND_MAX - place
                place = held.max_offset_end - BEHIND_MAX
            self._places[queue] = place
            if held.max_offset_end > place:
                grown.append(queue)
        self._is_begun = True
        # Those that are furthest behind first, so that no queue waits for long.
        grown.sort(key=lambda each: self._places[each] - bounds[each].max_offset_end)
        messages = list[ReceivedMessage]()
        silent = set(unanswered)
        for queue in grown[:QUEUES_PER_LOOK_MAX]:
            messages += await self._read(queue, silent)
        messages.sort(key=lambda each: each.store_timestamp_ms)
        return Look(messages, skipped, tuple(sorted(silent)))

    async def _read(self, queue: MessageQueue, silent: set[str]) -> Sequence[ReceivedMessage]:
        """Raises one of `LASTING`."""
        try:
            read = await self._admin.messages.from_queue(
                queue,
                self._places[queue],
                max_messages=MESSAGES_PER_QUEUE_MAX,
                tags=self._wish.tags,
                sql=self._wish.sql,
            )
        except LASTING:
            raise
        except AerobeeError:
            silent.add(queue.broker_name)
            return ()
        self._places[queue] = read.next_offset
        return read.messages
