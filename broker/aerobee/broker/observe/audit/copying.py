"""Copies of a broker's large tables: committed offsets, and the ends of its queues.

Each is taken in steps of a few milliseconds, between which the loop serves others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from aerobee.broker.observe.audit.rows import UNKNOWN, CommitRows, QueueRows
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.engine.tables.consumer_offset_table import ConsumerOffsetTable
from aerobee.store.engine.tables.last_changes import LastChange

QUEUES_PER_TURN = 5_000
NAMES_PER_TURN = 500
"""How many names are processed in one step, whatever they have."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which topics and groups are wanted; empty: all."""

    topics: Collection[str] = ()
    groups: Collection[str] = ()

    def has_topic(self, topic: str) -> bool:
        return not self.topics or topic in self.topics

    def has_group(self, group: str) -> bool:
        return not self.groups or group in self.groups


async def copy_commits(table: ConsumerOffsetTable, chosen: Chosen) -> list[CommitRows]:
    """Committed offsets, sorted by group."""
    pieces: list[CommitRows] = []
    rows = CommitRows()
    looked_at = 0
    for group in table.groups():
        if not chosen.has_group(group):
            continue
        for topic in table.topics_of(group):
            if chosen.has_topic(topic):
                _add_commits(rows, table, group, topic)
            looked_at += 1
            if rows.is_full or looked_at % NAMES_PER_TURN == 0:
                if rows.is_full:
                    pieces.append(rows)
                    rows = CommitRows()
                await asyncio.sleep(0)
    if len(rows):
        pieces.append(rows)
    return pieces


def _add_commits(rows: CommitRows, table: ConsumerOffsetTable, group: str, topic: str) -> None:
    offsets = table.of_topic(group, topic)
    if not offsets:
        return
    changes = table.last_changes(group, topic)
    epochs = table.epochs_min(group, topic)
    count = len(offsets)
    rows.group_codes.extend([rows.groups.code(group)] * count)
    rows.topic_codes.extend([rows.topics.code(topic)] * count)
    rows.queue_ids.extend(offsets)
    rows.offsets.extend(offsets.values())
    client = rows.clients.code
    for queue_id in offsets:
        change = changes.get(queue_id)
        if change is None:
            rows.lease_epochs.append(UNKNOWN)
            rows.committed_at_ms.append(UNKNOWN)
            rows.client_codes.append(client(""))
            rows.resets.append(False)
        else:
            rows.lease_epochs.append(_lease_epoch(change, epochs.get(queue_id, 0)))
            rows.committed_at_ms.append(change.timestamp_ms)
            rows.client_codes.append(client(change.client_id))
            rows.resets.append(change.is_reset)


def _lease_epoch(change: LastChange, epoch_min: int) -> int:
    """As in the journal's record; below `epoch_min` commits have no effect."""
    if change.is_reset:
        return max(0, epoch_min - 1)
    return epoch_min if change.has_lease else 0


async def copy_queues(topics: TopicTable, store: MessageStore, chosen: Chosen) -> list[QueueRows]:
    """Bounds of every queue that a topic has, or that ever had a message."""
    pieces: list[QueueRows] = []
    rows = QueueRows()
    stored = await _stored_queues(store, chosen)
    configured = [config for config in topics.configs() if chosen.has_topic(config.name)]
    for number, config in enumerate(configured, 1):
        count = max(config.read_queue_count, config.write_queue_count)
        stored[config.name] = {**dict.fromkeys(range(count)), **stored.get(config.name, {})}
        if number % NAMES_PER_TURN == 0:
            await asyncio.sleep(0)
    for topic in sorted(stored):
        for queue_id in sorted(stored[topic]):
            bounds = store.queues.bounds(topic, queue_id)
            rows.add(topic, queue_id, bounds.min_offset, bounds.max_offset)
            if rows.is_full:
                pieces.append(rows)
                rows = QueueRows()
                await asyncio.sleep(0)
    if len(rows):
        pieces.append(rows)
    return pieces


async def _stored_queues(store: MessageStore, chosen: Chosen) -> dict[str, dict[int, None]]:
    """topic -> ids of its queues that ever had a message."""
    found: dict[str, dict[int, None]] = {}
    for number, queue in enumerate(list(store.queues), 1):
        if queue.end and chosen.has_topic(queue.topic):
            found.setdefault(queue.topic, {})[queue.queue_id] = None
        if number % QUEUES_PER_TURN == 0:
            await asyncio.sleep(0)
    return found
