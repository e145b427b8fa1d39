"""Groups whose members divide the queues among themselves, and do not tell how.

Owns: who is in such a group here, what each member wants, and which queues members have locked to
consume them in order. Pure: the caller passes the monotonic time.

A member is a connection, not a client id: broadcasting members of one host have one id together,
and a client that connects again may come before its former connection has ended. Those who divide
queues, and hold locks, are ids; each counts once.

A queue is the group's own while one of its clustering members wants its topic. It excludes leases
and POP as they exclude each other; which member reads it is not this broker's business. So for some
seconds two may, whenever the members do not agree, which is how this protocol works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
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
    """One connection of a client in one group."""

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


@dataclass(slots=True)
class _Group(Generic[W]):
    """Invariant: `ids` counts the members of each client id; none is 0."""

    members: dict[Hashable, SelfMember[W]] = field(default_factory=dict)
    """By connection."""
    ids: Counter[str] = field(default_factory=Counter)


class SelfAssigned(Generic[W]):
    """The groups of one broker."""

    def __init__(self, is_popped: Callable[[str, str], bool] = lambda group, topic: False) -> None:
        """`is_popped`: whether the members of a group take a topic by POP, although they are of
        this kind."""
        self._is_popped = is_popped
        self._groups: dict[str, _Group[W]] = {}
        self._of_connection: dict[Hashable, set[str]] = {}
        self._locks: dict[GroupQueue, tuple[str, float]] = {}

    def __repr__(self) -> str:
        members = sum(len(group.members) for group in self._groups.values())
        return f"SelfAssigned(groups={len(self._groups)}, members={members})"

    # ------------------------------------------------------------------------------ members

    def heard(self, group: str, member: SelfMember[W], now_s: float) -> bool:
        """A member says that it is there; whether others must divide the queues again.

        Raises:
            Busy: the group has too many members.
        """
        found = self._groups.get(group) or _Group()
        before = found.members.get(member.connection)
        if before is None and len(found.members) >= MEMBERS_MAX:
            raise Busy(f"group {group} has {MEMBERS_MAX} members already; use fewer")
        if before is not None and before.client_id != member.client_id:
            self._remove(group, before)
            before = None
        # Removing the last member has removed the group.
        found = self._groups.setdefault(group, found)
        known = before or self.member(group, member.client_id)
        if before is None:
            found.ids[member.client_id] += 1
            self._of_connection.setdefault(member.connection, set()).add(group)
        member.deadline_s = now_s + SESSION_S
        found.members[member.connection] = member
        return known is None or known.wants.keys() != member.wants.keys()

    def left(self, group: str, client_id: str, connection: Hashable) -> bool:
        """A member leaves; whether others must divide the queues again."""
        member = self.of_connection(group, connection)
        if member is None or member.client_id != client_id:
            return False
        return self._remove(group, member)

    def disconnected(self, connection: Hashable) -> set[str]:
        """Its members are gone; returns the groups that must divide their queues again."""
        gone = list(self._of_connection.get(connection, ()))
        return {
            group for group in gone if self._remove(group, self._groups[group].members[connection])
        }

    def expire(self, now_s: float) -> set[str]:
        """Members that were silent for too long are gone; returns the groups that must divide their
        queues again."""
        late = [
            (name, member)
            for name, group in self._groups.items()
            for member in group.members.values()
            if member.deadline_s <= now_s
        ]
        return {name for name, member in late if self._remove(name, member)}

    def members(self, group: str) -> Iterator[SelfMember[W]]:
        found = self._groups.get(group)
        return iter(() if found is None else list(found.members.values()))

    def in_order(self, group: str) -> list[SelfMember[W]]:
        """Its members by client id."""
        return sorted(self.members(group), key=lambda member: member.client_id)

    def groups(self) -> list[str]:
        """Those that have members."""
        return list(self._groups)

    def client_ids(self, group: str) -> list[str]:
        """Sorted, each once."""
        found = self._groups.get(group)
        return [] if found is None else sorted(found.ids)

    def member(self, group: str, client_id: str) -> SelfMember[W] | None:
        """Of several with this id, the one that was heard last."""
        found = self._groups.get(group)
        if found is None or client_id not in found.ids:
            return None
        ours = (each for each in found.members.values() if each.client_id == client_id)
        return max(ours, key=lambda member: member.deadline_s)

    def of_connection(self, group: str, connection: Hashable) -> SelfMember[W] | None:
        """The member of a group that a connection belongs to, if there is one."""
        found = self._groups.get(group)
        return None if found is None else found.members.get(connection)

    def wishes(self, group: str, topic: str) -> Iterator[W]:
        """What each member of the group that wants something of a topic wants of it."""
        found = (member.wants.get(topic) for member in self.members(group))
        return (wish for wish in found if wish is not None)

    def has(self, key: GroupQueue) -> bool:
        """Whether the group consumes the queue by itself."""
        found = self._groups.get(key.group)
        if found is None:
            return False
        group, topic = key.group, key.topic
        if topic == RETRY_PREFIX + group:
            return any(
                wanted != topic and not self._is_popped(group, wanted)
                for member in found.members.values()
                if not member.is_broadcasting
                for wanted in member.wants
            )
        return any(
            not member.is_broadcasting and topic in member.wants
            for member in found.members.values()
        ) and not self._is_popped(group, topic)

    def clear(self) -> None:
        """This replica is not the master any more: nobody holds a lock here."""
        self._locks.clear()

    def _remove(self, group: str, member: SelfMember[W]) -> bool:
        """Whether its client is gone with it, and so its locks."""
        found = self._groups[group]
        del found.members[member.connection]
        groups = self._of_connection[member.connection]
        groups.discard(group)
        if not groups:
            del self._of_connection[member.connection]
        found.ids[member.client_id] -= 1
        if found.ids[member.client_id]:
            return False
        del found.ids[member.client_id]
        if not found.members:
            del self._groups[group]
        for key in [key for key, (holder, _) in self._locks.items() if holder == member.client_id]:
            if key.group == group:
                del self._locks[key]
        return True

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
