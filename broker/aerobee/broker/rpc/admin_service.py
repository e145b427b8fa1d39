"""AdminService: the broker's state and counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from aerobee.broker.stats import BrokerStatistics
from aerobee.runtime import rpc
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(broker_pb2_grpc.AdminServiceServicer):
    """Shows what `statistics` says."""

    def __init__(
        self, identity: common_pb2.BrokerIdentity, statistics: Callable[[], BrokerStatistics]
    ) -> None:
        self._identity = identity
        self._statistics = statistics

    @rpc.unary
    async def GetStats(
        self, request: broker_pb2.GetStatsRequest, context: Context
    ) -> broker_pb2.BrokerStats:
        now = self._statistics()
        store, counters = now.store, now.counters
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
        )
