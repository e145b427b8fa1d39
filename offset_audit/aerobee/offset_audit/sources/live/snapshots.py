"""What brokers and nameservers answered, as rows of the audit's tables.

Brokers pack rows in columns, and say -1 for a number or an empty name for what they do not know: a
row has None there. Without Spark and Arrow, so that `aerobee doctor` needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from aerobee.offset_audit.sources.live.asking import BrokerAnswer, RegistryView
from aerobee.v1 import audit_pb2, broker_pb2, common_pb2, nameserver_pb2

Columns: TypeAlias = Mapping[str, Sequence[Any]]
Row: TypeAlias = tuple[object, ...]

_MS_PER_MINUTE: Final = 60_000


def part_columns(
    part: audit_pb2.SnapshotPart, broker: audit_pb2.SnapshotBroker
) -> tuple[str, Columns]:
    """The table that a part has rows of, and its columns, all equally long; without columns for a
    part of another kind."""
    kind = str(part.WhichOneof("part"))
    decode = _DECODERS.get(kind)
    if decode is None:
        return kind, {}
    columns = decode(getattr(part, kind), broker)
    rows = len(next(iter(columns.values())))
    identity = broker.stats.identity
    return kind, {
        "cluster": [identity.cluster] * rows,
        "broker_name": [identity.broker_name] * rows,
        "broker_id": [identity.broker_id] * rows,
        **columns,
    }


def _known(values: Sequence[int]) -> list[int | None]:
    return [None if value == -1 else value for value in values]


def _asked(values: Sequence[int], rows: int) -> list[int | None]:
    """A column that was perhaps not asked for."""
    return _known(values) if len(values) else [None] * rows


def _names(names: Sequence[str], codes: Sequence[int]) -> list[str | None]:
    known = [name or None for name in names]
    return [known[code] for code in codes]


# ---------------------------------------------------------------------- tables of brokers


def _topics(part: audit_pb2.TopicRows, _: audit_pb2.SnapshotBroker) -> Columns:
    return {
        "topic": part.topics,
        "read_queue_count": part.read_queue_counts,
        "write_queue_count": part.write_queue_counts,
        "perm": part.perms,
        "revision": part.revisions,
    }


def _queues(part: audit_pb2.QueueRows, broker: audit_pb2.SnapshotBroker) -> Columns:
    rows = len(part.queue_ids)
    return {
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": part.queue_ids,
        "min_offset": part.min_offsets,
        "max_offset": part.max_offsets,
        "last_store_ms": _asked(part.last_store_ms, rows),
        "read_at_ms": [broker.ends_read_at_ms] * rows,
    }


def _commits(part: audit_pb2.CommitRows, broker: audit_pb2.SnapshotBroker) -> Columns:
    rows = len(part.queue_ids)
    return {
        "group": _names(part.groups, part.group_codes),
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": part.queue_ids,
        "offset": part.offsets,
        "lease_epoch": _known(part.lease_epochs),
        "committed_at_ms": _known(part.committed_at_ms),
        "client_id": _names(part.clients, part.client_codes),
        "is_reset": part.resets,
        "first_unread_ms": _asked(part.first_unread_ms, rows),
        "matching_unread": _asked(part.matching_unread, rows),
        "read_at_ms": [broker.commits_read_at_ms] * rows,
    }


def _leases(part: audit_pb2.LeaseRows, _: audit_pb2.SnapshotBroker) -> Columns:
    return {
        "group": _names(part.groups, part.group_codes),
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": part.queue_ids,
        "client_id": _names(part.clients, part.client_codes),
        "lease_epoch": part.lease_epochs,
    }


def _members(part: audit_pb2.MemberRows, _: audit_pb2.SnapshotBroker) -> Columns:
    members = part.members
    return {
        "group": _names(part.groups, part.group_codes),
        "client_id": [member.client_id for member in members],
        "broadcasting": [member.broadcasting for member in members],
        "last_heartbeat_age_ms": [member.last_heartbeat_age_ms for member in members],
        "subscriptions": [
            [
                {
                    "topic": one.topic,
                    "expression": one.filter.expression,
                    "is_sql": one.filter.type == broker_pb2.SQL92,
                }
                for one in member.subscriptions
            ]
            for member in members
        ],
    }


def _epochs(part: audit_pb2.EpochRows, _: audit_pb2.SnapshotBroker) -> Columns:
    return {"epoch": part.epochs, "start_offset": part.start_offsets}


def _segments(part: audit_pb2.SegmentRows, _: audit_pb2.SnapshotBroker) -> Columns:
    return {
        "position": part.positions,
        "size": part.sizes,
        "first_store_ms": _known(part.first_store_ms),
    }


def _minutes(part: audit_pb2.MinuteRows, broker: audit_pb2.SnapshotBroker) -> Columns:
    rows = len(part.minutes)
    # The minute of the reading is not complete yet.
    present = broker.ends_read_at_ms // _MS_PER_MINUTE
    return {
        "tier": ["ACKNOWLEDGED"] * rows,
        "group": [None] * rows,
        "topic": _names(part.topics, part.topic_codes),
        "minute": part.minutes,
        "messages": part.acknowledged,
        "is_whole": [part.first_whole_minute <= minute < present for minute in part.minutes],
    }


def _waiting(part: audit_pb2.WaitingRows, _: audit_pb2.SnapshotBroker) -> Columns:
    return {
        "topic": [topic or None for topic in part.topics],
        "kind": ["TIMER" if is_timer else "DELAY" for is_timer in part.timers],
        "messages": _known(part.messages),
        "first_due_ms": _known(part.first_due_ms),
    }


_DECODERS: Final[Mapping[str, Callable[[Any, audit_pb2.SnapshotBroker], Columns]]] = {
    "topics": _topics,
    "queues": _queues,
    "commits": _commits,
    "leases": _leases,
    "members": _members,
    "epochs": _epochs,
    "segments": _segments,
    "minutes": _minutes,
    "waiting": _waiting,
}


def broker_row(answer: BrokerAnswer) -> dict[str, Any]:
    """The row of a broker that was asked, whether it answered or not; what it does not have is not
    known."""
    asked = answer.asked
    row: dict[str, Any] = {
        "cluster": asked.cluster,
        "broker_name": asked.broker_name,
        "broker_id": asked.broker_id,
        "address": asked.address,
        "answered": not answer.error,
        "error": answer.error or None,
        "asked_at_ms": answer.asked_at_ms,
        "answered_at_ms": answer.answered_at_ms,
    }
    return row if answer.error else row | _answered(answer.broker)


def _answered(broker: audit_pb2.SnapshotBroker) -> dict[str, Any]:
    stats = broker.stats
    return {
        "cluster": stats.identity.cluster,
        "broker_name": stats.identity.broker_name,
        "broker_id": stats.identity.broker_id,
        "role": common_pb2.BrokerRole.Name(stats.role),
        # A slave that has not been told one by a master yet has 0.
        "epoch": stats.epoch if stats.epoch or stats.role == common_pb2.MASTER else None,
        "instance": broker.instance,
        "incarnation": broker.incarnation,
        "master_id": broker.master_id if broker.master_id >= 0 else None,
        "in_sync": list(broker.in_sync),
        "flush_mode": stats.flush_mode,
        "replication_mode": stats.replication_mode,
        "version": stats.version,
        "log_min_offset": stats.log_min_offset,
        "appended_end": stats.log_appended_end,
        "flushed_end": stats.log_flushed_end,
        "confirmed_end": stats.log_confirmed_end,
        "dispatched_end": stats.log_dispatched_end,
        "misplaced_records": stats.misplaced_records,
        "not_writable_reason": stats.not_writable_reason,
        "commits_read_at_ms": broker.commits_read_at_ms,
        "ends_read_at_ms": broker.ends_read_at_ms,
    }


# ---------------------------------------------------------------------- tables of nameservers


def registry_rows(view: RegistryView) -> dict[str, list[Row]]:
    """The rows of all tables, by their names in `Tables`."""
    return {f"registry_{table}": list(rows(view)) for table, rows in REGISTRY_ROWS.items()}


def standing(first: RegistryView, then: RegistryView) -> RegistryView:
    """`first` without topics that had been changed or deleted, and groups that had another master,
    when `then` was taken."""
    description, topics = type(first.description)(), type(first.topics)()
    description.CopyFrom(first.description)
    topics.CopyFrom(first.topics)
    routes = {one.name: one for one in then.topics.topics}
    leaders = {one.broker_name: _leader(one) for one in then.description.groups}
    del topics.topics[:]
    topics.topics.extend(one for one in first.topics.topics if routes.get(one.name) == one)
    del description.groups[:]
    description.groups.extend(
        one for one in first.description.groups if leaders.get(one.broker_name) == _leader(one)
    )
    return RegistryView(description, topics)


def _leader(group: nameserver_pb2.GroupRecord) -> tuple[int, int, str]:
    return group.epoch, group.master_id, group.master_instance


def _registered_brokers(view: RegistryView) -> Iterator[Row]:
    description = view.description
    # Each list is in the order of `brokers`; an older nameserver may omit one.
    ages = dict(enumerate(description.heartbeat_age_ms))
    for number, broker in enumerate(description.brokers):
        age_ms = ages.get(number, -1)
        yield (
            description.cluster,
            description.version,
            broker.identity.broker_name,
            broker.identity.broker_id,
            broker.address,
            common_pb2.BrokerRole.Name(broker.role),
            broker.epoch,
            broker.identity.instance,
            age_ms if age_ms >= 0 else None,
            description.stale,
            broker.zone or None,
        )


def _registered_groups(view: RegistryView) -> Iterator[Row]:
    description = view.description
    for group in description.groups:
        yield (
            description.cluster,
            description.version,
            group.broker_name,
            group.epoch,
            group.master_id,
            group.master_instance,
            [name.broker_id for name in group.in_sync],
            list(group.replicas),
            list(group.unclean_epochs),
        )


def _registered_topics(view: RegistryView) -> Iterator[Row]:
    for topic in view.topics.topics:
        for broker_name, queues in topic.queues_by_broker.items():
            yield (
                view.description.cluster,
                view.topics.version,
                topic.name,
                broker_name,
                queues,
                queues,
                topic.perm,
                topic.revision or None,
            )


REGISTRY_ROWS: Final[Mapping[str, Callable[[RegistryView], Iterator[Row]]]] = {
    "brokers": _registered_brokers,
    "groups": _registered_groups,
    "topics": _registered_topics,
}
