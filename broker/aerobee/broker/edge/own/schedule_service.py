"""ScheduleService: messages that wait for their time, listed and changed."""

from __future__ import annotations

from typing import Any

import grpc

from aerobee.access.running import topics_seen
from aerobee.broker.delayed.schedule import Schedule, Scheduled
from aerobee.v1 import broker_pb2, broker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]

MESSAGES_DEFAULT = 100


class ScheduleService(broker_pb2_grpc.ScheduleServiceServicer):
    """Translates for `Schedule`."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    async def ListScheduled(
        self, request: broker_pb2.ListScheduledRequest, context: Context
    ) -> broker_pb2.ListScheduledResponse:
        page = await self._schedule.search(
            request.topic,
            begin_ms=request.begin_ms,
            end_ms=request.end_ms,
            key=request.key,
            after=request.after,
            limit=request.messages_max or MESSAGES_DEFAULT,
        )
        sees = topics_seen()
        return broker_pb2.ListScheduledResponse(
            messages=[_message(each) for each in page.messages if sees(each.topic)],
            after=page.after,
        )

    async def RecallScheduled(
        self, request: broker_pb2.RecallScheduledRequest, context: Context
    ) -> broker_pb2.RecallScheduledResponse:
        await self._schedule.recall(request.recall_handle)
        return broker_pb2.RecallScheduledResponse()

    async def DeliverScheduledNow(
        self, request: broker_pb2.DeliverScheduledNowRequest, context: Context
    ) -> broker_pb2.DeliverScheduledNowResponse:
        await self._schedule.deliver_now(request.recall_handle)
        return broker_pb2.DeliverScheduledNowResponse()

    async def Reschedule(
        self, request: broker_pb2.RescheduleRequest, context: Context
    ) -> broker_pb2.RescheduleResponse:
        handle = await self._schedule.retime(request.recall_handle, request.deliver_ms)
        return broker_pb2.RescheduleResponse(recall_handle=handle)


def _message(scheduled: Scheduled) -> broker_pb2.ScheduledMessage:
    return broker_pb2.ScheduledMessage(
        topic=scheduled.topic,
        queue_id=scheduled.queue_id,
        deliver_ms=scheduled.deliver_ms,
        delay_level=scheduled.level,
        recall_handle=scheduled.handle,
        message_id=scheduled.unique_key,
        keys=scheduled.keys,
        tag=scheduled.tag,
        body_bytes=scheduled.body_bytes,
        born_timestamp_ms=scheduled.born_ms,
        store_timestamp_ms=scheduled.stored_ms,
    )
