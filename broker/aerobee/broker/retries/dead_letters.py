"""Operators settle dead letters: a letter is resent or dropped.

Owns: which queue a resent letter goes to. A settled letter is finished for a group of the broker's
own, in the way that members finish messages out of order; a list of letters is what that group
would read. So a letter is resent exactly once, whatever fails, and stays in the log until retention
removes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aerobee.broker.groups.ownership import NOBODYS
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.offsets.sent_back import FinishedBeyond, Resend
from aerobee.broker.retries.send_backs import (
    FINISHED_RANGES_MAX,
    Claims,
    SendBacks,
    Sender,
    SentBackMessage,
)
from aerobee.broker.sending.guard import Guard
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, InvalidArgument, TopicNotFound
from aerobee.store.engine.tables.finished_ranges import Range
from aerobee.store.format.dead_letter_fields import (
    RETRY_PREFIX,
    GroupNameTooLong,
    dead_letter_topic,
    origin_of,
)
from aerobee.store.format.record_view import Record
from aerobee.store.format.retry_records import RESENDS_KEPT_MAX

SETTLED_BY: Final = "CID_RMQ_SYS_DEAD_LETTERS"
"""The group that finishes settled letters. Groups with this prefix do not expire."""


class DeadLetters:
    """On the loop."""

    def __init__(
        self,
        send_backs: SendBacks,
        claims: Claims,
        guard: Guard,
        clock: Clock,
        *,
        queue_max: Callable[[str, int], int],
        make_topics: Callable[[str], Awaitable[None]],
        reads_retries: Callable[[str], bool],
    ) -> None:
        """`queue_max`: a queue's maximum offset. `make_topics`: a group's retry topic is there
        afterwards. `reads_retries`: whether a group is known to read it."""
        self._send_backs = send_backs
        self._claims = claims
        self._guard = guard
        self._clock = clock
        self._queue_max = queue_max
        self._make_topics = make_topics
        self._reads_retries = reads_retries

    async def resend(
        self, group: str, offsets: Sequence[int], *, topic: str, resends_max: int
    ) -> list[SentBackMessage]:
        """Resend letters of the group: to `topic` or, if that is empty, to their original topic.
        From the group's retry topic only this group gets them. Each answer has its own error, or
        takes effect when it is `done`.

        Raises AerobeeError: nothing was sent.
        """
        if not 0 < resends_max <= RESENDS_KEPT_MAX:
            raise InvalidArgument(
                f"a dead letter can be resent the same way 1 to {RESENDS_KEPT_MAX} times, not "
                f"{resends_max}"
            )
        sender = Sender(_key(group), NOBODYS, "")
        is_to_group = topic == RETRY_PREFIX + group
        if is_to_group and not self._reads_retries(group):
            raise InvalidArgument(
                f"nobody is known to read the retry topic of group {group}: its listeners are "
                "ordered, or keep their retries to themselves, or it has no member now; send its "
                "letters to their topics with --to-all-groups, or start a member first"
            )
        if is_to_group:
            await self._make_topics(group)

        def way_of(offset: int, record: Record) -> Resend:
            origin = origin_of(record)
            if origin.topic == record.topic and (is_to_group or not topic):
                raise InvalidArgument(
                    f"the message at offset {offset} of {record.topic} has no origin: somebody "
                    "sent it straight there; drop it, or name a topic for it"
                )
            target = topic or origin.topic
            queues = self._guard.write_queues(target)
            if not queues:
                raise TopicNotFound(
                    f"the letter at offset {offset} is for topic {target}, which has no queues at "
                    "this broker: name another topic"
                )
            if is_to_group:
                self._guard.check_append(target, 0)
                return Resend(target, 0, resends_max)
            queue_id = origin.queue_id if 0 <= origin.queue_id < queues else offset % queues
            self._guard.check_append(target, queue_id)
            return Resend(target, queue_id, resends_max)

        return await self._send_backs.replace(sender, offsets, way_of)

    def drop(self, group: str, offsets: Sequence[int]) -> list[SentBackMessage]:
        """Letters of the group are no longer listed. As `resend`."""
        key = _key(group)
        self._guard.check_master()
        writer = self._claims.claimed(key, NOBODYS)
        end = self._queue_max(key.topic, key.queue_id)
        dropped = sorted({offset for offset in offsets if 0 <= offset < end})
        if writer.finished_count(key) + len(dropped) > FINISHED_RANGES_MAX:
            raise Busy(
                f"{FINISHED_RANGES_MAX} dead letters of group {group} are settled between "
                "unsettled ones: resend or drop the older ones first"
            )
        done = None
        if dropped:
            ranges = tuple(Range(offset, offset + 1) for offset in dropped)
            done = writer.finish_beyond(FinishedBeyond(key, ranges, self._clock.now_ms()))
        return [
            SentBackMessage(offset, done=done)
            if offset in dropped
            else SentBackMessage(
                offset, InvalidArgument(f"there is no dead letter at offset {offset}")
            )
            for offset in offsets
        ]


def _key(group: str) -> GroupQueue:
    try:
        return GroupQueue(SETTLED_BY, dead_letter_topic(group), 0)
    except GroupNameTooLong as error:
        raise InvalidArgument(str(error)) from None
