"""AdminService: state and counters, single messages, cleaning and hand-over by command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from aerobee.broker.cleaning import Cleaning
from aerobee.broker.message_lookup import KeyQuery, MessageLookup
from aerobee.broker.replication.handover import Handover
from aerobee.broker.rpc.convert import replica_progress, slave_progress, unread_removals
from aerobee.broker.stats import BrokerStatistics
from aerobee.broker.store.retention.retention_policy import CleanRequest
from aerobee.runtime import rpc
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(broker_pb2_grpc.AdminServiceServicer):
    """Shows what `statistics` says and what `lookup` finds; `cleaning` does what it is told."""

    def __init__(
        self,
        identity: common_pb2.BrokerIdentity,
        statistics: Callable[[], BrokerStatistics],
        lookup: MessageLookup,
        cleaning: Cleaning,
        handover: Handover,
    ) -> None:
        self._identity = identity
        self._statistics = statistics
        self._lookup = lookup
        self._cleaning = cleaning
        self._handover = handover

    @rpc.unary
    async def GetMessage(
        self, request: broker_pb2.GetMessageRequest, context: Context
    ) -> broker_pb2.StoredMessage:
        where = request.WhichOneof("where")
        if where is None:
            raise InvalidArgument("the request names no message: give an id or a physical offset")
        if where == "offset_message_id":
            record = await self._lookup.by_id(request.offset_message_id)
        else:
            record = await self._lookup.by_offset(request.physical_offset)
        return broker_pb2.StoredMessage(record=record)

    @rpc.unary
    async def QueryMessages(
        self, request: broker_pb2.QueryMessagesRequest, context: Context
    ) -> broker_pb2.QueryMessagesResponse:
        is_unique_key = request.WhichOneof("by") == "unique_key"
        found = await self._lookup.by_key(
            KeyQuery(
                request.topic,
                request.unique_key if is_unique_key else request.key,
                is_unique_key=is_unique_key,
                begin_ms=request.begin_ms,
                end_ms=request.end_ms,
                max_messages=request.max_messages,
            )
        )
        return broker_pb2.QueryMessagesResponse(
            records=found.records,
            indexed_timestamp_ms=found.indexed_timestamp_ms,
            indexed_physical_offset=found.indexed_end,
            more=found.more,
        )

    @rpc.unary
    async def CleanStore(
        self, request: broker_pb2.CleanStoreRequest, context: Context
    ) -> broker_pb2.CleanStoreResponse:
        report = await self._cleaning.clean(
            CleanRequest(commanded=True, force=request.force, unread=request.unread)
        )
        return broker_pb2.CleanStoreResponse(
            removed_segments=len(report.removed),
            removed_bytes=report.removed_bytes,
            log_min_offset=self._statistics().store.min_offset,
            removed_unread=unread_removals(report.unread),
            kept_because=report.kept_because,
        )

    @rpc.unary
    async def GetStats(
        self, request: broker_pb2.GetStatsRequest, context: Context
    ) -> broker_pb2.BrokerStats:
        now = self._statistics()
        store, counters = now.store, now.counters
        retention = store.retention
        return broker_pb2.BrokerStats(
            identity=self._identity,
            role=common_pb2.MASTER if now.is_master else common_pb2.SLAVE,
            epoch=now.epoch,
            version=now.version,
            uptime_ms=now.uptime_ms,
            log_min_offset=store.min_offset,
            log_appended_end=store.appended_end,
            log_flushed_end=store.flushed_end,
            log_confirmed_end=store.confirmed_end,
            log_dispatched_end=store.dispatched_end,
            flush_mode=now.flush_mode,
            writable=now.is_writable,
            not_writable_reason=now.not_writable_reason,
            messages_in=counters.messages_in,
            bytes_in=counters.bytes_in,
            messages_out=counters.messages_out,
            bytes_out=counters.bytes_out,
            batches_in=counters.batches_in,
            refused=counters.refused,
            duplicates_dropped=counters.duplicates_dropped,
            fsyncs=store.flushes,
            topics=now.topics,
            queues=store.queue_count,
            groups=now.groups,
            members=now.members,
            send_streams=counters.send_streams,
            pull_streams=counters.pull_streams,
            cpu_seconds=now.process.cpu_seconds,
            resident_bytes=now.process.resident_bytes,
            inflight_bytes=store.appended_end - store.flushed_end,
            loop_delay_p99_ms=now.loop_delay_p99_ms,
            cold_reads=counters.cold_reads,
            cold_bytes=counters.cold_bytes,
            cold_reads_waiting=counters.cold_reads_waiting,
            disk_total_bytes=max(0, retention.space.total_bytes),
            disk_free_bytes=max(0, retention.space.free_bytes),
            log_segments=store.segment_count,
            removed_segments=retention.removed_segments,
            removed_bytes=retention.removed_bytes,
            removed_unread_messages=retention.removed_unread_messages,
            removed_unread=unread_removals(retention.removed_unread),
            replication_mode=now.replication.mode,
            replicas=replica_progress(now.replication),
            slave=slave_progress(now.replication),
        )

    @rpc.unary
    async def HandOver(
        self, request: broker_pb2.HandOverRequest, context: Context
    ) -> broker_pb2.HandOverResponse:
        successor_id = request.successor_id if request.HasField("successor_id") else None
        done = await self._handover.hand_over(successor_id, request.timeout_ms / 1_000)
        return broker_pb2.HandOverResponse(
            master_id=done.master_id,
            epoch=done.epoch,
            paused_ms=round(done.paused_s * 1_000),
        )
