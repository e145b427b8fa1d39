"""What opening a broker's folder returns."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.broker.delayed.opening import OpenedDelays
from aerobee.broker.groups.run_record import RunRecord
from aerobee.broker.pop.journal_state import PopJournalState
from aerobee.broker.replication.replica_folder import OpenedReplica
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import (
    ConsumerOffsetTable,
    SubscriptionGroupTable,
    TopicTable,
)


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """Everything that the folder holds."""

    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    delays: OpenedDelays
    pops: PopJournalState
    previous_run: RunRecord
    this_run: RunRecord


@dataclass(frozen=True, slots=True)
class Opened:
    """The folder's content, and the identity of this run of the replica."""

    folder: OpenedFolder
    replica: OpenedReplica
