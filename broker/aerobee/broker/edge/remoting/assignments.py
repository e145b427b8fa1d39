"""Which queues a member shall read, for clients that do not divide them themselves."""

from __future__ import annotations

from aerobee.broker.edge.remoting.cluster import Cluster
from aerobee.broker.groups.self_assigned import SelfAssigned
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting.assignments import (
    assignment_body,
    read_assignment_asked,
    share_of,
)
from aerobee.rocketmq_remoting.heartbeats import Subscribed


class Assignments:
    """On the loop."""

    def __init__(self, cluster: Cluster, members: SelfAssigned[Subscribed]) -> None:
        self._cluster = cluster
        self._members = members

    async def query(self, connection: Connection, request: Command) -> Command:
        """Code 400. Raises AerobeeError.

        A member asks one broker for the queues of all. Each broker knows all members of a group.
        """
        asked = read_assignment_asked(request.body)
        queues = (await self._cluster.route(connection, asked.topic)).queues
        if not asked.is_broadcasting:
            members = self._members.client_ids(asked.group)
            queues = tuple(share_of(asked.client_id, members, queues))
        return request.answer(body=assignment_body(queues))
