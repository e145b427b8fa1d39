"""Groups that nobody uses expire.

Owns: the rule.

    it has members                           it is used
    it has committed                         it was used then
    neither is known, as of a group that     it was used when it was first looked at
      was taken over from Apache's broker
    not used for the time of the settings,   it is deleted, with its offsets
      and nothing unread waits for it

Unread messages that a topic keeps for its groups also keep the group, as long as they are in the
log. The time of last use is written to subscriptionGroup.json about once a day, so that restarts
and changes of master do not restart the count. Setting the wall clock forward expires no group:
time is counted as for retention.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.domain.names import is_system_group, is_system_topic
from aerobee.domain.topic_attributes import keep_unread_max_bytes
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.store.engine.retention.steady_time import SteadyTime
from aerobee.store.engine.tables.config_tables import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicTable,
)
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 600.0
FIRST_LOOK_S = 60.0
DAY_MS = 86_400_000
NOTE_INTERVAL_MS = DAY_MS
"""A later use is recorded once it is this much later."""
REMOVE_TIMEOUT_S = 5.0
_GROUPS_PER_TURN = 50


class GroupExpiry:
    """On the loop."""

    def __init__(
        self,
        configs: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        topics: TopicTable,
        coordinator: GroupCoordinator,
        journal: OffsetJournal,
        removal: GroupRemoval,
        clock: Clock,
        *,
        expire_after_ms: int,
        bounds: Callable[[str, int], tuple[int, int]],
    ) -> None:
        """`expire_after_ms`: 0: never. `bounds`: a queue's minimum and maximum offset."""
        self._configs = configs
        self._offsets = offsets
        self._topics = topics
        self._coordinator = coordinator
        self._journal = journal
        self._removal = removal
        self._clock = clock
        self._expire_after_ms = expire_after_ms
        self._bounds = bounds
        noted = (config.last_used_ms for config in configs.configs())
        self._time = SteadyTime(
            clock.now_ms(), clock.monotonic_s(), last_seen_ms=max(noted, default=0)
        )
        self.expired = 0
        """Groups expired since this process began."""

    async def run(self) -> None:
        """Check repeatedly, until cancelled. Raises StoreFailed."""
        pause_s = FIRST_LOOK_S
        while self._expire_after_ms:
            await asyncio.sleep(pause_s)
            pause_s = LOOK_INTERVAL_S
            await self.look()

    async def look(self) -> None:
        """Delete the expired groups. A slave, and a master that cannot know yet who holds what,
        deletes none. A group that cannot be deleted now is left for the next check, and does not
        hold up the others. Raises StoreFailed.
        """
        now_ms = self._time.now_ms(self._clock.now_ms(), self._clock.monotonic_s())
        names = sorted({*self._configs.names(), *self._offsets.groups()})
        for number, group in enumerate(names, 1):
            if number % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
            if not self._may_judge():
                return
            if is_system_group(group) or self._is_in_use(group, now_ms):
                continue
            used_ms = self._note_used(group, self._last_use_ms(group) or now_ms)
            if now_ms - used_ms < self._expire_after_ms or self._has_unread(group):
                continue
            if self._journal.writer().is_changing(group):
                continue  # a commit is on its way
            # Nothing is awaited between the decision and its journal entry.
            await self._end(group, unused_ms=now_ms - used_ms)

    async def _end(self, group: str, *, unused_ms: int) -> None:
        try:
            removed = await self._removal.delete_group(
                group, force=False, timeout_s=REMOVE_TIMEOUT_S, reason="expired"
            )
        except StoreFailed:
            raise
        except AerobeeError as error:
            log_event(
                log,
                "group has expired and cannot be deleted yet",
                level=logging.WARNING,
                group=group,
                reason=error,
            )
            return
        self.expired += 1
        log_event(
            log,
            "group has expired: it was not used",
            group=group,
            days=unused_ms // DAY_MS,
            offsets=len(removed.offsets),
        )

    def _may_judge(self) -> bool:
        is_settled = self._coordinator.ownership.leases.grace_end_s is None
        return self._journal.is_ready and self._coordinator.is_acting() and is_settled

    def _is_in_use(self, group: str, now_ms: int) -> bool:
        coordinator = self._coordinator
        if not (coordinator.members.members(group) or coordinator.ownership.self_assigning(group)):
            return False
        self._note_used(group, now_ms)
        return True

    def _last_use_ms(self, group: str) -> int:
        """According to its commits and to what was recorded; 0: unknown."""
        config, offsets = self._configs.get(group), self._offsets
        changes = [offsets.newest_change_ms(group, topic) for topic in offsets.topics_of(group)]
        return max([0 if config is None else config.last_used_ms, *changes])

    def _note_used(self, group: str, used_ms: int) -> int:
        """Returns the time of last use."""
        config = self._configs.get(group) or SubscriptionGroupConfig(name=group)
        if used_ms - config.last_used_ms >= NOTE_INTERVAL_MS:
            self._configs.put(replace(config, last_used_ms=used_ms))
        return max(used_ms, config.last_used_ms)

    def _has_unread(self, group: str) -> bool:
        """Whether the log has messages that a topic keeps for the group."""
        offsets, topics = self._offsets, self._topics
        for topic in offsets.topics_of(group):
            config = topics.get(topic)
            if config is None or is_system_topic(topic):
                continue
            if keep_unread_max_bytes(config.attributes) == 0:
                continue
            committed = offsets.of_topic(group, topic)
            for queue_id in {*range(config.read_queue_count), *committed}:
                min_offset, max_offset = self._bounds(topic, queue_id)
                if max(committed.get(queue_id, 0), min_offset) < max_offset:
                    return True
        return False
