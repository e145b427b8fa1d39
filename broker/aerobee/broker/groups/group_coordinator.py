"""What happens in consumer groups: who joins, who gets which queue, who is told.

Owns: the one place where members (consumer_groups), leases (queue_leases) and sessions meet, so
that a member's end always ends its leases and a lease's end always reaches its former holder, the
running pulls and the next in line, in this order. Sync, on the loop; time is passed in.
Invariants: every holder of a lease is a member; a lease is announced only after its previous
holder's last possible commit, because granting and committing are steps of one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aerobee.broker.groups.consumer_groups import ConsumerGroups, Member, Subscription
from aerobee.broker.groups.queue_leases import Lease, QueueKey, QueueLeases
from aerobee.runtime.errors import Busy, GroupDeleted, InvalidArgument, MqError, UnknownMember

QUEUES_PER_MEMBER_MAX = 65_536
"""Leases and wishes of one member; a client that asks for more is broken."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """What clustering members see of their group."""

    members: tuple[Member, ...]
    generation: int


class Session(Protocol):
    """A member's stream, as the coordinator sees it. None of this waits."""

    def on_members(self, view: GroupView) -> None: ...

    def on_granted(self, lease: Lease) -> None: ...

    def on_revoked(self, lease: Lease, reason: str) -> None: ...

    def on_ended(self, error: MqError) -> None:
        """The session is over, or goes on over another stream; this stream ends with `error`."""
        ...


