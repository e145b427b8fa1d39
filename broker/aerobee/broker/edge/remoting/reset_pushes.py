"""Tells broadcasting members that an operator has set their group's offsets.

Clustered members learn it from the answer to their next pull, which is sooner: Apache's clients
stop for 10 s when they are told. Broadcasting members keep their offsets themselves, so their pulls
are not judged by the group's.

Owns: what was set and is not told yet.
"""

from __future__ import annotations

from typing import Final

from aerobee.broker.edge.remoting.teller import Teller, ToTell
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.groups.self_assigned import SelfAssigned
from aerobee.broker.offsets.consumer_offsets import ConsumerOffsets
from aerobee.cluster_view.route import MessageQueue
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_remoting import admin_bodies, json_bodies
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.rocketmq_remoting.heartbeats import Subscribed
from aerobee.rocketmq_remoting.queues import queue_object
from aerobee.runtime.clock import Clock

_QUEUES_PER_PUSH: Final = 256
"""20 KiB."""
_CPP: Final = "CPP"


class ResetPushes:
    """On the loop."""

    def __init__(
        self,
        broker_name: str,
        members: SelfAssigned[Subscribed],
        offsets: ConsumerOffsets,
        clock: Clock,
    ) -> None:
        self._broker_name = broker_name
        self._members = members
        self._offsets = offsets
        self._clock = clock
        self._set: dict[tuple[str, str], dict[int, int]] = {}
        """By group and topic: the new offset of each queue."""
        self._teller = Teller(lambda: bool(self._set), self._to_tell)

    def offset_set(self, key: GroupQueue) -> None:
        """A group's offset was set by an operator, or removed."""
        offset = self._offsets.query(key)
        if offset is not None:
            self._set.setdefault((key.group, key.topic), {})[key.queue_id] = offset
            self._teller.soon()

    def _to_tell(self) -> ToTell:
        told, self._set = self._set, {}
        for (group, topic), offsets in told.items():
            queues = sorted(offsets.items())
            for member in self._members.members(group):
                connection = member.connection
                if not (member.is_broadcasting and topic in member.wants):
                    continue
                if isinstance(connection, Connection):
                    for begin in range(0, len(queues), _QUEUES_PER_PUSH):
                        if connection.is_paused:
                            break  # it reads nothing
                        some = queues[begin : begin + _QUEUES_PER_PUSH]
                        language = str(member.facts[0])
                        yield connection, self._push(group, topic, some, language)

    def _push(
        self, group: str, topic: str, offsets: list[tuple[int, int]], language: str
    ) -> Command:
        """Code 220."""
        queues = [
            (queue_object(MessageQueue(topic, self._broker_name, queue_id)), offset)
            for queue_id, offset in offsets
        ]
        if language == _CPP:
            body = {"offsetTable": [{**queue, "offset": offset} for queue, offset in queues]}
        else:
            body = admin_bodies.offsets_body(queues)
        fields = {
            "group": group,
            "isForce": "true",
            "timestamp": str(self._clock.now_ms()),
            "topic": topic,
        }
        return Command(Ask.RESET_CONSUMER_CLIENT_OFFSET, fields, json_bodies.write(body))
