"""AdminService: state and counters, single messages, cleaning and hand-over by command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from aerobee.access.running import require_seen, topics_seen
from aerobee.broker.cluster.closing import Closing
from aerobee.broker.cluster.retired_topics import RetiredTopics
from aerobee.broker.edge.own.convert import remaining_message, stats_message, unread_removals
from aerobee.broker.edge.own.needs import BrokerNeeds, topics_of
from aerobee.broker.observe.remaining import Remaining
from aerobee.broker.observe.stats import BrokerStatistics
from aerobee.broker.reading.message_lookup import KeyQuery, MessageLookup
from aerobee.broker.replication.handover import Handover
from aerobee.broker.retention.cleaning import Cleaning
from aerobee.rpc.served_method import answered_at_once
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.retention.retention_policy import CleanRequest
from aerobee.store.format.record import Record
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(broker_pb2_grpc.AdminServiceServicer):
    """Shows `statistics`, finds messages through `lookup`, and commands `cleaning`."""

    def __init__(
        self,
        identity: common_pb2.BrokerIdentity,
        statistics: Callable[[], BrokerStatistics],
        lookup: MessageLookup,
        cleaning: Cleaning,
        handover: Handover,
        closing: Closing,
        retired: RetiredTopics,
        remaining: Callable[[str], Awaitable[Remaining]],
        needs: BrokerNeeds,
    ) -> None:
        """`remaining`: what would be lost if this broker group, or a topic's queues here, were
        removed now."""
        self._retired = retired
        self._identity = identity
        self._statistics = statistics
        self._lookup = lookup
        self._cleaning = cleaning
        self._handover = handover
        self._closing = closing
        self._remaining = remaining
        self._needs = needs

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
        require_seen(self._needs.record(Record(record)))
        return broker_pb2.StoredMessage(record=record)

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
                before=request.before_physical_offset,
            )
        )
        sees = topics_seen()
        return broker_pb2.QueryMessagesResponse(
            records=[each for each in found.records if all(map(sees, topics_of(Record(each))))],
            indexed_timestamp_ms=found.indexed_timestamp_ms,
            indexed_physical_offset=found.indexed_end,
            more=found.more,
        )

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

    @answered_at_once
    def GetStats(
        self, request: broker_pb2.GetStatsRequest, context: Context
    ) -> broker_pb2.BrokerStats:
        return stats_message(self._identity, self._statistics())

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

    async def DescribeRemaining(
        self, request: broker_pb2.DescribeRemainingRequest, context: Context
    ) -> broker_pb2.RemainingDescription:
        topic = request.topic
        remaining = await self._remaining(topic)
        if topic:
            refuses, in_ms = self._retired.is_sealed(topic), self._retired.refuses_in_ms(topic)
        else:
            refuses, in_ms = self._closing.refuses, self._closing.refuses_in_ms
        return remaining_message(remaining, refuses=refuses, refuses_in_ms=in_ms)
