"""Ends of deleted topics: the master writes them into the log, every replica waits until they are
on its disk.

Owns: which topics that nameservers call deleted still lack their end. Invariant: no topic is served
under a name whose former end is missing; no end is written twice, as the second would end the
topic's next life.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aerobee.broker.cold_reads.read_pool import LOOKUPS, ReadPool
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.offsets.entries import TopicLivesOn
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.runtime.worker import Worker
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.record import Record

log = logging.getLogger(__name__)

RETRY_S = 0.25
"""Pause after an end could not be written."""
_RECORD_BYTES = 64 * 1024


class TopicEnds:
    """On the loop."""

    def __init__(
        self,
        topics: TopicTable,
        state: OffsetJournalState,
        journal: OffsetJournal,
        coordinator: GroupCoordinator,
        store: MessageStore,
        reads: ReadPool,
        clock: Clock,
        *,
        save: Callable[[], Awaitable[None]],
    ) -> None:
        """`save` writes topics.json, if the disk has room."""
        self._topics = topics
        self._state = state
        self._journal = journal
        self._coordinator = coordinator
        self._store = store
        self._reads = reads
        self._clock = clock
        self._save = save
        self._worker = Worker(
            self._end_topics, self._tell, retry_s=RETRY_S, retries_when_woken=True
        )
        self._refused = ""
        """The topic whose end could not be written."""
        # For each topic: the log must be on disk up to here before the applied end is final.
        self._applied: dict[str, int] = {}

    def ended_at_ms(self, topic: str) -> int:
        """When the topic was deleted whose end was last applied under this name; 0: no end was."""
        return self._state.topic_ended_at_ms(topic)

    def wake(self) -> None:
        """A topic may have been deleted, its end applied or written to disk, or the journal may be
        ready for it."""
        if self._topics.ending:
            self._worker.wake()

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        await self._worker.run()

    async def _end_topics(self) -> None:
        """Raises AerobeeError: an end could not be written; the others were."""
        has_changed = False
        refusal: AerobeeError | None = None
        for topic, deleted_at_ms in list(self._topics.ending.items()):
            try:
                if await self._is_over(topic, deleted_at_ms):
                    self._applied.pop(topic, None)
                    self._topics.has_ended(topic, deleted_at_ms)
                    has_changed = True
                    log_event(log, "topic ended", topic=topic)
            except StoreFailed:
                raise
            except AerobeeError as error:
                if refusal is None:
                    self._refused, refusal = topic, error
        if has_changed:
            await self._save()
        if refusal is not None:
            raise refusal

    def _tell(self, error: AerobeeError) -> None:
        log_event(
            log,
            "messages of a deleted topic cannot be removed yet",
            level=logging.WARNING,
            topic=self._refused,
            reason=error,
        )

    async def _is_over(self, topic: str, deleted_at_ms: int) -> bool:
        """Whether nothing is left of what was deleted then. Raises AerobeeError: not yet known."""
        if self.ended_at_ms(topic) >= deleted_at_ms:
            end = self._applied.setdefault(topic, self._store.appended_end)
            return self._store.flushed_end >= end
        if topic not in self._topics and not self._has_anything(topic):
            # Also on slaves, which would otherwise never end it, since the master writes nothing.
            # If a topic of that name is created later, it is announced with this deletion.
            return True
        if not self._journal.is_ready:
            return False  # the master decides
        if self._state.may_lack_end(deleted_at_ms) and await self._is_newer(topic, deleted_at_ms):
            # Slaves cannot tell, and one of them would end this life as the next master.
            lives_on = TopicLivesOn(topic, deleted_at_ms, self._clock.now_ms())
            await asyncio.shield(self._journal.writer().topic_lives_on(lives_on))
            return True
        # Nothing was awaited since the check except what gives the same answer under any master.
        writer = self._journal.writer()
        if self.ended_at_ms(topic) < deleted_at_ms:
            epoch = self._coordinator.ownership.leases.latest_epoch
            await asyncio.shield(writer.end_topic(topic, deleted_at_ms, lease_epoch=epoch))
            self._coordinator.ownership.revoke_topic(topic, "the topic was deleted")
        return True

    def _has_anything(self, topic: str) -> bool:
        return self._store.queues.has_topic(topic) or self._state.has_topic(topic)

    async def _is_newer(self, topic: str, deleted_at_ms: int) -> bool:
        """Whether the topic's messages were all stored after the deletion; not if there is none."""
        position = self._store.reads.first_position(topic)
        if position is None:
            return False

        def store_timestamp_ms() -> int:
            size = int.from_bytes(self._store.log.record_at(position, 4), "big")
            return Record(self._store.log.record_at(position, size), 0, size).store_timestamp_ms

        found = await self._reads.run_in_turn(LOOKUPS, _RECORD_BYTES, store_timestamp_ms)
        return found > deleted_at_ms
