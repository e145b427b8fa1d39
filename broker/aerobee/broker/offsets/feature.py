"""What groups have consumed: a feature, put together from its parts.

The offset journal, what may be committed, and how groups and topics end. Every other feature that
consumes commits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.config import BrokerConfig
from aerobee.broker.features import Feature, Task
from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.known_groups import KnownGroups
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.journal.log import JournalLog
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.offsets.group_expiry import DAY_MS, GroupExpiry
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.offsets.journal import OffsetJournal, RunIdentity
from aerobee.broker.offsets.opening import forget_offsets
from aerobee.broker.offsets.snapshot_order import flush_what_was_sent_back
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.offsets.topic_ends import TopicEnds
from aerobee.broker.opened import OpenedFolder
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.replication.roles import Roles
from aerobee.broker.retention.holds import JournalHold
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import StoreFailed
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
)
from aerobee.store.flush.flush_thread import FlushThread
from aerobee.store.flush.table_files import TableFiles


class Parts(Protocol):
    """What the groups' progress needs of the broker."""

    config: BrokerConfig
    clock: Clock
    folder: OpenedFolder
    store: MessageStore
    guard: Guard
    roles: Roles
    durability: Durability
    flush: FlushThread
    writes: OwnWrites
    reads: ReadPool
    queues: QueueReader
    files: TableFiles
    on_store_failed: Callable[[StoreFailed], None]
    current_run: CurrentRun


class Progress(Feature):
    """On the loop."""

    @classmethod
    def own_topics(cls, config: StoreConfig) -> Mapping[str, int]:
        return {JOURNAL_TOPIC: 1}

    @classmethod
    def forget(cls, disk: Disk, position: int) -> None:
        forget_offsets(disk, position)

    def __init__(self, parts: Parts, opened: None) -> None:
        config, folder, clock, files = parts.config, parts.folder, parts.clock, parts.files
        self._on_offset_set: list[Callable[[GroupQueue], None]] = []
        self._on_granting: list[Callable[[], None]] = []
        self.coordinator = GroupCoordinator(
            parts.current_run.members,
            parts.current_run.ownership,
            call_soon=asyncio.get_running_loop().call_soon,
            is_acting=parts.roles.may_act,
        )
        self._wire_journal(parts)
        self.known = KnownGroups(folder.groups, folder.offsets, groups_max=config.groups.max)
        self.offsets = ConsumerOffsets(
            folder.offsets,
            self.journal,
            self.coordinator,
            parts.guard,
            clock,
            queue_max=parts.queues.max_offset,
            admit=self.known.admit,
        )
        self.removal = GroupRemoval(
            folder.offsets,
            folder.groups,
            self.journal,
            self.coordinator,
            clock,
            save_configs=partial(files.save_if_room, SUBSCRIPTION_GROUPS_PATH),
        )
        self.expiry = GroupExpiry(
            folder.groups,
            folder.offsets,
            folder.topics,
            self.coordinator,
            self.journal,
            self.removal,
            clock,
            expire_after_ms=config.groups.expire_after_days * DAY_MS,
            bounds=parts.queues.bounds,
        )
        self.topic_ends = TopicEnds(
            folder.topics,
            self.state,
            self.journal,
            self.coordinator,
            parts.store,
            parts.reads,
            clock,
            save=partial(files.save_if_room, TOPICS_PATH),
        )
        self.state.on_topic_ended = self.topic_ends.wake
        parts.flush.on_flushed(lambda _: self.topic_ends.wake())
        # A slave learns of deleted topics from its master's table.
        files.on_written(lambda _: self.topic_ends.wake())
        self.on_granting(self.topic_ends.wake)

    def _wire_journal(self, parts: Parts) -> None:
        config, folder, run = parts.config, parts.folder, parts.folder.this_run
        journal_log = JournalLog(
            JOURNAL_TOPIC,
            parts.store,
            parts.durability,
            parts.roles,
            parts.reads,
            parts.writes,
            on_store_failed=parts.on_store_failed,
        )
        self.state = OffsetJournalState(
            folder.offsets,
            journal_end=journal_log.records_end,
            now_ms=parts.clock.now_ms(),
            on_group_removed=folder.groups.remove,
        )
        self.state.on_kept_from(parts.store.queues.keep_from)
        self.journal: OffsetJournal = OffsetJournal(
            self.state,
            journal_log,
            parts.current_run,
            parts.clock,
            run=RunIdentity(
                run.boot_id, config.broker_id, folder.previous_run, run_number_min=run.run_number
            ),
            image_interval_bytes=config.store.segment_bytes,
            on_reset=self._offset_set,
            on_term=self._granting,
        )
        parts.files.add(
            CONSUMER_OFFSETS_PATH,
            folder.offsets,
            on_saved=self.journal.on_table_saved,
            before_write=partial(flush_what_was_sent_back, self.state, parts.durability),
        )
        save = partial(parts.files.save_if_room, CONSUMER_OFFSETS_PATH)
        self.holds = (JournalHold(self.journal, save),)

    def on_offset_set(self, told: Callable[[GroupQueue], None]) -> None:
        """Call this once a group's offset on a queue was set or removed on this master."""
        self._on_offset_set.append(told)

    def on_granting(self, told: Callable[[], None]) -> None:
        """Call this once the offsets are known to a new master."""
        self._on_granting.append(told)

    def tasks(self) -> Mapping[str, Task]:
        return {
            "offset-journal": self.journal.run,
            "group-expiry": self.expiry.run,
            "topic-ends": self.topic_ends.run,
        }

    def _offset_set(self, key: GroupQueue) -> None:
        self.coordinator.ownership.revoke(key)
        for told in self._on_offset_set:
            told(key)

    def _granting(self, views_held_back_s: float) -> None:
        for told in self._on_granting:
            told()
        self.coordinator.begin_run(views_held_back_s)
