"""What each call says about its client, here and at the brokers that have calls of it.

Some clients send heartbeats only to the node whose address they were given, while this node passes
their other calls on. The brokers that received these are told, each at most every 10 s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from aerobee.cluster_view.methods import Method
from aerobee.rocketmq_api.clients.producers import ProducerTable
from aerobee.rocketmq_api.clients.table import Client, ClientTable
from aerobee.rocketmq_api.ports import OwnBroker
from aerobee.rocketmq_api.resources import stored_group
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.methods import HEARTBEAT, NOTIFY_CLIENT_TERMINATION
from aerobee.runtime.errors import AerobeeError
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

_TELL_MS_MAX: Final = 1_000


class Presence:
    """The clients of one node."""

    def __init__(
        self, clients: ClientTable, producers: ProducerTable, masters: Masters[OwnBroker]
    ) -> None:
        self._clients = clients
        self._producers = producers
        self._masters = masters
        self.on_left: Callable[[str], None] = lambda client: None
        """Called with the key of a client that says that it leaves."""

    def caller(self, context: Any) -> Caller:
        """Who is calling, and therefore alive. Raises Refused with CLIENT_ID_REQUIRED."""
        caller = Caller.of(context)
        self.client(caller)
        return caller

    def client(self, caller: Caller) -> Client:
        return self._clients.heard(
            caller.client_id, caller.language, caller.version, caller.peer, caller.user
        )

    def took_part(self, caller: Caller, kind: v2.ClientType, group: str) -> None:
        """The call is made by a member of a group."""
        self._clients.takes_part(self.client(caller), kind, group)

    def passed_on(self, caller: Caller, broker_name: str, topic: str) -> None:
        """A call that leaves a broker with something of the client's, such as messages that it
        holds."""
        self._clients.passed_on(self.client(caller), broker_name, topic)

    async def heartbeat(self, request: service_pb2.HeartbeatRequest, caller: Caller) -> None:
        """Also for an unknown client: some send their settings again only after minutes.

        Raises Refused with ILLEGAL_CONSUMER_GROUP.
        """
        client = self.client(caller)
        group = ""
        if request.HasField("group") and request.client_type != v2.PRODUCER:
            group = stored_group(request.group, caller.namespace)
        self._clients.takes_part(client, request.client_type, group)
        if not caller.was_forwarded:
            await self._tell(HEARTBEAT, request, caller, self._clients.to_tell(client))

    async def left(
        self, request: service_pb2.NotifyClientTerminationRequest, caller: Caller
    ) -> None:
        """Also for an unknown client: some fail on termination otherwise.

        Raises Refused with ILLEGAL_CONSUMER_GROUP.
        """
        if request.HasField("group"):
            stored_group(request.group, caller.namespace)
        client = self.client(caller)
        told = [(name, passed.topic) for name, passed in client.passed_to.items()]
        self._clients.left(client)
        self._producers.left(caller.client)
        self.on_left(caller.client)
        if not caller.was_forwarded:
            await self._tell(NOTIFY_CLIENT_TERMINATION, request, caller, told)

    async def _tell(
        self,
        method: Method[Any, Any],
        request: Any,
        caller: Caller,
        brokers: list[tuple[str, str]],
    ) -> None:
        """A broker that does not learn of it believes that the client is silent, and waits."""

        async def tell(broker_name: str, topic: str) -> None:
            with contextlib.suppress(AerobeeError):
                await self._masters.tell(
                    method,
                    request,
                    caller,
                    topic=topic,
                    broker_name=broker_name,
                    timeout_ms_max=_TELL_MS_MAX,
                )

        if brokers:
            await asyncio.gather(*(tell(*each) for each in brokers))
