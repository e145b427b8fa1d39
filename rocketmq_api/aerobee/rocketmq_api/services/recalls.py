"""RecallMessage: a delayed message is recalled at the broker where it waits."""

from __future__ import annotations

from aerobee.rocketmq_api.codes import OK, Refused
from aerobee.rocketmq_api.ports import OwnQueues
from aerobee.rocketmq_api.resources import stored_topic
from aerobee.rocketmq_api.rules.message_types import accepted_types
from aerobee.rocketmq_api.rules.recalls import check_recallable, handle_of, names_nothing
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.methods import RECALL_MESSAGE
from aerobee.runtime.errors import MessageNotFound
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
        handle = handle_of(request.recall_handle, topic)
        route = await self._masters.route(topic)
        check_recallable(topic, accepted_types(route.attributes))
        own = self._masters.here(handle.broker_name)
        if own is not None:
            try:
                await own.recall(request.recall_handle)
            except MessageNotFound as error:
                raise Refused(v2.INTERNAL_SERVER_ERROR, f"MessageNotFound: {error}") from None
            return service_pb2.RecallMessageResponse(status=OK, message_id=handle.unique_key)
        if handle.broker_name not in route.queues_by_broker:
            raise names_nothing("it names a broker that has no queue of the topic")
        return await self._masters.call(
            RECALL_MESSAGE, request, caller, route=route, broker_name=handle.broker_name
        )
