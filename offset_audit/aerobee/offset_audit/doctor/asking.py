"""One reading of a cluster: each registered broker is asked once, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from aerobee.client_core import ClusterConnection
from aerobee.client_core.audit import Audit
from aerobee.cluster_view.methods import DESCRIBE_CLUSTER, LIST_TOPICS
from aerobee.offset_audit.doctor.examining import Row
from aerobee.offset_audit.rules.names import BUSY
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from aerobee.v1 import audit_pb2, common_pb2, nameserver_pb2

TIMEOUT_MS: Final = 5_000
_TABLES: Final = (
    audit_pb2.SNAPSHOT_BROKER,
    audit_pb2.SNAPSHOT_TOPICS,
    audit_pb2.SNAPSHOT_QUEUES,
    audit_pb2.SNAPSHOT_COMMITS,
    audit_pb2.SNAPSHOT_LEASES,
    audit_pb2.SNAPSHOT_MEMBERS,
    audit_pb2.SNAPSHOT_EPOCHS,
)


async def read_cluster(
    connection: ClusterConnection,
    *,
    groups: Sequence[str] = (),
    topics: Sequence[str] = (),
    timeout_ms: int = TIMEOUT_MS,
) -> dict[str, list[Row]]:
    """What the nameservers and the brokers say, as rows of the audit's tables.

    Raises:
        Unreachable, DeadlineExceeded, RegistryUnavailable: no nameserver answers.
    """
    description, listed = await _registry(connection, timeout_ms)
    cluster = description.cluster
    tables: dict[str, list[Row]] = {
        "registry_brokers": [
            {
                "cluster": cluster,
                "broker_name": each.identity.broker_name,
                "broker_id": each.identity.broker_id,
                "role": common_pb2.BrokerRole.Name(each.role),
                "zone": each.zone or None,
            }
            for each in description.brokers
        ],
        "registry_groups": [
            {
                "cluster": cluster,
                "broker_name": each.broker_name,
                "revision": description.version,
                "epoch": each.epoch,
                "master_id": each.master_id,
                "in_sync": [one.broker_id for one in each.in_sync],
                "replicas": list(each.replicas),
                "unclean_epochs": list(each.unclean_epochs),
            }
            for each in description.groups
        ],
        **{name: [] for name in ("brokers", *_ROWS)},
    }
    request = audit_pb2.SnapshotRequest(
        tables=_TABLES,
        groups=groups,
        topics=topics,
        with_first_unread=True,
        with_matching_unread=True,
    )
    asked = [_ask(connection, each, cluster, request, timeout_ms) for each in description.brokers]
    for answer in await asyncio.gather(*asked):
        for name, rows in answer.items():
            tables[name] += rows
    tables["registry_topics"] = [
        {
            "cluster": cluster,
            "topic": each.name,
            "broker_name": name,
            "write_queue_count": queues,
            "topic_revision": each.revision or None,
        }
        for each in _standing(listed, await _topics_of(connection, timeout_ms))
        if not topics or each.name in topics
        for name, queues in each.queues_by_broker.items()
    ]
    return tables


async def _registry(
    connection: ClusterConnection, timeout_ms: int
) -> tuple[nameserver_pb2.ClusterDescription, nameserver_pb2.ListTopicsResponse]:
    description = await connection.nameservers.call(
        DESCRIBE_CLUSTER,
        nameserver_pb2.DescribeClusterRequest(cluster=connection.cluster),
        timeout_ms=timeout_ms,
    )
    return description, await _topics_of(connection, timeout_ms)


async def _topics_of(
    connection: ClusterConnection, timeout_ms: int
) -> nameserver_pb2.ListTopicsResponse:
    return await connection.nameservers.call(
        LIST_TOPICS,
        nameserver_pb2.ListTopicsRequest(cluster=connection.cluster),
        timeout_ms=timeout_ms,
    )


def _standing(
    first: nameserver_pb2.ListTopicsResponse, then: nameserver_pb2.ListTopicsResponse
) -> Iterator[common_pb2.TopicConfig]:
    """Topics that were not changed or deleted while brokers were asked."""
    later = {each.name: each for each in then.topics}
    return (each for each in first.topics if later.get(each.name) == each)


async def _ask(
    connection: ClusterConnection,
    broker: nameserver_pb2.BrokerEndpoint,
    cluster: str,
    request: audit_pb2.SnapshotRequest,
    timeout_ms: int,
) -> dict[str, list[Row]]:
    """The tables of one broker; for one that does not answer, only the reason."""
    row: Row = {
        "cluster": broker.identity.cluster or cluster,
        "broker_name": broker.identity.broker_name,
        "broker_id": broker.identity.broker_id,
        "address": broker.address,
        "role": common_pb2.BrokerRole.Name(broker.role),
        "epoch": broker.epoch,
        "answered": True,
        "error": None,
        "asked_at_ms": SystemClock().now_ms(),
    }
    tables: dict[str, list[Row]] = {"brokers": [row]}
    audit = Audit(connection.channels, timeout_ms=timeout_ms)
    try:
        async with aclosing(audit.snapshot(broker.address, request)) as parts:
            async for part in parts:
                kind = str(part.WhichOneof("part"))
                if kind == "broker":
                    row |= _broker(part.broker)
                    row["answered_at_ms"] = SystemClock().now_ms()
                elif kind in _ROWS:
                    tables.setdefault(kind, []).extend(_rows(kind, part, row))
    except errors.Busy as error:
        return {"brokers": [row | {"answered": False, "error": BUSY + str(error)}]}
    except errors.AerobeeError as error:
        return {"brokers": [row | {"answered": False, "error": str(error)}]}
    return tables


def _broker(broker: audit_pb2.SnapshotBroker) -> Row:
    stats = broker.stats
    return {
        "role": common_pb2.BrokerRole.Name(stats.role),
        "epoch": stats.epoch if stats.epoch or stats.role == common_pb2.MASTER else None,
        "appended_end": stats.log_appended_end,
        "confirmed_end": stats.log_confirmed_end,
        "dispatched_end": stats.log_dispatched_end,
        "incarnation": broker.incarnation,
        "log_min_offset": stats.log_min_offset,
        "misplaced_records": stats.misplaced_records,
        "not_writable_reason": stats.not_writable_reason,
        "commits_read_at_ms": broker.commits_read_at_ms,
        "ends_read_at_ms": broker.ends_read_at_ms,
    }


def _rows(kind: str, part: audit_pb2.SnapshotPart, broker: Row) -> list[Row]:
    origin = {name: broker[name] for name in ("cluster", "broker_name", "broker_id")}
    columns = _ROWS[kind](getattr(part, kind), broker)
    return [
        {**origin, **dict(zip(columns, values, strict=True))}
        for values in zip(*columns.values(), strict=True)
    ]


# ---------------------------------------------------------------------- tables As
# `sources.live.batches` reads them: -1 and an empty name mean unknown.

Columns = Mapping[str, Sequence[Any]]


def _topics(part: audit_pb2.TopicRows, _: Row) -> Columns:
    return {
        "topic": part.topics,
        "revision": part.revisions,
        "read_queue_count": part.read_queue_counts,
        "write_queue_count": part.write_queue_counts,
    }


def _queues(part: audit_pb2.QueueRows, broker: Row) -> Columns:
    rows = len(part.queue_ids)
    return {
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": part.queue_ids,
        "min_offset": part.min_offsets,
        "max_offset": part.max_offsets,
        "last_store_ms": _known(part.last_store_ms, rows),
        "read_at_ms": [broker["ends_read_at_ms"]] * rows,
    }


def _commits(part: audit_pb2.CommitRows, broker: Row) -> Columns:
    rows = len(part.queue_ids)
    return {
        "group": _names(part.groups, part.group_codes),
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": part.queue_ids,
        "offset": part.offsets,
        "lease_epoch": _known(part.lease_epochs, rows),
        "committed_at_ms": _known(part.committed_at_ms, rows),
        "client_id": _names(part.clients, part.client_codes),
        "is_reset": part.resets,
        "first_unread_ms": _known(part.first_unread_ms, rows),
        "matching_unread": _known(part.matching_unread, rows),
        "read_at_ms": [broker["commits_read_at_ms"]] * rows,
    }


def _leases(part: audit_pb2.LeaseRows, _: Row) -> Columns:
    return {
        "group": _names(part.groups, part.group_codes),
        "topic": _names(part.topics, part.topic_codes),
        "queue_id": part.queue_ids,
        "client_id": _names(part.clients, part.client_codes),
        "lease_epoch": part.lease_epochs,
    }


def _members(part: audit_pb2.MemberRows, _: Row) -> Columns:
    return {
        "group": _names(part.groups, part.group_codes),
        "client_id": [each.client_id for each in part.members],
        "broadcasting": [each.broadcasting for each in part.members],
        "subscriptions": [
            [{"topic": one.topic} for one in each.subscriptions] for each in part.members
        ],
    }


def _epochs(part: audit_pb2.EpochRows, _: Row) -> Columns:
    return {"epoch": part.epochs, "start_offset": part.start_offsets}


def _names(names: Sequence[str], codes: Sequence[int]) -> list[str | None]:
    return [names[code] or None for code in codes]


def _known(values: Sequence[int], rows: int) -> list[int | None]:
    if len(values) == 0:
        return [None] * rows
    return [None if value == -1 else value for value in values]


_ROWS: Final[Mapping[str, Any]] = {
    "topics": _topics,
    "queues": _queues,
    "commits": _commits,
    "leases": _leases,
    "members": _members,
    "epochs": _epochs,
}
