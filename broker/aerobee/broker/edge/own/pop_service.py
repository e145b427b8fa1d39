"""PopService: messages one by one, for our own clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import grpc

from aerobee.access.meter import begin_poll
from aerobee.access.recorder import source_of
from aerobee.access.running import user_of_call
from aerobee.broker.edge.own.convert import status_of, wish_of
from aerobee.broker.groups.receivers import Receiver, Receivers
from aerobee.domain import names
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.ports import Groups, OwnPops, PollRequest, Received
from aerobee.rocketmq_api.rules import polling
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.rules.refusals import Refused
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, InvalidArgument, NotMaster
from aerobee.store.format.pop_records import retry_topics_of
from aerobee.v1 import broker_pb2, broker_pb2_grpc, common_pb2

Context = grpc.aio.ServicerContext[Any, Any]

_ANSWER_MS: Final = 100
"""Reserved from the caller's time for the answer."""


class PopService(broker_pb2_grpc.PopServiceServicer):
    """Translates for `OwnPops`."""

    def __init__(
        self,
        pops: OwnPops,
        groups: Groups,
        expressions: CompiledExpressions,
        receivers: Receivers,
        clock: Clock,
    ) -> None:
        self._pops = pops
        self._receivers = receivers
        self._clock = clock
        self._groups = groups
        self._expressions = expressions
        self._limits = PollLimits()

    async def Pop(self, request: broker_pb2.PopRequest, context: Context) -> broker_pb2.PopResponse:
        self._check(request.group, request.topic)
        names.check_client_id(request.client_id)
        await begin_poll(request.group)
        limits = self._limits
        try:
            invisible_ms = polling.received_invisible_ms(request.invisible_ms, limits)
        except Refused as error:
            raise InvalidArgument(str(error)) from None
        wait_ms = min(request.wait_ms, limits.polling_ms_max)
        remaining_s = context.time_remaining()
        if remaining_s is not None:
            wait_ms = max(0, min(wait_ms, int(remaining_s * 1_000) - _ANSWER_MS))
        rules = await self._groups.rules(request.group)
        wish = wish_of(request.filter, self._expressions)
        self._receivers.heard(
            Receiver(request.group, request.client_id, source_of(context.peer()), user_of_call({})),
            request.topic,
            wish,
            self._clock.monotonic_s(),
        )
        received = await self._pops.receive(
            PollRequest(
                group=request.group,
                topic=request.topic,
                client=request.client_id,
                messages_max=polling.batch_size(request.messages_max, limits),
                invisible_ms=invisible_ms,
                attempt_id=request.attempt_id,
                attempts_max=rules.attempts_max,
                wish=wish,
                wait_ms=wait_ms,
            )
        )
        return _answer(request.topic, received, rules.attempts_max)

    async def Acknowledge(
        self, request: broker_pb2.AcknowledgeRequest, context: Context
    ) -> broker_pb2.AcknowledgeResponse:
        handles = self._handles(request.group, request.topic, request.messages)
        refusals = await self._pops.acknowledge(handles)
        return broker_pb2.AcknowledgeResponse(results=[status_of(error) for error in refusals])

    async def ChangeInvisible(
        self, request: broker_pb2.ChangeInvisibleRequest, context: Context
    ) -> broker_pb2.ChangeInvisibleResponse:
        handles = self._handles(request.group, request.topic, request.messages)
        try:
            invisible_ms = polling.changed_invisible_ms(request.invisible_ms, self._limits)
        except Refused as error:
            raise InvalidArgument(str(error)) from None
        answer = broker_pb2.ChangeInvisibleResponse()
        for handle in handles:
            result = answer.results.add()
            try:
                changed = await self._pops.change(handle, invisible_ms, is_counted=True)
                result.serial, result.visible_ms = changed.serial, changed.visible_ms
                result.status.code = common_pb2.OK
            except AerobeeError as error:
                result.status.CopyFrom(status_of(error))
        return answer

    async def Reject(
        self, request: broker_pb2.RejectRequest, context: Context
    ) -> broker_pb2.AcknowledgeResponse:
        names.check_client_id(request.client_id)
        answer = broker_pb2.AcknowledgeResponse()
        reason = request.reason_class, request.reason
        for handle in self._handles(request.group, request.topic, request.messages):
            refusal: AerobeeError | None = None
            try:
                await self._pops.forward(handle, request.client_id, reason)
            except AerobeeError as error:
                refusal = error
            answer.results.append(status_of(refusal))
        return answer

    def _check(self, group: str, topic: str) -> None:
        names.check_group_name(group)
        names.check_topic_name(topic)
        if not self._pops.is_master():
            raise NotMaster(f"this replica of broker {self._pops.broker_name} is not its master")

    def _handles(
        self, group: str, topic: str, messages: Sequence[broker_pb2.Popped]
    ) -> list[ReceiptHandle]:
        """Raises InvalidArgument: one is of another topic."""
        self._check(group, topic)
        allowed = {topic, *retry_topics_of(group, topic)}
        broker_name = self._pops.broker_name
        handles = [
            ReceiptHandle(
                broker_name,
                each.topic or topic,
                group,
                each.queue_id,
                each.offset,
                each.serial,
                each.visible_ms,
            )
            for each in messages
        ]
        for handle in handles:
            if handle.topic not in allowed:
                raise InvalidArgument(
                    f"group {group} gets no message of {topic} from {handle.topic}"
                )
        return handles


def _answer(topic: str, received: Sequence[Received], attempts_max: int) -> broker_pb2.PopResponse:
    answer = broker_pb2.PopResponse(attempts_max=attempts_max)
    records: list[bytes | memoryview] = []
    for handle, attempt, record in received:
        records.append(memoryview(record.buffer)[record.start : record.start + record.size])
        popped = answer.messages.add()
        if handle.topic != topic:
            popped.topic = handle.topic
        popped.queue_id = handle.queue_id
        popped.offset = handle.queue_offset
        popped.serial = handle.serial
        popped.visible_ms = handle.visible_ms
        popped.attempt = attempt
    answer.records = b"".join(records)
    return answer
