"""Groups whose members divide the queues among themselves, and do not tell how.

Owns: who is in such a group here, what each member wants, and which queues members have locked to
consume them in order. Pure: the caller passes the monotonic time.

A queue is the group's own while one of its clustering members wants its topic. It excludes leases
and POP as they exclude each other; which member reads it is not this broker's business. So for some
seconds two may, whenever the members do not agree, which is how this protocol works.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.runtime.errors import Busy
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX

SESSION_S: Final = 120.0
"""How long a member may be silent; it says something every 30 s."""
LOCK_S: Final = 60.0
"""How long a lock lasts; its holder renews it every 20 s."""
MEMBERS_MAX: Final = 2_000
"""Of one group: each is told when another comes or goes."""

W = TypeVar("W")
"""What a member wants of a topic."""


@dataclass(slots=True)
class SelfMember(Generic[W]):
    """One client in one group."""

    client_id: str
    connection: Hashable
    """It is gone with this."""
    is_broadcasting: bool
    wants: Mapping[str, W]
    """By topic."""
    title: str = ""
    """What kind of client it is, for display."""
    facts: tuple[Any, ...] = ()
    """What else it said of itself; its protocol knows what each of them is."""
    deadline_s: float = 0.0

    @property
    def heard_s(self) -> float:
        """When it was heard last, in monotonic seconds."""
        return self.deadline_s - SESSION_S


class SelfAssigned(Generic[W]):
    """The groups of one broker."""

    def __init__(self, is_popped: Callable[[str, str], bool] = lambda group, topic: False) -> None:
        """`is_popped`: whether the members of a group take a topic by POP, although they are of
        this kind."""
        self._is_popped = is_popped
        self._groups: dict[str, dict[str, SelfMember[W]]] = {}
        self._of_connection: dict[Hashable, set[tuple[str, str]]] = {}
        self._locks: dict[GroupQueue, tuple[str, float]] = {}

    def __repr__(self) -> str:
        members = sum(map(len, self._groups.values()))
        return f"SelfAssigned(groups={len(self._groups)}, members={members})"

    # ------------------------------------------------------------------------------ members

    def heard(self, group: str, member: SelfMember[W], now_s: float) -> bool:
        """A member says that it is there; whether others must divide the queues again.

        Raises:
            Busy: the group has too many members.
        """
        members = self._groups.setdefault(group, {})
        before = members.get(member.client_id)
        if before is None and len(members) >= MEMBERS_MAX:
            raise Busy(f"group {group} has {MEMBERS_MAX} members already; use fewer")
        if before is not None and before.connection is not member.connection:
            self._forget(group, before)
        member.deadline_s = now_s + SESSION_S
        members[member.client_id] = member
        self._of_connection.setdefault(member.connection, set()).add((group, member.client_id))
        return before is None or before.wants.keys() != member.wants.keys()

    def left(self, group: str, client_id: str, connection: Hashable) -> bool:
        """A member leaves; whether it was there, on this connection."""
        member = self._groups.get(group, {}).get(client_id)
        if member is None or member.connection is not connection:
            return False
        self._remove(group, member)
        return True

    def disconnected(self, connection: Hashable) -> set[str]:
        """Its members are gone; returns their groups."""
        gone = list(self._of_connection.get(connection, ()))
        for group, client_id in gone:
            self._remove(group, self._groups[group][client_id])
        return {group for group, _ in gone}

    def expire(self, now_s: float) -> set[str]:
        """Members that were silent for too long are gone; returns their groups."""
        late = [
            (group, member)
            for group, members in self._groups.items()
            for member in members.values()
            if member.deadline_s <= now_s
        ]
        for group, member in late:
            self._remove(group, member)
        return {group for group, _ in late}

    def members(self, group: str) -> Iterator[SelfMember[W]]:
        return iter(list(self._groups.get(group, {}).values()))

    def in_order(self, group: str) -> list[SelfMember[W]]:
        """Its members by client id."""
        members = self._groups.get(group, {})
        return [members[client_id] for client_id in sorted(members)]

    def groups(self) -> list[str]:
        """Those that have members."""
        return list(self._groups)

    def client_ids(self, group: str) -> list[str]:
        """Sorted."""
        return sorted(self._groups.get(group, ()))

    def member(self, group: str, client_id: str) -> SelfMember[W] | None:
        return self._groups.get(group, {}).get(client_id)

    def of_connection(self, group: str, connection: Hashable) -> SelfMember[W] | None:
        """The member of a group that a connection belongs to, if there is one."""
        for name, client_id in self._of_connection.get(connection, ()):
            if name == group:
                return self._groups[group][client_id]
        return None

    def wish(self, group: str, topic: str) -> W | None:
        """What a member of the group wants of a topic; None: no member wants any of it."""
        for member in self._groups.get(group, {}).values():
            found = member.wants.get(topic)
            if found is not None:
                return found
        return None

    def has(self, key: GroupQueue) -> bool:
        """Whether the group consumes the queue by itself."""
        members = self._groups.get(key.group)
        if not members:
            return False
        group, topic = key.group, key.topic
        if topic == RETRY_PREFIX + group:
            return any(
                wanted != topic and not self._is_popped(group, wanted)
                for member in members.values()
                if not member.is_broadcasting
                for wanted in member.wants
            )
        return any(
            not member.is_broadcasting and topic in member.wants for member in members.values()
        ) and not self._is_popped(group, topic)

    def clear(self) -> None:
        """This replica is not the master any more: nobody holds a lock here."""
        self._locks.clear()

    def _remove(self, group: str, member: SelfMember[W]) -> None:
        members = self._groups[group]
        del members[member.client_id]
        if not members:
            del self._groups[group]
        self._forget(group, member)
        for key in [key for key, (holder, _) in self._locks.items() if holder == member.client_id]:
            if key.group == group:
                del self._locks[key]

    def _forget(self, group: str, member: SelfMember[W]) -> None:
        names = self._of_connection[member.connection]
        names.discard((group, member.client_id))
        if not names:
            del self._of_connection[member.connection]

    # ------------------------------------------------------------------------------ locks

    def lock(self, key: GroupQueue, client_id: str, now_s: float) -> bool:
        """Take or renew the lock of a queue; whether the client holds it now."""
        holder, until_s = self._locks.get(key, (client_id, 0.0))
        if holder != client_id and now_s < until_s:
            return False
        self._locks[key] = client_id, now_s + LOCK_S
        return True

    def unlock(self, key: GroupQueue, client_id: str) -> None:
        """Does nothing for a lock that another client holds."""
        if self._locks.get(key, ("", 0.0))[0] == client_id:
            del self._locks[key]

    def locked_by(self, key: GroupQueue, now_s: float) -> str:
        """The client that holds the lock of a queue; empty: nobody."""
        holder, until_s = self._locks.get(key, ("", 0.0))
        return holder if now_s < until_s else ""
