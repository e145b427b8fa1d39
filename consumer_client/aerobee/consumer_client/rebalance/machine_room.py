"""Shares that respect where brokers and members stand. PURE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aerobee.cluster_view.route import MessageQueue
from aerobee.consumer_client.rebalance.strategy import RebalanceStrategy

ROOM_SEPARATOR = "@"


def room_of_name(name: str) -> str:
    """The part before the first `@` of a broker name or client id; empty without one."""
    room, separator, _ = name.partition(ROOM_SEPARATOR)
    return room if separator else ""


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Only queues of brokers named `room@...` with a room of the given set, shared evenly.

    The other queues are meant for other groups: nobody of this one reads them.
    """

    rooms: frozenset[str]

    @property
    def name(self) -> str:
        return "MACHINE_ROOM"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        mine = [queue for queue in queues if room_of_name(queue.broker_name) in self.rooms]
        index = members.index(me)
        share, rest = divmod(len(mine), len(members))
        allocated = mine[index * share : (index + 1) * share]
        if index < rest:
            allocated.append(mine[index + share * len(members)])
        return allocated


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues go to members of their own room; those of a room without members, to all.

    `inner` shares each part; `room_of_queue` and `room_of_member` tell where something stands, by
    default from names like `room@broker-a` and `room@10.0.0.5@77`.
    """

    inner: RebalanceStrategy
    room_of_queue: Callable[[MessageQueue], str] = lambda queue: room_of_name(queue.broker_name)
    room_of_member: Callable[[str], str] = room_of_name

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_by_room.setdefault(self.room_of_queue(queue), []).append(queue)
        members_by_room: dict[str, list[str]] = {}
        for member in members:
            members_by_room.setdefault(self.room_of_member(member), []).append(member)
        my_room = self.room_of_member(me)
        allocated: list[MessageQueue] = []
        for room, in_room in sorted(queues_by_room.items()):
            if room == my_room:
                allocated += self.inner.allocate(in_room, members_by_room[room], me)
            elif room not in members_by_room:
                allocated += self.inner.allocate(in_room, members, me)
        return allocated
