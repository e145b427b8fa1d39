"""Lets topics keep their messages for a shorter time than the log, or fewer bytes of them.

    due topics -> search, on the upkeep thread -> an entry of the offset journal -> it is confirmed:
    the queue begins there, here and on every replica

Owns: when each topic is looked at, and what was summed of its queues. Where a queue begins is the
offset of a group of the brokers' own, so it is confirmed before it is in effect, never moves back,
and is there after a restart and under every next master. Only a master moves it. Messages that
groups lose unread are counted and logged as those of a removed segment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from aerobee.broker.retention.cleaning import tell_unread
from aerobee.broker.retention.holds import Upkeep
from aerobee.broker.retention.unread_readers import UnreadReaders
from aerobee.domain.names import is_retry_topic, is_system_topic
from aerobee.domain.topic_attributes import keep_bytes, keep_ms
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, ShuttingDown, StoreFailed
from aerobee.runtime.log import log_event
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.queues.queue_set import QueueName
from aerobee.store.engine.retention.kept_search import KeptRule, KeptSearch, SummedBytes
from aerobee.store.engine.retention.retention_statistics import Because, UnreadRemoval
from aerobee.store.engine.retention.unread_search import QueueReaders, removed_unread
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable

log = logging.getLogger(__name__)

SEARCHES_MAX: Final = 2_000
"""Searches of one round; topics that it does not reach come first in the next."""
_SEARCHES_AT_ONCE: Final = 32
_NAMES_PER_TURN: Final = 1_000
_PAUSE_MAX_S: Final = 600.0
_PAUSE_FOR_BYTES_S: Final = 60.0


class Beginnings(Protocol):
    """Where it is noted from which message on a queue is kept."""

    @property
    def is_ready(self) -> bool:
        """Whether this broker is a master that may note it."""
        ...

    def keep_from(self, topic: str, queue_id: int, offset: int) -> asyncio.Future[None] | None:
        """Done when it is in effect; None: the topic is ending. Raises AerobeeError."""
        ...


@dataclass(slots=True)
class _Topic:
    looked_at_s: float = float("-inf")
    summed: dict[int, SummedBytes] = field(default_factory=dict)
    """By queue."""


class _Searches:
    """Several in one work, so that checkpoints wait for few."""

    def __init__(self, searches: Sequence[KeptSearch]) -> None:
        self._searches = searches

    def run(self) -> None:
        """[any thread]"""
        for search in self._searches:
            search.run()


def pause_s(config: TopicConfig, interval_s: float) -> float:
    """How long after it was looked at a topic is due: a hundredth of what it keeps, so that its
    queues' beginnings are moved about a hundred times while a message is kept, and not more often
    than retention runs."""
    pauses_s = []
    if (kept_ms := keep_ms(config.attributes)) is not None:
        pauses_s.append(min(kept_ms / 100_000, _PAUSE_MAX_S))
    if keep_bytes(config.attributes) is not None:
        pauses_s.append(_PAUSE_FOR_BYTES_S)
    return max(interval_s, min(pauses_s))


class TopicKeeping:
    """On the loop."""

    def __init__(
        self,
        topics: TopicTable,
        store: MessageStore,
        beginnings: Beginnings,
        readers: UnreadReaders,
        clock: Clock,
        upkeep: Upkeep,
        *,
        interval_ms: int,
    ) -> None:
        """`upkeep` runs a work on the thread that writes the store's derived files. No topic is
        looked at twice within `interval_ms`."""
        self._topics = topics
        self._store = store
        self._beginnings = beginnings
        self._readers = readers
        self._clock = clock
        self._interval_s = interval_ms / 1_000
        self._upkeep = upkeep
        self._known: dict[str, _Topic] = {}
        self._troubles: dict[QueueName, str] = {}

    async def run(self) -> None:
        """Look at topics repeatedly, until cancelled.

        Raises:
            StoreFailed: the disk failed.
        """
        trouble = ""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.look()
            except ShuttingDown:
                return
            except StoreFailed:
                raise
            except AerobeeError as error:
                if str(error) != trouble:
                    log_event(
                        log,
                        "what topics no longer keep cannot be noted yet",
                        level=logging.WARNING,
                        reason=error,
                    )
                trouble = str(error)
            else:
                trouble = ""

    async def look(self) -> None:
        """One round over the topics that are due.

        Raises:
            AerobeeError: it could not be noted, or not all; the next round tries again.
        """
        if not self._beginnings.is_ready:
            self._known.clear()
            return
        left = SEARCHES_MAX
        for name in await self._due():
            left = await self._keep(name, left)
            if left <= 0:
                return

    async def _due(self) -> list[str]:
        """Those that were not looked at for longest first."""
        now_s, due = self._clock.monotonic_s(), []
        known: dict[str, _Topic] = {}
        for number, name in enumerate(list(self._topics), start=1):
            config = self._topics.get(name)
            if config is not None and is_kept_shorter(config):
                topic = known[name] = self._known.get(name, _Topic())
                if now_s - topic.looked_at_s >= pause_s(config, self._interval_s):
                    due.append(name)
            if number % _NAMES_PER_TURN == 0:
                await asyncio.sleep(0)
        self._known = known
        return sorted(due, key=lambda name: known[name].looked_at_s)

    async def _keep(self, name: str, left: int) -> int:
        """Moves the beginnings of one topic's queues; returns how many searches are left then."""
        known, now_ms = self._known[name], self._store.retention.steady_now_ms()
        looked_at_s = self._clock.monotonic_s()
        queue_ids = [queue.queue_id for queue in self._store.queues.of_topic(name)]
        known.summed = {each: known.summed.get(each, SummedBytes()) for each in queue_ids}
        while queue_ids and left > 0:
            again: list[int] = []
            for first in range(0, len(queue_ids), _SEARCHES_AT_ONCE):
                some = queue_ids[first : first + _SEARCHES_AT_ONCE]
                searches = list(self._searches(name, some, known, now_ms))
                left -= len(searches)
                await self._upkeep(_Searches(searches))
                await self._note(searches)
                for search in searches:
                    known.summed[search.queue_id] = search.summed
                    self._tell_trouble(search)
                again += [search.queue_id for search in searches if search.has_more]
            queue_ids = again
        if not queue_ids:
            known.looked_at_s = looked_at_s
        return left

    def _searches(
        self, name: str, queue_ids: Sequence[int], known: _Topic, now_ms: int
    ) -> Iterator[KeptSearch]:
        config = self._topics.get(name)
        if config is None:
            return  # deleted meanwhile
        kept_ms = keep_ms(config.attributes)
        rule = KeptRule(
            None if kept_ms is None else now_ms - kept_ms, keep_bytes(config.attributes)
        )
        for queue_id in queue_ids:
            queue = self._store.queues.get(name, queue_id)
            if queue is not None and queue.served_from < queue.end and not queue.damage:
                summed = known.summed[queue_id]
                yield self._store.reads.kept_search(queue, rule, summed)

    async def _note(self, searches: Sequence[KeptSearch]) -> None:
        """Returns once it is in effect. Raises AerobeeError."""
        moves: list[tuple[asyncio.Future[None], list[QueueReaders], QueueName, int]] = []
        for search in searches:
            name = search.topic, search.queue_id
            before = self._begin(name)
            is_of_former_life = search.queue is not self._store.queues.get(*name)
            if search.found <= before or is_of_former_life:
                continue
            if (done := self._beginnings.keep_from(*name, search.found)) is not None:
                moves.append((done, self._readers.of_queue(*name), name, before))
        if not moves:
            return
        await asyncio.wait([done for done, *_ in moves])
        losses: list[UnreadRemoval] = []
        for done, readers, name, before in moves:
            if done.exception() is None:
                for each in self._readers.refresh(readers):
                    losses += removed_unread(each, before, self._begin(name), because=Because.TOPIC)
        self._store.retention.lose(losses)
        tell_unread(losses)
        for done, *_ in moves:
            done.result()

    def _begin(self, name: QueueName) -> int:
        return self._store.queues.bounds(*name).min_offset

    def _tell_trouble(self, search: KeptSearch) -> None:
        """Once for each cause."""
        name, trouble = (search.topic, search.queue_id), search.trouble
        if trouble is None:
            self._troubles.pop(name, None)
        elif self._troubles.get(name) != str(trouble):
            self._troubles[name] = str(trouble)
            log_event(
                log,
                "a queue keeps everything, because it cannot be read",
                level=logging.WARNING,
                topic=search.topic,
                queue_id=search.queue_id,
                reason=trouble,
            )


def is_kept_shorter(config: TopicConfig) -> bool:
    """Whether the topic says what it keeps. Brokers need all of their own topics, and groups all of
    their retry topics and dead letters."""
    attributes = config.attributes
    if is_system_topic(config.name) or is_retry_topic(config.name):
        return False
    return keep_ms(attributes) is not None or keep_bytes(attributes) is not None
