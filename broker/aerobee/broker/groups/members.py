"""Who is in each consumer group, and until when.

Owns: the members of all groups on this broker and their sessions. Pure: callers pass the monotonic
time, nothing here waits or sends.
Invariants: a client id occurs once in a group; a group exists while it has members; its generation
rises with every change that clustering members see, and never falls while the broker runs. What all
members of a group see of each other is bounded, so that it always fits one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aerobee.runtime.errors import Busy, DuplicateClient, InvalidArgument, UnknownMember

SUBSCRIPTIONS_PER_MEMBER_MAX = 1_024
SUBSCRIPTION_BYTES_MAX = 64 * 1024
"""Limit for one member: all its topics and filters."""
VIEW_BYTES_MAX = 1024 * 1024
"""Limit for one group: what its members are told of each other whenever one of them changes."""
_OVERHEAD_BYTES = 16
"""Added for each member and subscription, besides its texts."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic that a member wants, with its filter as written."""

    topic: str
    expression: str = "*"
    is_sql: bool = False


@dataclass(slots=True)
class Member:
    """One client's session in one group. Times are monotonic seconds."""

    group: str
    client_id: str
    instance: str
    subscriptions: tuple[Subscription, ...]
    broadcasting: bool
    session_timeout_s: float
    last_heartbeat_s: float
    user: str = ""
    """Whose it is; empty without access control."""
    address: str = ""
    """host:port of its newest stream; empty: not since this run began."""
    version: str = ""
    """Of its library, if it says so."""

    def is_of(self, other: Member) -> bool:
        """Whether the other is the same process, as far as both can prove it."""
        is_same_user = not (self.user and other.user) or self.user == other.user
        return self.instance == other.instance and is_same_user

    @property
    def name(self) -> tuple[str, str]:
        """The key under which a member is known on this broker."""
        return self.group, self.client_id

    @property
    def deadline_s(self) -> float:
        """The session ends at this moment unless a heartbeat comes."""
        return self.last_heartbeat_s + self.session_timeout_s

    @property
    def view_bytes(self) -> int:
        """The approximate size of what others are told of it."""
        return (
            _OVERHEAD_BYTES + len(self.client_id.encode()) + subscription_bytes(self.subscriptions)
        )

    def is_alive(self, now_s: float) -> bool:
        return now_s < self.deadline_s


def subscription_bytes(subscriptions: Iterable[Subscription]) -> int:
    return sum(
        _OVERHEAD_BYTES + len(one.topic.encode()) + len(one.expression.encode())
        for one in subscriptions
    )


def check_subscriptions(subscriptions: Sequence[Subscription]) -> None:
    """Raises InvalidArgument if there are more than a member may have."""
    size = subscription_bytes(subscriptions)
    if size > SUBSCRIPTION_BYTES_MAX:
        raise InvalidArgument(
            f"the member's {len(subscriptions)} subscriptions take {size} bytes; at most "
            f"{SUBSCRIPTION_BYTES_MAX} are allowed: subscribe to fewer topics, or shorten filters"
        )


