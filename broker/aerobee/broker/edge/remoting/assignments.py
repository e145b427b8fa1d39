"""Which queues a member shall read, for clients that do not divide them themselves."""

from __future__ import annotations

from aerobee.broker.edge.remoting.cluster import Cluster
from aerobee.broker.edge.remoting.modes import Modes
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.self_assigned import SelfAssigned
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting.assignments import (
    assignment_body,
    popped_queues,
    read_assignment_asked,
    share_of,
)
from aerobee.rocketmq_remoting.heartbeats import Subscribed
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX


class Assignments:
    """On the loop."""

    def __init__(self, cluster: Cluster, members: SelfAssigned[Subscribed], modes: Modes) -> None:
        self._cluster = cluster
        self._members = members
        self._modes = modes

    async def query(self, connection: Connection, request: Command) -> Command:
        """Code 400. Raises AerobeeError.

        A member asks one broker for the queues of all. Each broker knows all members of a group.
        """
        asked = read_assignment_asked(request.body)
        group, topic = asked.group, asked.topic
        queues = (await self._cluster.route(connection, topic)).queues
        if asked.is_broadcasting:
            return request.answer(body=assignment_body(queues))
        if self._modes.is_pop(group, topic):
            return request.answer(body=assignment_body(popped_queues(topic, queues), is_pop=True))
        if topic == RETRY_PREFIX + group and not self._members.has(GroupQueue(group, topic, 0)):
            return request.answer(body=assignment_body(()))  # it comes with the other topics
        members = self._members.client_ids(group)
        return request.answer(body=assignment_body(share_of(asked.client_id, members, queues)))
