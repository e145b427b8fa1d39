"""How a group's members share the queues of a topic: from queues and members to one's own share.
PURE.

Every member computes its own share from the same sorted lists, so that the shares fit together
without a coordinator. If views differ for a moment, the queue leases keep a queue from having two
owners; a strategy only has to give each queue exactly one owner among equal views.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aerobee.cluster_view.route import MessageQueue
from aerobee.runtime.errors import InvalidArgument


class RebalanceStrategy(Protocol):
    """Deterministic, and equal on all members of a group."""

    @property
    def name(self) -> str:
        """Apache RocketMQ's name of the strategy, if it has one."""
        ...

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        """The queues of member `me`.

        Args:
            queues: one topic's queues, ascending, each once.
            members: client ids of the group's members, ascending, each once.
            me: a client id; if it is not among the members it owns nothing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Averagely:
    """Contiguous shares of equal size: the default. They differ by at most one queue; the first
    members get the longer ones.

    Ten queues among four members: [0-2] [3-5] [6,7] [8,9].
    """

    @property
    def name(self) -> str:
        return "AVG"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        index = members.index(me)
        share, longer = divmod(len(queues), len(members))
        start = index * share + min(index, longer)
        return list(queues[start : start + share + (index < longer)])


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Every c-th queue for each of c members: neighbouring queues, often of one broker, are
    spread."""

    @property
    def name(self) -> str:
        return "AVG_BY_CIRCLE"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        return list(queues[members.index(me) :: len(members)])


@dataclass(frozen=True, slots=True)
class ByConfiguration:
    """This member owns the listed queues that exist, regardless of other members.

    It is up to the operator that the lists of all members fit together: a queue on no list is not
    read; a queue on two lists is read by the member that gets its lease first.
    """

    mine: frozenset[MessageQueue]

    @property
    def name(self) -> str:
        return "CONFIG"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        return [queue for queue in queues if queue in self.mine] if me in members else []


def ring_hash(text: str) -> int:
    """The first four bytes of the MD5, as an unsigned number."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def queue_text(queue: MessageQueue) -> str:
    """The text of a queue that is hashed."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Each member has `virtual_nodes` places on the ring; a queue goes to the next place. A member
    that joins or leaves moves few queues.

    Hash and key texts are Apache RocketMQ's, so that members of both clients would agree.

    Shares are uneven; use `Sticky` for shares that are both stable and even.
    """

    virtual_nodes: int = 10

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise InvalidArgument(f"virtual_nodes must be at least 1, not {self.virtual_nodes}")

    @property
    def name(self) -> str:
        return "CONSISTENT_HASH"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        # Two nodes with the same hash: the later member gets the place, on every client.
        ring = {
            ring_hash(f"{member}-{node}"): member
            for member in members
            for node in range(self.virtual_nodes)
        }
        hashes = sorted(ring)
        return [queue for queue in queues if _owner(ring, hashes, queue) == me]


def _owner(ring: dict[int, str], hashes: list[int], queue: MessageQueue) -> str:
    position = bisect_left(hashes, ring_hash(queue_text(queue)))
    return ring[hashes[position % len(hashes)]]


@dataclass(frozen=True, slots=True)
class Sticky:
    """Shares differ by at most one queue, and mostly stay where they were.

    No member knows what the others own, so stability cannot come from memory; it comes from a
    ranking that does not depend on the other members. Each pair of queue and member has a fixed
    weight; pairs are processed from the heaviest on, and a queue goes to the first member that
    still has room. With room for everybody's even share this is rendezvous hashing with a bound on
    the load.
    """

    @property
    def name(self) -> str:
        return "STICKY"

    def allocate(
        self, queues: Sequence[MessageQueue], members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        if me not in members:
            return []
        share, longer = divmod(len(queues), len(members))
        pairs = sorted(
            ((_weight(queue, member), queue, member) for queue in queues for member in members),
            reverse=True,
        )
        owned: dict[str, list[MessageQueue]] = {member: [] for member in members}
        placed: set[MessageQueue] = set()
        for _, queue, member in pairs:
            # `longer` members may have one queue more than the others.
            room = share + 1 if longer else share
            if queue in placed or len(owned[member]) >= room:
                continue
            owned[member].append(queue)
            placed.add(queue)
            if len(owned[member]) > share:
                longer -= 1
        return sorted(owned[me])


def _weight(queue: MessageQueue, member: str) -> int:
    return ring_hash(f"{queue_text(queue)} {member}")


ROOM_SEPARATOR = "@"


def room_of_name(name: str) -> str:
    """The part before the first `@` of a broker name or client id; empty without one."""
    room, separator, _ = name.partition(ROOM_SEPARATOR)
    return room if separator else ""


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Only queues of brokers named `room@...` with a room of the given set, shared evenly.

    The other queues are meant for other groups: no member of this one reads them.
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
    """Queues go to members of their own room; those of a room without members are shared by all.

    `inner` shares each part; `room_of_queue` and `room_of_member` tell the room, by default from
    names like `room@broker-a` and `room@10.0.0.5@77`.
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
