"""RecallMessage: a delayed message is recalled at the broker where it waits."""

from __future__ import annotations

from aerobee.rocketmq_api.codes import OK, Refused
from aerobee.rocketmq_api.resources import stored_topic
from aerobee.rocketmq_api.rules.message_types import MessageType, accepted_types
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.methods import RECALL_MESSAGE
from aerobee.rocketmq_api.services.ports import OwnQueues
from aerobee.runtime.errors import MessageNotFound
from aerobee.store.format.recall_handle import RecallHandle, RecallHandleIllegal
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2


class Recalls:
    """Of one node."""

    def __init__(self, masters: Masters[OwnQueues]) -> None:
        self._masters = masters

    async def recall(
        self, request: service_pb2.RecallMessageRequest, caller: Caller
    ) -> service_pb2.RecallMessageResponse:
        """Raises Refused with INTERNAL_SERVER_ERROR, as Apache's brokers answer, for a message that
        does not wait any more: some clients take MESSAGE_NOT_FOUND for a success. A second recall
        succeeds. Raises others of `OwnQueues.recall`."""
        topic = stored_topic(request.topic, caller.namespace)
        handle = _decoded(request.recall_handle, topic)
        route = await self._masters.route(topic)
        if MessageType.DELAY not in accepted_types(route.attributes):
            raise Refused(
                v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {topic} takes no delayed messages, so none of it can be recalled",
            )
        own = self._masters.here(handle.broker_name)
        if own is not None:
            try:
                await own.recall(request.recall_handle)
            except MessageNotFound as error:
                raise Refused(v2.INTERNAL_SERVER_ERROR, f"MessageNotFound: {error}") from None
            return service_pb2.RecallMessageResponse(status=OK, message_id=handle.unique_key)
        if handle.broker_name not in route.queues_by_broker:
            raise _illegal("it names a broker that has no queue of the topic")
        return await self._masters.call(
            RECALL_MESSAGE, request, caller, route=route, broker_name=handle.broker_name
        )


def _decoded(text: str, topic: str) -> RecallHandle:
    try:
        handle = RecallHandle.decode(text)
    except RecallHandleIllegal as error:
        raise Refused(v2.ILLEGAL_MESSAGE_ID, str(error)) from None
    if handle.topic != topic:
        raise _illegal("it belongs to another topic")
    return handle


def _illegal(reason: str) -> Refused:
    return Refused(v2.ILLEGAL_MESSAGE_ID, f"the recall handle names no message here: {reason}")
