"""Where a stored message is now, group by group: waiting, finished, to be tried again, or dead.

Only looks: offsets, indexes and lists are asked for, and no group is joined. What cannot be asked
is said to be unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.group_summaries import GroupSummary
from aerobee.client_core.message import ReceivedMessage
from aerobee.client_core.messages import FoundMessages
from aerobee.client_core.schedules import WaitingMessage
from aerobee.console.words import counted
from aerobee.domain.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from aerobee.runtime.errors import AerobeeError, TopicNotFound

GROUPS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Of one message, for one group."""

    group: str
    state: str
    """`waiting`, `finished`, `retry`, `dead` or `unknown`."""
    text: str
    at_ms: int = 0
    """When that was, or will be; 0: no time belongs to it."""


async def whereabouts(
    admin: AdminClient, message: ReceivedMessage
) -> tuple[list[Whereabouts], int]:
    """For each group that reads the topic; and how many further groups were left out.

    Raises AerobeeError: which groups read it cannot be asked.
    """
    topic = message.topic
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        return [], 0
    groups = (await admin.groups.summaries(topic=topic)).groups
    some = groups[:GROUPS_MAX]
    due = await _due(admin, message)
    found = await asyncio.gather(*(_for_group(admin, message, each, due) for each in some))
    return list(found), len(groups) - len(some)


async def _due(admin: AdminClient, message: ReceivedMessage) -> Sequence[WaitingMessage]:
    """Its copies that wait for a time. A user who may not see all topics gets none."""
    try:
        return (await admin.schedules.list(key=message.message_id)).messages
    except AerobeeError:
        return ()


async def _for_group(
    admin: AdminClient,
    message: ReceivedMessage,
    group: GroupSummary,
    due: Sequence[WaitingMessage],
) -> Whereabouts:
    name = group.name
    for waiting in due:
        if waiting.queue.topic == RETRY_PREFIX + name:
            text = "failed, and waits for its next attempt"
            return Whereabouts(name, "retry", text, waiting.deliver_ms)
    try:
        if dead := await _copies(admin, DEAD_LETTER_PREFIX + name, message):
            text = "failed too often and became a dead letter"
            return Whereabouts(name, "dead", text, dead[0].store_timestamp_ms)
        retried = await _copies(admin, RETRY_PREFIX + name, message)
        if retried:
            return await _of_copy(admin, name, retried[0])
        return await _by_offset(admin, group, message)
    except AerobeeError as error:
        return Whereabouts(name, "unknown", str(error))


async def _copies(
    admin: AdminClient, topic: str, message: ReceivedMessage
) -> Sequence[ReceivedMessage]:
    """Newest first. Raises AerobeeError, also if a broker does not answer."""
    try:
        found: FoundMessages = await admin.messages.by_unique_key(topic, message.message_id)
    except TopicNotFound:
        return ()
    return found.messages


async def _of_copy(admin: AdminClient, name: str, copy: ReceivedMessage) -> Whereabouts:
    """The newest copy in the group's retry topic."""
    attempts = counted(copy.reconsume_times, "time")
    committed = (await admin.offsets.committed(name, [copy.queue]))[copy.queue]
    if committed is not None and copy.queue_offset < committed:
        text = f"failed {attempts}, was then delivered again, and is finished"
        return Whereabouts(name, "finished", text)
    text = f"failed {attempts}, and is about to be delivered again"
    return Whereabouts(name, "retry", text, copy.store_timestamp_ms)


async def _by_offset(
    admin: AdminClient, group: GroupSummary, message: ReceivedMessage
) -> Whereabouts:
    name, offset = group.name, message.queue_offset
    committed = (await admin.offsets.committed(name, [message.queue]))[message.queue]
    if committed is None:
        text = "the group has not committed anything on this queue"
        return Whereabouts(name, "unknown", text)
    if offset < committed:
        return Whereabouts(name, "finished", f"finished: the group is at offset {committed:,}")
    before = offset - committed
    text = "the next that the group reads of this queue, or in its hands now"
    if before:
        text = f"not finished: {counted(before, 'message')} of this queue before it"
    if not group.members:
        text = f"{text}; no member is connected"
    return Whereabouts(name, "waiting", text)
