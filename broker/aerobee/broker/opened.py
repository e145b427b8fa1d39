"""What opening a broker's folder returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aerobee.broker.groups.run_record import RunRecord
from aerobee.broker.replication.replica_folder import OpenedReplica
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import (
    ConsumerOffsetTable,
    SubscriptionGroupTable,
    TopicTable,
)


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """Everything that the folder holds. `features`: what each of them opened, by its class."""

    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    features: Mapping[Any, Any]
    previous_run: RunRecord
    this_run: RunRecord


@dataclass(frozen=True, slots=True)
class Opened:
    """The folder's content, and the identity of this run of the replica."""

    folder: OpenedFolder
    replica: OpenedReplica
