"""apache.rocketmq.v2.MessagingService: translate, delegate, nothing else.

Methods that are missing here are not served: clients get UNIMPLEMENTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

from aerobee.cluster_view.route import TopicRoute
from aerobee.cluster_view.succession import Succession
from aerobee.domain.sql_filter.expression import CompiledExpressions
from aerobee.rocketmq_api.clients.table import ClientTable
from aerobee.rocketmq_api.codes import OK, Refused
from aerobee.rocketmq_api.ports import (
    Groups,
    OwnPops,
    OwnQueues,
    OwnReads,
    OwnTransactions,
    RouteSource,
)
from aerobee.rocketmq_api.resources import stored_group, stored_topic
from aerobee.rocketmq_api.routes.message_queues import assignments, message_queues
from aerobee.rocketmq_api.rules.message_checks import SENDING, SendLimits
from aerobee.rocketmq_api.rules.polling import PollLimits
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.deliveries import Deliveries
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.peers import StreamingPeers
from aerobee.rocketmq_api.services.presence import Presence
from aerobee.rocketmq_api.services.pulls import Pulled, Pulls
from aerobee.rocketmq_api.services.questions import Questions, QuestionStreams
from aerobee.rocketmq_api.services.recalls import Recalls
from aerobee.rocketmq_api.services.receives import Receives
from aerobee.rocketmq_api.services.rings import Rings
from aerobee.rocketmq_api.services.sends import Sends
from aerobee.rocketmq_api.services.telemetry import Commands, Telemetry
from aerobee.rocketmq_api.services.transactions import EndTransactions
from aerobee.rpc.call_border import Reply
from aerobee.rpc.outside import came_outside
from aerobee.rpc.served_method import answered_later
from aerobee.runtime.clock import Clock
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2, service_pb2_grpc


class MessagingService(service_pb2_grpc.MessagingServiceServicer):
    """The service of one node: any node answers any call."""

    def __init__(
        self,
        *,
        routes: RouteSource,
        peers: StreamingPeers,
        clock: Clock,
        groups: Groups,
        clients: ClientTable,
        expressions: CompiledExpressions,
        node: str = "node",
        own: OwnQueues | None = None,
        reads: OwnReads | None = None,
        pops: OwnPops | None = None,
        transactions: OwnTransactions | None = None,
        sending: SendLimits | None = None,
        polling: PollLimits | None = None,
    ) -> None:
        """`own`, `reads`, `pops` and `transactions` are a broker's; a node without them passes on
        what needs a store. `clients` are the known clients, `expressions` caches their filters.
        `node`: a unique name among the nodes."""
        self._groups = groups
        self.questions = Questions()
        self._succession = Succession(peers, clock)
        of_queues = Masters(routes, peers, own)
        of_pops = Masters(routes, peers, pops)
        of_transactions = Masters(routes, peers, transactions)
        self._masters = of_queues
        self._question_streams = QuestionStreams(
            node, self.questions, routes, lambda: of_transactions.own_name, peers
        )
        self._presence = Presence(clients, self.questions.clients, of_queues)
        sending = sending or SENDING
        self._sends = Sends(of_queues, clock, sending, self.questions)
        polling = polling or PollLimits()
        self._recalls = Recalls(of_queues)
        self._end_transactions = EndTransactions(of_transactions)
        self._pulls = Pulls(Masters(routes, peers, reads), self._presence, polling, expressions)
        self.rings = Rings(routes, peers, lambda: of_pops.own_name)
        self._receives = Receives(
            of_pops, self.rings, self._presence, groups, clock, polling, expressions
        )
        self._presence.on_left = self._receives.client_left
        self._deliveries = Deliveries(of_pops, polling)
        self._telemetry = Telemetry(
            clients, groups, self.questions, expressions, sending=sending, polling=polling
        )

    async def run(self) -> None:
        """Runs until cancelled: passes brokers' questions to the producers of this node, and hears
        which brokers have messages for its polls."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._question_streams.run(), name="questions")
            tasks.create_task(self.rings.run(), name="rings")

    def end_streams(self) -> None:
        """End the calls that would last as long as their clients."""
        self._telemetry.end()

    async def QueryRoute(
        self, request: service_pb2.QueryRouteRequest, context: Any
    ) -> service_pb2.QueryRouteResponse:
        route = await self._route(request.topic, self._presence.caller(context))
        return service_pb2.QueryRouteResponse(
            status=OK,
            message_queues=message_queues(route, request.topic, is_outside=came_outside(context)),
        )

    async def QueryAssignment(
        self, request: service_pb2.QueryAssignmentRequest, context: Any
    ) -> service_pb2.QueryAssignmentResponse:
        caller = self._presence.caller(context)
        group = stored_group(request.group, caller.namespace)
        route = await self._route(request.topic, caller)
        is_ordered = (await self._groups.rules(group)).is_ordered
        waiting = await self._succession.waiting(route, group) if is_ordered else {}
        return service_pb2.QueryAssignmentResponse(
            status=OK,
            assignments=assignments(
                route,
                request.topic,
                is_ordered=is_ordered,
                is_outside=came_outside(context),
                waiting=waiting,
            ),
        )

    async def Heartbeat(
        self, request: service_pb2.HeartbeatRequest, context: Any
    ) -> service_pb2.HeartbeatResponse:
        await self._presence.heartbeat(request, Caller.of(context))
        return service_pb2.HeartbeatResponse(status=OK)

    async def NotifyClientTermination(
        self, request: service_pb2.NotifyClientTerminationRequest, context: Any
    ) -> service_pb2.NotifyClientTerminationResponse:
        await self._presence.left(request, Caller.of(context))
        return service_pb2.NotifyClientTerminationResponse(status=OK)

    async def Telemetry(self, request_iterator: Commands, context: Any) -> None:
        await self._telemetry.serve(request_iterator, context)

    @answered_later
    def SendMessage(  # type: ignore[override]
        self, request: service_pb2.SendMessageRequest, context: Any, reply: Reply
    ) -> Callable[[], Awaitable[service_pb2.SendMessageResponse]] | None:
        return self._sends.begin(request, self._presence.caller(context), reply)

    async def RecallMessage(
        self, request: service_pb2.RecallMessageRequest, context: Any
    ) -> service_pb2.RecallMessageResponse:
        return await self._recalls.recall(request, self._presence.caller(context))

    async def ReceiveMessage(
        self, request: service_pb2.ReceiveMessageRequest, context: Any
    ) -> None:
        await self._receives.receive(request, self._presence.caller(context), context.write)

    async def AckMessage(
        self, request: service_pb2.AckMessageRequest, context: Any
    ) -> service_pb2.AckMessageResponse:
        return await self._deliveries.acknowledge(request, self._presence.caller(context))

    async def ChangeInvisibleDuration(
        self, request: service_pb2.ChangeInvisibleDurationRequest, context: Any
    ) -> service_pb2.ChangeInvisibleDurationResponse:
        return await self._deliveries.change(request, self._presence.caller(context))

    async def ForwardMessageToDeadLetterQueue(
        self, request: service_pb2.ForwardMessageToDeadLetterQueueRequest, context: Any
    ) -> service_pb2.ForwardMessageToDeadLetterQueueResponse:
        return await self._deliveries.forward(request, self._presence.caller(context))

    async def PullMessage(self, request: service_pb2.PullMessageRequest, context: Any) -> Pulled:
        async with aclosing(self._pulls.pull(request, self._presence.caller(context))) as parts:
            async for part in parts:
                yield part

    async def UpdateOffset(
        self, request: service_pb2.UpdateOffsetRequest, context: Any
    ) -> service_pb2.UpdateOffsetResponse:
        return await self._pulls.update(request, self._presence.caller(context))

    async def GetOffset(
        self, request: service_pb2.GetOffsetRequest, context: Any
    ) -> service_pb2.GetOffsetResponse:
        return await self._pulls.get(request, self._presence.caller(context))

    async def QueryOffset(
        self, request: service_pb2.QueryOffsetRequest, context: Any
    ) -> service_pb2.QueryOffsetResponse:
        return await self._pulls.query(request, self._presence.caller(context))

    async def EndTransaction(
        self, request: service_pb2.EndTransactionRequest, context: Any
    ) -> service_pb2.EndTransactionResponse:
        return await self._end_transactions.end(request, self._presence.caller(context))

    async def SyncLiteSubscription(
        self, request: service_pb2.SyncLiteSubscriptionRequest, context: Any
    ) -> service_pb2.SyncLiteSubscriptionResponse:
        self._presence.caller(context)
        _refuse("lite topics are not supported; use a message group or a tag in an ordinary topic")

    async def _route(self, topic: v2.Resource, caller: Caller) -> TopicRoute:
        return await self._masters.route(stored_topic(topic, caller.namespace))


def add_messaging_service(service: MessagingService, server: object) -> None:
    """For a server that reports the service's errors with `answer_errors`."""
    add = service_pb2_grpc.add_MessagingServiceServicer_to_server
    add(service, server)  # type: ignore[no-untyped-call]


def _refuse(reason: str) -> NoReturn:
    raise Refused(v2.NOT_IMPLEMENTED, reason)
