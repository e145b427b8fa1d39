"""Sending back: a feature, put together from its parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol

from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Feature, Task
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.known_groups import KnownGroups
from aerobee.broker.groups.ownership import Owner
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.journal import OffsetJournal
from aerobee.broker.offsets.sent_back import SentBack
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.retention.holds import Hold, Need, Upkeep
from aerobee.broker.retries.dead_letters import DeadLetters
from aerobee.broker.retries.send_backs import SendBacks
from aerobee.broker.retries.settings import RetrySettings
from aerobee.broker.retries.topics import RetryTopics
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.runtime.clock import Clock
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.retention.retention_ledger import Candidate, RetentionLedger
from aerobee.store.engine.retention.unread_search import QueueReaders
from aerobee.store.engine.tables.config_tables import (
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    SubscriptionGroupTable,
    TopicTable,
)
from aerobee.store.flush.table_files import TableFiles
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.delay_levels import DelayLevels


class Receivers(Protocol):
    """Apache's clients; `rocketmq_api.clients.table.ClientTable` is one."""

    def members(self, group: str) -> Collection[object]:
        """Those known to be in a group."""
        ...


class Parts(Protocol):
    """What sending back needs of the broker."""

    config: BrokerConfig
    clock: Clock
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    guard: Guard
    writes: OwnWrites
    queues: QueueReader
    files: TableFiles
    known: KnownGroups
    coordinator: GroupCoordinator
    journal: OffsetJournal
    journal_state: OffsetJournalState
    offsets: ConsumerOffsets
    on_dead_letters: Callable[[str, str, int], None]
    """Gets a group, a topic, and how many of its messages died."""

    @property
    def clients(self) -> Receivers: ...


class Retries(Feature):
    """On the loop."""

    def __init__(self, parts: Parts, opened: None = None) -> None:
        self._parts = parts
        self.topics = RetryTopics(parts.topics, partial(parts.files.save_if_room, TOPICS_PATH))
        levels = DelayLevels(parts.config.store.delay_levels_ms)
        save_groups = partial(parts.files.save, SUBSCRIPTION_GROUPS_PATH)
        self.settings = RetrySettings(parts.groups, parts.known.admit, save_groups, levels)
        self.holds = (OpenCopiesHold(self._open_copies, parts.store.retention),)
        self.send_backs = SendBacks(
            parts.offsets,
            parts.writes,
            parts.clock,
            term=lambda: parts.journal.term,
            standing=parts.store.producers.windows.standing,
            # The message was handed out: that its topic keeps it no longer does not lose it.
            read_original=lambda key, offset: parts.queues.record(
                key.topic, key.queue_id, offset, even_unkept=True
            ),
            policy_of=self.settings.policy,
            levels=levels,
            check=parts.guard.check_master,
            prepare=self.topics.make,
            on_dead=lambda key, count: parts.on_dead_letters(key.group, key.topic, count),
        )
        self.dead_letters = DeadLetters(
            self.send_backs,
            parts.offsets,
            parts.guard,
            parts.clock,
            queue_max=parts.queues.max_offset,
            make_topics=self.topics.make,
            reads_retries=self._reads_retries,
        )

    def tasks(self) -> Mapping[str, Task]:
        return {"send-backs": self.send_backs.run}

    def _reads_retries(self, group: str) -> bool:
        """A group whose members send back commits there from its beginning on; each poll of POP
        takes from it, unless the group is ordered."""
        committed = [key for key, _ in self._parts.offsets.of_group(group)]
        if any(key.topic.startswith(RETRY_PREFIX) for key in committed):
            return True
        if self.settings.policy(group).is_ordered:
            return False
        owner = self._parts.coordinator.ownership.owner
        return bool(self._parts.clients.members(group)) or any(
            owner(key) is Owner.POP for key in committed
        )

    def _open_copies(self) -> Iterator[SentBack]:
        """What is confirmed, and what a master has begun."""
        yield from self._parts.journal_state.open_copies
        if (term := self._parts.journal.term) is not None:
            yield from term.owed_copies()


class OpenCopiesHold(Hold):
    """The original of a message that was sent back is needed until its copy is in the log."""

    def __init__(
        self, open_copies: Callable[[], Iterable[SentBack]], retention: RetentionLedger
    ) -> None:
        self._open_copies = open_copies
        self._retention = retention
        self._asked: frozenset[int] = frozenset()

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        found = list(self._open_copies())
        self._asked = frozenset(entry.number for entry in found)
        if not found:
            return None
        originals = (
            QueueReaders(entry.key.topic, entry.key.queue_id, {entry.key.group: entry.offset})
            for entry in found
        )
        search = self._retention.take_search(candidate, originals)
        await upkeep(search)
        holding = self._retention.finish_search(search)
        if holding is None:
            return None
        return Need(
            holding.position,
            f"copies of messages that group {holding.readers.slowest} sent back are being written; "
            "their originals are removed after that",
        )

    def changed(self) -> str:
        if all(entry.number in self._asked for entry in self._open_copies()):
            return ""
        return "messages were sent back while the log was searched for others"