class Members:
    """Members by group and client id."""

    __slots__ = ("_earliest_s", "_generations", "_groups", "_view_bytes", "view_changes")

    def __init__(self) -> None:
        # No session ends before this; heartbeats only move ends further away.
        self._earliest_s = float("inf")
        self._groups: dict[str, dict[str, Member]] = {}
        # For each group that has members: the sum over them.
        self._view_bytes: dict[str, int] = {}
        # Kept for groups without members too, so that a generation never repeats.
        self._generations: dict[str, int] = {}
        self.view_changes = 0
        """How often clustering members came, went, or changed topics, in any group."""

    def __repr__(self) -> str:
        return f"Members(groups={len(self._groups)}, members={self.member_count})"

    def join(self, member: Member) -> bool:
        """Add a member, or let the same instance resume its session.

        Returns whether the clustering members' view of the group changed.

        Raises:
            DuplicateClient: another instance has this client id and its session is alive.
            Busy: the group's view would not fit one message.
        """
        present = self.get(member.group, member.client_id)
        if (
            present is not None
            and not present.is_of(member)
            and present.is_alive(member.last_heartbeat_s)
        ):
            left_s = present.deadline_s - member.last_heartbeat_s
            raise DuplicateClient(
                f"client id {member.client_id!r} is in use in group {member.group!r}; choose "
                f"another, or wait {left_s:.1f} s if its process has died"
            )
        before = 0 if present is None else present.view_bytes
        self._take_view_bytes(member.group, member.view_bytes - before)
        return self._put(member, before=present)

    def restore(self, member: Member) -> None:
        """Take over a member admitted by the last run. The bound of the view applies only to
        joining members: it must not cost a member its queues, or prevent a broker from starting."""
        present = self.get(member.group, member.client_id)
        before = 0 if present is None else present.view_bytes
        size = self._view_bytes.get(member.group, 0)
        self._view_bytes[member.group] = size + member.view_bytes - before
        self._put(member, before=present)

    def heartbeat(
        self,
        group: str,
        client_id: str,
        instance: str,
        now_s: float,
        subscriptions: Sequence[Subscription] | None = None,
    ) -> bool:
        """Prolong a session, with new subscriptions unless None; True if the view changed.

        Raises:
            UnknownMember: never joined, left, expired, or replaced by another instance.
            Busy: as `join`.
        """
        member = self.alive_member(group, client_id, instance, now_s)
        member.last_heartbeat_s = now_s
        if subscriptions is None or member.subscriptions == tuple(subscriptions):
            return False
        more = subscription_bytes(subscriptions) - subscription_bytes(member.subscriptions)
        self._take_view_bytes(group, more)
        member.subscriptions = tuple(subscriptions)
        if not member.broadcasting:
            self._generations[group] += 1
            self.view_changes += 1
        return not member.broadcasting

    def alive_member(self, group: str, client_id: str, instance: str, now_s: float) -> Member:
        """The member of this very session.

        Raises:
            UnknownMember: as `heartbeat`.
        """
        member = self._groups.get(group, {}).get(client_id)
        if member is None or member.instance != instance or not member.is_alive(now_s):
            raise UnknownMember(
                f"{client_id!r} is not a member of group {group!r}, or no longer; join again"
            )
        return member

    def leave(self, group: str, client_id: str, instance: str) -> Member | None:
        """Remove a member; None if this instance was not there."""
        member = self._groups.get(group, {}).get(client_id)
        if member is None or member.instance != instance:
            return None
        self._remove(member)
        return member

    def expire(self, now_s: float) -> list[Member]:
        """Remove and return the members whose sessions have ended."""
        if now_s < self._earliest_s:
            return []
        expired = [member for member in self.all_members() if not member.is_alive(now_s)]
        for member in expired:
            self._remove(member)
        earliest_s = self.next_expiry_s()
        self._earliest_s = float("inf") if earliest_s is None else earliest_s
        return expired

    def clear(self) -> None:
        """Forget all members: they belong to another broker now."""
        for member in list(self.all_members()):
            self._remove(member)

    def begin_anew(self, now_s: float) -> None:
        """Give every member a full session from now on."""
        for member in self.all_members():
            member.last_heartbeat_s = max(member.last_heartbeat_s, now_s)

    @property
    def session_timeout_max_s(self) -> float:
        """The longest session of the present members; 0 if there are none."""
        return max((member.session_timeout_s for member in self.all_members()), default=0.0)

    def forget(self, group: str) -> None:
        """Forget a group without members: a later join starts a new group."""
        if group not in self._groups:
            self._generations.pop(group, None)

    def next_expiry_s(self) -> float | None:
        """When `expire` may next find something; None without members."""
        return min((member.deadline_s for member in self.all_members()), default=None)

    def get(self, group: str, client_id: str) -> Member | None:
        return self._groups.get(group, {}).get(client_id)

    def members(self, group: str) -> list[Member]:
        """All members, sorted by client id."""
        return sorted(self._groups.get(group, {}).values(), key=lambda member: member.client_id)

    def clustering_members(self, group: str) -> list[Member]:
        """The members that share the group's queues, sorted by client id."""
        return [member for member in self.members(group) if not member.broadcasting]

    def all_members(self) -> Iterable[Member]:
        return (member for members in self._groups.values() for member in members.values())

    def generation(self, group: str) -> int:
        return self._generations.get(group, 0)

    def names(self) -> list[str]:
        """Groups that have members, sorted."""
        return sorted(self._groups)

    @property
    def member_count(self) -> int:
        return sum(len(members) for members in self._groups.values())

    def _put(self, member: Member, *, before: Member | None) -> bool:
        self._groups.setdefault(member.group, {})[member.client_id] = member
        self._earliest_s = min(self._earliest_s, member.deadline_s)
        return self._note_change(member.group, before=before, after=member)

    def _take_view_bytes(self, group: str, more: int) -> None:
        """Raises Busy if the group's view would become too long; shrinking always succeeds."""
        size = self._view_bytes.get(group, 0) + more
        if more > 0 and size > VIEW_BYTES_MAX:
            raise Busy(
                f"the members of group {group!r} and their subscriptions would take {size} bytes; "
                f"at most {VIEW_BYTES_MAX} are allowed in one group: use fewer members or "
                "subscriptions, or another group"
            )
        self._view_bytes[group] = size

    def _remove(self, member: Member) -> None:
        members = self._groups[member.group]
        del members[member.client_id]
        self._view_bytes[member.group] -= member.view_bytes
        if not members:
            del self._groups[member.group]
            del self._view_bytes[member.group]
        self._note_change(member.group, before=member, after=None)

    def _note_change(self, group: str, *, before: Member | None, after: Member | None) -> bool:
        """Raise the generation if clustering members see a difference."""
        if _seen(before) == _seen(after):
            self._generations.setdefault(group, 0)
            return False
        self._generations[group] = self._generations.get(group, 0) + 1
        self.view_changes += 1
        return True


def _seen(member: Member | None) -> tuple[str, tuple[Subscription, ...]] | None:
    """What other members can see of a member."""
    if member is None or member.broadcasting:
        return None
    return member.client_id, member.subscriptions