class GroupCoordinator:
    """Members, leases and their announcements, for all groups of this broker."""

    def __init__(
        self,
        groups: ConsumerGroups,
        leases: QueueLeases,
        *,
        on_lease_ended: Callable[[Lease], None],
        on_views_changed: Callable[[], None],
        is_acting: Callable[[], bool] = lambda: True,
    ) -> None:
        """`on_lease_ended` stops running pulls. `on_views_changed` is called when `push_views`
        should be called soon: once per turn of the loop is enough. `is_acting`: whether this broker
        may decide about queues at this moment."""
        self._groups = groups
        self._leases = leases
        self._on_lease_ended = on_lease_ended
        self._on_views_changed = on_views_changed
        self.is_acting = is_acting
        self._sessions: dict[tuple[str, str], Session] = {}
        self._changed: set[str] = set()
        self._holding_views_back = False
        self._has_lapsed = False

    def __repr__(self) -> str:
        return f"GroupCoordinator({self._groups!r}, {self._leases!r})"

    @property
    def groups(self) -> ConsumerGroups:
        return self._groups

    @property
    def leases(self) -> QueueLeases:
        return self._leases

    # ---------------------------------------------------------------------- a member's requests

    def join(
        self, member: Member, presented: Sequence[tuple[QueueKey, int]], session: Session
    ) -> list[Lease]:
        """A member opens a stream; returns the presented leases that it still holds.

        Raises:
            DuplicateClient: another live instance has this client id.
        """
        self.expire(member.last_heartbeat_s)
        present = self._groups.get(member.group, member.client_id)
        believes_until_s = None if present is None else present.deadline_s
        changed = self._groups.join(member)
        name = (member.group, member.client_id)
        superseded = self._sessions.get(name)
        self._sessions[name] = session
        if superseded is not None:
            superseded.on_ended(UnknownMember("the same member has opened another stream"))
        confirmed, ended, granted = self._leases.resume(
            *name, () if member.broadcasting else presented, believes_until_s
        )
        self._announce(ended, granted, "its member has joined again and did not show this lease")
        if changed:
            self._note_change(member.group)
        elif not self._holding_views_back:
            session.on_members(self.view(member.group))
        return confirmed

    def heartbeat(
        self,
        member: Member,
        now_s: float,
        subscriptions: Sequence[Subscription] | None,
    ) -> int:
        """Prolong a session; returns the group's generation.

        Raises:
            UnknownMember: the session is over.
        """
        if self._groups.heartbeat(
            member.group, member.client_id, member.instance, now_s, subscriptions
        ):
            self._note_change(member.group)
        return self._groups.generation(member.group)

    def acquire(self, member: Member, topic: str, queue_id: int, now_s: float) -> None:
        """Ask for a queue; the session is told when it is granted.

        Raises:
            UnknownMember: the session is over.
            InvalidArgument: broadcasting members take no leases; a queue id below 0.
            Busy: the member asks for more queues than anyone can need.
        """
        self._groups.alive_member(member.group, member.client_id, member.instance, now_s)
        if member.broadcasting:
            raise InvalidArgument("a broadcasting member reads every queue and takes no leases")
        if queue_id < 0:
            raise InvalidArgument(f"queue id {queue_id} is below 0")
        if self._leases.wish_count(member.group, member.client_id) >= QUEUES_PER_MEMBER_MAX:
            raise Busy(
                f"{member.client_id!r} holds or awaits {QUEUES_PER_MEMBER_MAX} queues already; "
                "release some"
            )
        self.expire(now_s)
        lease = self._leases.acquire(QueueKey(member.group, topic, queue_id), member.client_id)
        if lease is not None:
            self._announce((), (lease,), "")

    def release(self, member: Member, topic: str, queue_id: int, epoch: int) -> None:
        """Give a queue back, or withdraw the wish for it. Nothing happens under an old epoch."""
        key = QueueKey(member.group, topic, queue_id)
        ended, granted = self._leases.release(key, member.client_id, epoch)
        if ended is not None:
            self._on_lease_ended(ended)
        self._announce((), granted, "")

    def leave(self, member: Member) -> None:
        """End a session and its leases at once."""
        left = self._groups.leave(member.group, member.client_id, member.instance)
        if left is None:
            return
        self._sessions.pop((left.group, left.client_id), None)
        self._drop_leases(left, "the member has left")
        if not left.broadcasting:
            self._note_change(left.group)

    def detach(self, member: Member, session: Session) -> None:
        """A stream has ended without a Leave: the member keeps its leases until its deadline, but
        queues that it could not hear of are not kept for it."""
        name = (member.group, member.client_id)
        if self._sessions.get(name) is session:
            del self._sessions[name]
            self._leases.forget_wishes(*name)

    # ---------------------------------------------------------------------- others' decisions

    def revoke(self, key: QueueKey, reason: str) -> None:
        """Take a queue from its holder, who is told at once."""
        holder = self._leases.holder(key)
        if holder is None:
            return
        member = self._groups.get(key.group, holder.client_id)
        assert member is not None, "every holder of a lease is a member"
        believes_until_s = member.last_heartbeat_s + member.session_timeout_s
        ended = self._leases.revoke(key, believes_until_s)
        if ended is not None:
            self._announce((ended,), (), reason)

    def revoke_topic(self, topic: str, reason: str) -> None:
        """Take all queues of a topic from their holders."""
        for lease in self._leases.all_held():
            if lease.key.topic == topic:
                self.revoke(lease.key, reason)

    def close_group(self, group: str) -> int:
        """End the sessions of all members of a group, and their leases; returns how many there
        were. Nobody gets such a queue before its former holder can have noticed."""
        held = self._leases.held(group)
        members = self._groups.members(group)
        for member in members:
            self._leases.forget_wishes(group, member.client_id)
            for lease in held:
                if lease.client_id == member.client_id:
                    self._leases.revoke(lease.key, member.deadline_s)
                    self._on_lease_ended(lease)
            self._groups.leave(group, member.client_id, member.instance)
            session = self._sessions.pop((group, member.client_id), None)
            if session is not None:
                session.on_ended(
                    GroupDeleted(
                        f"group {group} is being deleted by an operator; joining again begins a "
                        "new group"
                    )
                )
        return len(members)

    def expire(self, now_s: float) -> None:
        """End the sessions whose time is up, and the grace after an unclean stop. A master that may
        not act leaves all as it is: queues may be another one's to grant by now."""
        if not self.is_acting():
            self._has_lapsed = True
            return
        if self._has_lapsed:
            # Members could prolong nothing meanwhile: they get a session's time to come back and
            # show their queues before those go to others.
            self._has_lapsed = False
            self._groups.begin_anew(now_s)
            self._leases.prolong(now_s + self._groups.session_timeout_max_s)
        for member in self._groups.expire(now_s):
            self._drop_leases(member, "the session has expired: no heartbeat came in time")
            session = self._sessions.pop((member.group, member.client_id), None)
            if session is not None:
                session.on_ended(
                    UnknownMember(
                        f"the session of {member.client_id!r} has expired: no heartbeat came for "
                        f"{member.session_timeout_s:g} s; join again"
                    )
                )
            if not member.broadcasting:
                self._note_change(member.group)
        self._announce((), self._leases.end_blocks(now_s), "")
        grace_end_s = self._leases.grace_end_s
        if grace_end_s is not None and now_s >= grace_end_s:
            self._announce((), self._leases.end_grace(), "")

    def next_expiry_s(self) -> float | None:
        """When `expire` may next have something to do."""
        times = [
            time_s
            for time_s in (
                self._groups.next_expiry_s(),
                self._leases.grace_end_s,
                self._leases.next_block_end_s(),
            )
            if time_s is not None
        ]
        return min(times, default=None)

    def is_current(self, key: QueueKey, epoch: int) -> bool:
        """Whether `epoch` is the present lease on the queue. Call `expire` first."""
        return self._leases.is_current(key, epoch)

    # ---------------------------------------------------------------------- views

    def hold_views_back(self) -> None:
        """After an unclean stop: let the members come back before anyone is told who is there,
        or the first to return would see itself alone and ask for every queue."""
        self._holding_views_back = True

    def release_views(self) -> None:
        """End `hold_views_back` and tell everybody."""
        self._holding_views_back = False
        for group in self._groups.names():
            self._note_change(group)

    def view(self, group: str) -> GroupView:
        return GroupView(
            tuple(self._groups.clustering_members(group)), self._groups.generation(group)
        )

    def push_views(self) -> None:
        """Tell the members of every group that changed since the last call."""
        changed, self._changed = self._changed, set()
        for group in sorted(changed):
            view = self.view(group)
            for member in self._groups.members(group):
                session = self._sessions.get((group, member.client_id))
                if session is not None:
                    session.on_members(view)

    # ---------------------------------------------------------------------- inside

    def _note_change(self, group: str) -> None:
        if self._holding_views_back:
            return
        if not self._changed:
            self._on_views_changed()
        self._changed.add(group)

    def _drop_leases(self, member: Member, reason: str) -> None:
        ended, granted = self._leases.drop_member(member.group, member.client_id)
        self._announce(ended, granted, reason)

    def _announce(self, ended: Sequence[Lease], granted: Sequence[Lease], reason: str) -> None:
        """Stop the old holders before the new ones hear of their luck."""
        for lease in ended:
            self._on_lease_ended(lease)
            session = self._sessions.get((lease.key.group, lease.client_id))
            if session is not None:
                session.on_revoked(lease, reason)
        for lease in granted:
            session = self._sessions.get((lease.key.group, lease.client_id))
            if session is not None:
                session.on_granted(lease)
