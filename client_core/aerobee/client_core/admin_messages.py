"""Single messages, as `AdminClient.messages` finds them."""

from __future__ import annotations

from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.messages import (
    FOUND_MESSAGES_MAX,
    FoundMessages,
    Messages,
    QueueMessages,
)
from aerobee.cluster_view.route import MessageQueue


class MessageAdmin:
    """Messages by id, key and place. Every call may raise Unreachable, DeadlineExceeded,
    NoBrokerAvailable and AccessDenied; nothing is committed."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    async def by_id(self, message_id: str) -> ReceivedMessage:
        """The message with an `offset_message_id`. Raises MessageNotFound, MessageIllegal."""
        return await self._messages.by_id(message_id)

    async def by_offset(self, broker_name: str, physical_offset: int) -> ReceivedMessage:
        """The message at a place of a broker group's log. Raises MessageNotFound."""
        return await self._messages.by_offset(broker_name, physical_offset)

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        max_messages: int = FOUND_MESSAGES_MAX,
    ) -> FoundMessages:
        """Messages that carry the key, newest first, at most 64. `begin_ms` and `end_ms` bound the
        store time, both inclusive; 0 leaves a side open. Raises TopicNotFound."""
        return await self._messages.by_key(
            topic, key, begin_ms=begin_ms, end_ms=end_ms, max_messages=max_messages
        )

    async def by_unique_key(
        self,
        topic: str,
        unique_key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        max_messages: int = FOUND_MESSAGES_MAX,
    ) -> FoundMessages:
        """The message to which its producer gave this id; several if it was sent again. As
        `by_key`."""
        return await self._messages.by_unique_key(
            topic, unique_key, begin_ms=begin_ms, end_ms=end_ms, max_messages=max_messages
        )

    async def from_queue(
        self, queue: MessageQueue, offset: int, *, max_messages: int = 0
    ) -> QueueMessages:
        """Messages of a queue from an offset on, at most a mebibyte; 0: as many as fit. An offset
        that the queue does not have gives none, and the nearest one to read on. Raises
        TopicNotFound, QueueNotFound."""
        return await self._messages.from_queue(queue, offset, messages_max=max_messages)
