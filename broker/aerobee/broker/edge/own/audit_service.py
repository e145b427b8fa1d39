"""AuditService: all that this broker knows of offsets, and checksums of its log. Read-only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc

from aerobee.broker.edge.own.audit_parts import part_of
from aerobee.broker.edge.own.convert import stats_message, status_of
from aerobee.broker.observe.audit.copying import Chosen
from aerobee.broker.observe.audit.log_checksums import LogChecksums
from aerobee.broker.observe.audit.snapshots import Reading, Snapshots, Wanted
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.broker.replication.replica_set import NO_MASTER
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.guard import Guard
from aerobee.v1 import audit_pb2, audit_pb2_grpc, common_pb2

Context = grpc.aio.ServicerContext[Any, Any]

_TABLES = len(audit_pb2.SnapshotTable.values())


class AuditService(audit_pb2_grpc.AuditServiceServicer):
    """Answers on masters and slaves; each reports its own state."""

    def __init__(
        self,
        identity: common_pb2.BrokerIdentity,
        statistics: Callable[[], BrokerStatistics],
        guard: Guard,
        roles: Roles,
        snapshots: Snapshots,
        checksums: LogChecksums,
    ) -> None:
        self._identity = identity
        self._statistics = statistics
        self._guard = guard
        self._roles = roles
        self._snapshots = snapshots
        self._checksums = checksums

    async def Snapshot(
        self, request: audit_pb2.SnapshotRequest, context: Context
    ) -> AsyncIterator[audit_pb2.SnapshotPart]:
        self._guard.check_available()
        wanted = Wanted(
            tables=frozenset(request.tables),
            chosen=Chosen(frozenset(request.topics), frozenset(request.groups)),
            first_unread=request.with_first_unread,
            matching_unread=request.with_matching_unread,
        )
        reading = await self._snapshots.read(wanted)
        try:
            counts = [0] * _TABLES
            counts[audit_pb2.SNAPSHOT_BROKER] = 1
            yield audit_pb2.SnapshotPart(broker=self._broker(reading))
            async with aclosing(self._snapshots.pieces(reading, wanted)) as pieces:
                async for rows in pieces:
                    part, table, count = part_of(rows)
                    counts[table] += count
                    yield part
                    del part
                    await asyncio.sleep(0)
            yield audit_pb2.SnapshotPart(end=audit_pb2.SnapshotEnd(row_counts=counts))
        finally:
            self._snapshots.done(reading)

    def _broker(self, reading: Reading) -> audit_pb2.SnapshotBroker:
        roles = self._roles
        term, group = roles.term, roles.replica_set
        if term is not None:
            in_sync = [name.broker_id for name in term.in_sync]
            master_id = roles.own.broker_id
        elif group is not None:
            in_sync = [name.broker_id for name in group.in_sync]
            master_id = group.master_id
        else:
            in_sync, master_id = [], NO_MASTER
        return audit_pb2.SnapshotBroker(
            stats=stats_message(self._identity, self._statistics()),
            instance=self._identity.instance,
            incarnation=roles.own.incarnation,
            commits_read_at_ms=reading.commits_read_at_ms,
            ends_read_at_ms=reading.ends_read_at_ms,
            in_sync=sorted(in_sync),
            master_id=master_id,
        )

    async def ChecksumLog(
        self, request: audit_pb2.ChecksumLogRequest, context: Context
    ) -> AsyncIterator[audit_pb2.LogChecksum]:
        self._guard.check_available()
        ranges = self._checksums.ranges(request.begin, request.end, request.range_bytes)
        async with aclosing(ranges):
            async for each in ranges:
                answer = audit_pb2.LogChecksum(
                    begin=each.begin, end=each.end, checksum=each.checksum
                )
                if each.fault is not None:
                    answer.fault.CopyFrom(status_of(each.fault))
                yield answer
