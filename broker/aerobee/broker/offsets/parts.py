"""The parts that know the groups' offsets, put together: journal, members, leases, rules.

Owns: nothing at run time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from aerobee.broker.config import BrokerConfig
from aerobee.broker.flush.table_files import TableFiles
from aerobee.broker.groups.current_run import CurrentRun
from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.group_expiry import DAY_MS, GroupExpiry, GroupTables
from aerobee.broker.groups.known_groups import KnownGroups
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.run_record import LEASES_PATH, RunRecord
from aerobee.broker.journal.log import JournalLog
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.broker.offsets.entries import JOURNAL_TOPIC
from aerobee.broker.offsets.group_removal import GroupRemoval
from aerobee.broker.offsets.journal import OffsetJournal, RunIdentity
from aerobee.broker.offsets.state import OffsetJournalState
from aerobee.broker.offsets.topic_ends import TopicEnds
from aerobee.broker.reading.egress import Egress
from aerobee.broker.reading.queue_reader import QueueReader
from aerobee.broker.reading.read_pool import ReadPool
from aerobee.broker.replication.opening import OpenedFolder
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import PERM_READ, Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.store.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    TopicConfig,
    TopicTable,
)
from aerobee.broker.store.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import StoreFailed


@dataclass(frozen=True, slots=True)
class Groups:
    """What the broker knows of consumer groups."""

    state: CurrentRun
    coordinator: GroupCoordinator
    journal: OffsetJournal
    offsets: ConsumerOffsets
    removal: GroupRemoval
    known: KnownGroups
    expiry: GroupExpiry
    topic_ends: TopicEnds


@dataclass(frozen=True, slots=True)
class Around:
    """The parts that these need."""

    folder: OpenedFolder
    guard: Guard
    roles: Roles
    durability: Durability
    writes: OwnWrites
    egress: Egress
    reads: ReadPool
    queues: QueueReader
    files: TableFiles
    clock: Clock


def assemble_groups(
    config: BrokerConfig,
    around: Around,
    *,
    on_store_failed: Callable[[StoreFailed], None],
) -> Groups:
    """Make every part and hand each the others that it needs."""
    folder, files = around.folder, around.files

    async def save(record: RunRecord) -> None:
        await files.write(LEASES_PATH, record.encode())

    state = CurrentRun(save, on_lease_ended=around.egress.on_lease_ended)
    coordinator = _coordinator(state, around)
    journal_log = JournalLog(
        JOURNAL_TOPIC,
        folder.store,
        around.durability,
        around.roles,
        around.reads,
        around.writes,
        on_store_failed=on_store_failed,
    )

    def on_reset(key: GroupQueue) -> None:
        coordinator.ownership.revoke(key, "the group's offset on this queue was reset or deleted")

    def on_term() -> None:
        _begin_granting(state, coordinator)

    journal_state = OffsetJournalState(
        folder.offsets,
        journal_end=journal_log.records_end,
        now_ms=around.clock.now_ms(),
        on_group_removed=folder.groups.remove,
    )
    journal = OffsetJournal(
        journal_state,
        journal_log,
        state,
        around.clock,
        roles=_Role(around.roles),
        run=RunIdentity(
            folder.this_run.boot_id,
            config.broker_id,
            folder.previous_run,
            folder.this_run.run_number,
        ),
        image_interval_bytes=config.store.segment_bytes,
        on_reset=on_reset,
        on_term=on_term,
    )
    around.roles.watchers.append(journal.role_changed)
    state.attach(journal.write_lease)
    files.add(
        CONSUMER_OFFSETS_PATH,
        folder.offsets,
        on_saved=lambda: _tell_saved(journal, folder.offsets),
    )
    _add_journal_topic(folder.topics)
    return _with_rules(config, around, state, coordinator, journal, journal_state)


def _with_rules(
    config: BrokerConfig,
    around: Around,
    state: CurrentRun,
    coordinator: GroupCoordinator,
    journal: OffsetJournal,
    journal_state: OffsetJournalState,
) -> Groups:
    """What may be committed, which groups there may be, and how they end."""
    folder = around.folder
    known = KnownGroups(folder.groups, folder.offsets, groups_max=config.groups.max)
    offsets = ConsumerOffsets(
        folder.offsets,
        journal,
        coordinator,
        around.guard,
        around.clock,
        queue_max=around.queues.max_offset,
        admit=known.admit,
    )
    removal = _removal(around, journal, coordinator)
    expiry = GroupExpiry(
        GroupTables(folder.groups, folder.offsets, folder.topics),
        coordinator,
        journal,
        removal,
        around.clock,
        expire_after_ms=config.groups.expire_after_days * DAY_MS,
        bounds=around.queues.bounds,
    )
    topic_ends = TopicEnds(
        folder.topics,
        journal_state,
        journal,
        coordinator,
        folder.store,
        around.reads,
        around.clock,
        save=lambda: around.files.save_if_room(TOPICS_PATH),
    )
    return Groups(state, coordinator, journal, offsets, removal, known, expiry, topic_ends)


def _tell_saved(journal: OffsetJournal, table: ConsumerOffsetTable) -> None:
    if table.rendered_mark is not None:
        journal.saved(table.rendered_mark.next_offset)


def _add_journal_topic(topics: TopicTable) -> None:
    if JOURNAL_TOPIC not in topics:
        topics.put(
            TopicConfig(name=JOURNAL_TOPIC, read_queue_count=1, write_queue_count=1, perm=PERM_READ)
        )


def _removal(around: Around, journal: OffsetJournal, coordinator: GroupCoordinator) -> GroupRemoval:
    async def save_configs() -> None:
        await around.files.save_if_room(SUBSCRIPTION_GROUPS_PATH)

    return GroupRemoval(
        around.folder.offsets,
        around.folder.groups,
        journal,
        coordinator,
        around.clock,
        save_configs=save_configs,
    )


class _Role:
    """This replica's role as the journal asks for it."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    @property
    def master_epoch(self) -> int | None:
        term = self._roles.term
        return None if term is None else term.epoch

    def is_unclean(self, epoch: int) -> bool:
        group = self._roles.replica_set
        return group is not None and epoch in group.unclean_epochs


def _coordinator(state: CurrentRun, around: Around) -> GroupCoordinator:
    """Changes of membership are told once per turn of this loop."""
    loop = asyncio.get_running_loop()

    def push_views_soon() -> None:
        loop.call_soon(coordinator.membership.push_views)

    coordinator = GroupCoordinator(
        state.members,
        state.ownership,
        on_views_changed=push_views_soon,
        is_acting=around.roles.may_act,
    )
    return coordinator


def _begin_granting(state: CurrentRun, coordinator: GroupCoordinator) -> None:
    if state.views_held_back_s > 0:
        coordinator.membership.hold_views_back()
        asyncio.get_running_loop().call_later(
            state.views_held_back_s, coordinator.membership.release_views
        )
