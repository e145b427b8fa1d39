"""Pieces of an audit's reading on the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aerobee.broker.edge.own.convert import group_member
from aerobee.broker.observe.audit.rows import (
    UNKNOWN,
    CommitRows,
    EpochRows,
    LeaseRows,
    MemberRows,
    MinuteRows,
    Names,
    QueueRows,
    Rows,
    SegmentRows,
    TopicRows,
    WaitingRows,
)
from aerobee.v1 import audit_pb2


def part_of(rows: Rows) -> tuple[audit_pb2.SnapshotPart, int, int]:
    """The piece as a message, its table's number, and its rows."""
    table, name, write = _TABLES[type(rows)]
    part = audit_pb2.SnapshotPart()
    write(getattr(part, name), rows)
    return part, table, len(rows)


def _commits(message: audit_pb2.CommitRows, rows: CommitRows) -> None:
    message.groups.extend(rows.groups.names)
    message.topics.extend(rows.topics.names)
    message.clients.extend(rows.clients.names)
    message.group_codes.extend(rows.group_codes)
    message.topic_codes.extend(rows.topic_codes)
    message.queue_ids.extend(rows.queue_ids)
    message.offsets.extend(rows.offsets)
    message.lease_epochs.extend(rows.lease_epochs)
    message.committed_at_ms.extend(rows.committed_at_ms)
    message.client_codes.extend(rows.client_codes)
    message.resets.extend(rows.resets)
    message.first_unread_ms.extend(rows.first_unread_ms)
    message.matching_unread.extend(rows.matching_unread)


def _queues(message: audit_pb2.QueueRows, rows: QueueRows) -> None:
    message.topics.extend(rows.topics.names)
    message.topic_codes.extend(rows.topic_codes)
    message.queue_ids.extend(rows.queue_ids)
    message.min_offsets.extend(rows.min_offsets)
    message.max_offsets.extend(rows.max_offsets)
    message.last_store_ms.extend(rows.last_store_ms or [UNKNOWN] * len(rows))


def _leases(message: audit_pb2.LeaseRows, rows: LeaseRows) -> None:
    groups, topics, clients = Names(), Names(), Names()
    message.group_codes.extend(groups.code(lease.key.group) for lease in rows)
    message.topic_codes.extend(topics.code(lease.key.topic) for lease in rows)
    message.queue_ids.extend(lease.key.queue_id for lease in rows)
    message.lease_epochs.extend(lease.epoch for lease in rows)
    message.client_codes.extend(clients.code(lease.client_id) for lease in rows)
    message.groups.extend(groups.names)
    message.topics.extend(topics.names)
    message.clients.extend(clients.names)


def _topics(message: audit_pb2.TopicRows, rows: TopicRows) -> None:
    message.topics.extend(topic.name for topic in rows)
    message.read_queue_counts.extend(topic.read_queue_count for topic in rows)
    message.write_queue_counts.extend(topic.write_queue_count for topic in rows)
    message.perms.extend(topic.perm for topic in rows)
    message.revisions.extend(topic.revision for topic in rows)


def _members(message: audit_pb2.MemberRows, rows: MemberRows) -> None:
    groups = Names()
    message.members.extend(group_member(member, rows.now_s) for member in rows)
    message.group_codes.extend(groups.code(member.group) for member in rows)
    message.groups.extend(groups.names)


def _epochs(message: audit_pb2.EpochRows, rows: EpochRows) -> None:
    message.epochs.extend(epoch for epoch, _ in rows)
    message.start_offsets.extend(start for _, start in rows)


def _segments(message: audit_pb2.SegmentRows, rows: SegmentRows) -> None:
    message.positions.extend(rows.positions)
    message.sizes.extend(rows.sizes)
    message.first_store_ms.extend(rows.first_store_ms)


def _minutes(message: audit_pb2.MinuteRows, rows: MinuteRows) -> None:
    message.topics.extend(rows.topics.names)
    message.topic_codes.extend(rows.topic_codes)
    message.minutes.extend(rows.minutes)
    message.acknowledged.extend(rows.acknowledged)
    message.first_whole_minute = rows.first_whole_minute


def _waiting(message: audit_pb2.WaitingRows, rows: WaitingRows) -> None:
    message.topics.extend(each.topic for each in rows)
    message.timers.extend(each.is_timer for each in rows)
    message.messages.extend(each.messages for each in rows)
    message.first_due_ms.extend(each.first_due_ms for each in rows)


_TABLES: Mapping[type[Rows], tuple[int, str, Callable[[Any, Any], None]]] = {
    CommitRows: (audit_pb2.SNAPSHOT_COMMITS, "commits", _commits),
    QueueRows: (audit_pb2.SNAPSHOT_QUEUES, "queues", _queues),
    LeaseRows: (audit_pb2.SNAPSHOT_LEASES, "leases", _leases),
    TopicRows: (audit_pb2.SNAPSHOT_TOPICS, "topics", _topics),
    MemberRows: (audit_pb2.SNAPSHOT_MEMBERS, "members", _members),
    MinuteRows: (audit_pb2.SNAPSHOT_MINUTES, "minutes", _minutes),
    WaitingRows: (audit_pb2.SNAPSHOT_WAITING, "waiting", _waiting),
    SegmentRows: (audit_pb2.SNAPSHOT_SEGMENTS, "segments", _segments),
    EpochRows: (audit_pb2.SNAPSHOT_EPOCHS, "epochs", _epochs),
}
"""Each with its table's number, its field of a part, and the function that fills it."""
