"""What a client does with a message that it has: acknowledge, change its time, or give up.

The handle names the broker; only that broker knows whether the handle is still valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aerobee.cluster_view.route import TopicRoute
from aerobee.rocketmq_api.codes import OK, common_status, status_of
from aerobee.rocketmq_api.ports import OwnPops
from aerobee.rocketmq_api.receiving.polling import changed_invisible_ms
from aerobee.rocketmq_api.resources import stored_group, stored_topic
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.rules.refusals import Reason, Refused
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.methods import (
    ACK_MESSAGE,
    CHANGE_INVISIBLE_DURATION,
    FORWARD_TO_DEAD_LETTERS,
)
from aerobee.runtime.errors import AerobeeError, StaleHandle
from aerobee.store.format.pop_records import retry_topics_of
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_Entries = Sequence[tuple[int, ReceiptHandle]]
"""The index of the entry in the request, and its handle."""


class Deliveries:
    """Of one node."""

    def __init__(self, masters: Masters[OwnPops], limits: PollLimits) -> None:
        self._masters = masters
        self._limits = limits

    async def acknowledge(
        self, request: service_pb2.AckMessageRequest, caller: Caller
    ) -> service_pb2.AckMessageResponse:
        """Each entry has its own result."""
        group = stored_group(request.group, caller.namespace)
        topic = stored_topic(request.topic, caller.namespace)
        if not request.entries:
            raise Refused(Reason.MALFORMED, "the request names no message to acknowledge")
        retries = retry_topics_of(group, topic)
        statuses: dict[int, v2.Status] = {}
        by_broker: dict[str, list[tuple[int, ReceiptHandle]]] = {}
        for index, entry in enumerate(request.entries):
            try:
                handle = ReceiptHandle.decode(entry.receipt_handle)
                handle.check_used_by(topic, group, retry_topics=retries)
                by_broker.setdefault(handle.broker_name, []).append((index, handle))
            except Refused as error:
                statuses[index] = status_of(error)
        asked = [
            self._acknowledged(name, entries, request, topic, caller)
            for name, entries in by_broker.items()
        ]
        # Usually all messages are from one broker: that takes no task.
        for each in [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked):
            statuses.update(each)
        answer = service_pb2.AckMessageResponse()
        for index, entry in enumerate(request.entries):
            # Field by field, which takes half as long as one call with all of them.
            result = answer.entries.add()
            result.message_id = entry.message_id
            result.receipt_handle = entry.receipt_handle
            result.status.CopyFrom(statuses[index])
        answer.status.CopyFrom(common_status(statuses.values()))
        return answer

    async def _acknowledged(
        self,
        name: str,
        entries: _Entries,
        request: service_pb2.AckMessageRequest,
        topic: str,
        caller: Caller,
    ) -> dict[int, v2.Status]:
        try:
            own = self._masters.here(name)
            if own is not None:
                errors = await own.acknowledge([handle for _, handle in entries])
                said = [OK if error is None else status_of(error) for error in errors]
            else:
                answer = await self._masters.call(
                    ACK_MESSAGE,
                    service_pb2.AckMessageRequest(
                        group=request.group,
                        topic=request.topic,
                        entries=[request.entries[index] for index, _ in entries],
                    ),
                    caller,
                    route=await self._route(topic, name),
                    broker_name=name,
                )
                said = [each.status for each in answer.entries]
                if len(said) != len(entries):
                    raise AerobeeError(
                        f"broker {name} answered {len(said)} of {len(entries)} entries"
                    )
        except AerobeeError as error:
            said = [status_of(error)] * len(entries)
        return {index: status for (index, _), status in zip(entries, said, strict=True)}

    async def change(
        self, request: service_pb2.ChangeInvisibleDurationRequest, caller: Caller
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        """The answer has the handle that is valid from now on. Raises StaleHandle, Refused."""
        group = stored_group(request.group, caller.namespace)
        topic = stored_topic(request.topic, caller.namespace)
        invisible_ms = changed_invisible_ms(request, self._limits)
        handle = _used(request.receipt_handle, topic, group)
        own = self._masters.here(handle.broker_name)
        if own is None:
            return await self._masters.call(
                CHANGE_INVISIBLE_DURATION,
                request,
                caller,
                route=await self._route(topic, handle.broker_name),
                broker_name=handle.broker_name,
            )
        changed = await own.change(handle, invisible_ms, is_counted=not request.suspend)
        return service_pb2.ChangeInvisibleDurationResponse(
            status=OK, receipt_handle=changed.encode()
        )

    async def forward(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest, caller: Caller
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        """Returns once the dead letter is safe. Raises StaleHandle, Refused."""
        group = stored_group(request.group, caller.namespace)
        topic = stored_topic(request.topic, caller.namespace)
        if not request.receipt_handle and request.message_id:
            return await self._forward_by_id(request, caller, topic, group)
        handle = _used(request.receipt_handle, topic, group)
        own = self._masters.here(handle.broker_name)
        if own is None:
            return await self._masters.call(
                FORWARD_TO_DEAD_LETTERS,
                request,
                caller,
                route=await self._route(topic, handle.broker_name),
                broker_name=handle.broker_name,
            )
        await own.forward(handle, caller.client_id)
        return service_pb2.ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def _forward_by_id(
        self,
        request: service_pb2.ForwardMessageToDeadLetterQueueRequest,
        caller: Caller,
        topic: str,
        group: str,
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        """As C++ clients ask for it, at the broker from which they have the message. Other brokers
        are asked one after another."""
        own, asked = self._masters.own, ""
        refusal: AerobeeError | None = None
        if own is not None:
            asked = own.broker_name
            try:
                await own.forward_by_id(
                    topic, group, request.message_id, caller.client, caller.client_id
                )
                return service_pb2.ForwardMessageToDeadLetterQueueResponse(status=OK)
            except StaleHandle as error:
                refusal = error
        if caller.was_forwarded and refusal is not None:
            raise refusal
        route = await self._masters.route(topic)
        for name in sorted(route.queues_by_broker.keys() - {asked}):
            try:
                return await self._masters.call(
                    FORWARD_TO_DEAD_LETTERS, request, caller, route=route, broker_name=name
                )
            except AerobeeError as error:
                # A broker that cannot answer may have it: the client must ask again.
                if refusal is None or not isinstance(error, StaleHandle):
                    refusal = error
        raise refusal or StaleHandle(f"no broker has queues of topic {topic}")

    async def _route(self, topic: str, broker_name: str) -> TopicRoute:
        route = await self._masters.route(topic)
        if broker_name not in route.queues_by_broker:
            raise StaleHandle(
                f"the receipt handle names broker {broker_name}, which has no queue of topic "
                f"{topic} any more"
            )
        return route


def _used(text: str, topic: str, group: str) -> ReceiptHandle:
    """Raises Refused with ILLEGAL_HANDLE."""
    handle = ReceiptHandle.decode(text)
    handle.check_used_by(topic, group, retry_topics=retry_topics_of(group, topic))
    return handle
