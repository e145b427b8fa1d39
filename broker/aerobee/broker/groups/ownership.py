"""How each queue of a group is consumed: by a member under a lease, by POP, by members that divide
the queues among themselves, or not at all.

Owns: the exclusion between them, and so who may move the group's offset there; and what lease
holders are told. Synchronous, on the loop; time is passed in.
Invariants: every holder of a lease is a member; the end of a lease is announced to the running
pulls, its former holder and the next in line, in this order; to the next only after the last
possible commit of the former, because granting and committing run on one thread. While POP has a
queue, nobody gets or presents a lease on it; while a member may believe that it holds one, POP does
not get the queue. While a group assigns a queue itself, neither lease nor POP gets it; as long as
one of these has it, the group's own readers and commits are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from aerobee.broker.groups.members import Member, Members
from aerobee.broker.groups.queue_leases import GroupQueue, Lease, QueueLeases
from aerobee.broker.groups.self_assigned import SelfMember
from aerobee.runtime.errors import Busy, InvalidArgument, LeaseExpired, LeaseHeld

QUEUES_PER_MEMBER_MAX = 65_536
"""Leases and requests of one member; a client that asks for more is broken."""
RESET = "the group's offset on this queue was reset or deleted"
"""Why a lease is revoked."""


class Owner(StrEnum):
    """How a queue of a group is consumed."""

    NOBODY = "nobody"
    LEASE = "lease"
    POP = "pop"
    SELF = "self"
    """Members divide the group's queues among themselves; see `self_assigned`."""


class Claim(NamedTuple):
    """The capacity in which a caller moves the offset of a queue."""

    owner: Owner
    lease_epoch: int = 0
    """For a lease."""

    @classmethod
    def under(cls, lease_epoch: int) -> Claim:
        """A reader's claim, by the lease that it presents; 0: none."""
        return cls(Owner.LEASE, lease_epoch) if lease_epoch else cls(Owner.NOBODY)


NOBODYS: Final = Claim(Owner.NOBODY)
POPS: Final = Claim(Owner.POP)
SELFS: Final = Claim(Owner.SELF)
"""Of any member of such a group, or of one that is just leaving."""


class LeaseHolder(Protocol):
    """What a member is told of its leases. None of these methods waits."""

    def on_granted(self, lease: Lease) -> None: ...

    def on_revoked(self, lease: Lease, reason: str) -> None: ...


class Ownership:
    """The owners of all queues of all groups of this broker."""

    def __init__(
        self,
        members: Members,
        leases: QueueLeases,
        *,
        on_lease_ended: Callable[[Lease], None],
    ) -> None:
        """`on_lease_ended` stops running pulls."""
        self._members = members
        self.leases = leases
        self._on_lease_ended = on_lease_ended
        self._holders: dict[tuple[str, str], LeaseHolder] = {}
        self._is_popped: Callable[[GroupQueue], bool] = lambda key: False
        self._on_popped_wanted: Callable[[GroupQueue], None] = lambda key: None
        self._is_self_assigned: Callable[[GroupQueue], bool] = lambda key: False
        self.self_assigning: Callable[[str], Sequence[SelfMember[Any]]] = lambda group: ()
        """A group's members that assign its queues themselves, by client id."""
        self.self_assigned_groups: Callable[[], Sequence[str]] = lambda: ()

    def exclude_self_assigned(
        self,
        is_self_assigned: Callable[[GroupQueue], bool],
        members: Callable[[str], Sequence[SelfMember[Any]]] = lambda group: (),
        groups: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        """From here on queues have a fourth kind of owner: groups that assign them themselves.
        `members` of such a group are in no other list; `groups`: those that have any."""
        self._is_self_assigned = is_self_assigned
        self.self_assigning = members
        self.self_assigned_groups = groups

    def exclude_popped(
        self,
        is_popped: Callable[[GroupQueue], bool],
        on_wanted: Callable[[GroupQueue], None] = lambda key: None,
    ) -> None:
        """From here on queues have a third kind of owner. `is_popped`: whether POP consumes a
        queue; `on_wanted` is called for each such queue that a member asks for."""
        self._is_popped = is_popped
        self._on_popped_wanted = on_wanted

    def __repr__(self) -> str:
        return f"Ownership({self.leases!r})"

    # ---------------------------------------------------------------------- who may

    def owner(self, key: GroupQueue) -> Owner:
        if self._is_popped(key):
            return Owner.POP
        if self.leases.holder(key) is not None:
            return Owner.LEASE
        return Owner.SELF if self._is_self_assigned(key) else Owner.NOBODY

    def may_commit(self, key: GroupQueue, claim: Claim) -> LeaseExpired | LeaseHeld | None:
        """None, or why this claim does not allow moving the group's offset on this queue."""
        owner = self.owner(key)
        if claim.owner is Owner.LEASE:
            is_current = self.leases.is_current(key, claim.lease_epoch)
            return None if is_current else lease_expired(key, claim.lease_epoch)
        if claim.owner is Owner.SELF:
            # Not after an unclean stop either: members with leases then come second.
            is_free = owner is not Owner.POP and not self.leases.is_claimed(key)
            return None if is_free else self._held(key)
        if claim.owner is owner:
            return None
        if claim.owner is Owner.POP:
            return LeaseExpired(f"POP no longer holds {_name(key)}: receive its messages again")
        return self._held(key)

    def _held(self, key: GroupQueue) -> LeaseHeld:
        return LeaseHeld(f"{self._owner_name(key)} holds {_name(key)}; only it may commit there")

    def wanted_by_self(self, key: GroupQueue) -> None:
        """A member of a group that assigns its queues itself wants to read this one.

        Raises:
            LeaseHeld: POP or a member with a lease has it, or may believe so.
        """
        refusal = self.may_commit(key, SELFS)
        if refusal is not None:
            if self._is_popped(key):
                self._on_popped_wanted(key)
            raise refusal

    # ---------------------------------------------------------------------- POP

    def check_unclaimed(self, key: GroupQueue) -> None:
        """Check that POP may start consuming the queue in this turn.

        Raises:
            LeaseHeld: a member holds it, waits for it, or may believe that it still holds it; or
                the group assigns it itself.
        """
        if self._is_self_assigned(key):
            raise _assigned_itself(key)
        if not self.leases.is_unclaimed(key):
            raise LeaseHeld(
                f"members of the group consume {_name(key)} under leases; POP gets it once none of "
                "them holds or requests it"
            )

    # ---------------------------------------------------------------------- a member's requests

    def resume(
        self,
        member: Member,
        presented: Iterable[tuple[GroupQueue, int]],
        holder: LeaseHolder,
        believes_until_s: float | None,
    ) -> list[Lease]:
        """A member has opened a stream; returns the presented leases that it still holds. For
        `believes_until_s` see `QueueLeases.resume`."""
        self._holders[member.name] = holder
        shown = () if member.broadcasting else presented
        confirmed, ended, granted = self.leases.resume(
            *member.name,
            [
                (key, epoch)
                for key, epoch in shown
                if not (self._is_popped(key) or self._is_self_assigned(key))
            ],
            believes_until_s,
        )
        self._announce(ended, granted, "its member has joined again and did not show this lease")
        return confirmed

    def acquire(self, member: Member, key: GroupQueue, now_s: float) -> None:
        """Ask for a queue; the holder is told when it is granted.

        Raises:
            UnknownMember: the session is over.
            InvalidArgument: broadcasting members take no leases; a queue id below 0.
            Busy: the member asks for more queues than any client can need.
            LeaseHeld: POP consumes the queue, or the group assigns it itself.
        """
        self._members.alive_member(*member.name, member.instance, now_s)
        if member.broadcasting:
            raise InvalidArgument("a broadcasting member reads every queue and takes no leases")
        if key.queue_id < 0:
            raise InvalidArgument(f"queue id {key.queue_id} is negative; use 0 or more")
        if self.leases.wish_count(*member.name) >= QUEUES_PER_MEMBER_MAX:
            raise Busy(
                f"{member.client_id!r} holds or awaits {QUEUES_PER_MEMBER_MAX} queues already; "
                "release some of them first"
            )
        if self._is_popped(key):
            self._on_popped_wanted(key)
            raise LeaseHeld(
                f"POP consumes {_name(key)}: consume with POP, or stop the group's clients that "
                "use it; the queue is free once they are gone and no message is in flight"
            )
        if self._is_self_assigned(key):
            raise _assigned_itself(key)
        lease = self.leases.acquire(key, member.client_id)
        if lease is not None:
            self._announce((), (lease,), "")

    def release(self, member: Member, key: GroupQueue, epoch: int) -> None:
        """Give a queue back, or withdraw the request for it. An old epoch has no effect."""
        ended, granted = self.leases.release(key, member.client_id, epoch)
        if ended is not None:
            self._on_lease_ended(ended)
        self._announce((), granted, "")

    def detach(self, member: Member) -> None:
        """Its stream has ended: the member keeps its leases until its deadline, but its pending
        requests are dropped, because it could not be told of a grant."""
        self._holders.pop(member.name, None)
        self.leases.forget_wishes(*member.name)

    # ---------------------------------------------------------------------- others' decisions

    def end(self, member: Member, reason: str) -> None:
        """The member is gone, and with it its leases. The holder is told, unless it left itself."""
        ended, granted = self.leases.drop_member(*member.name)
        self._announce(ended, granted, reason)
        self._holders.pop(member.name, None)

    def close_group(self, group: str) -> None:
        """End all leases of a group whose members are told to stop. Nobody gets such a queue before
        its former holder has had time to notice."""
        believes_until_s = {}
        for member in self._members.members(group):
            believes_until_s[member.client_id] = member.deadline_s
            self.detach(member)
        for lease in self.leases.held(group):
            self.leases.revoke(lease.key, believes_until_s[lease.client_id])
            self._on_lease_ended(lease)

    def revoke(self, key: GroupQueue, reason: str = RESET) -> None:
        """Take a queue from the member that holds it, which is told at once."""
        lease = self.leases.holder(key)
        if lease is None:
            return
        member = self._members.get(key.group, lease.client_id)
        assert member is not None, "every holder of a lease is a member"
        self.leases.revoke(key, member.deadline_s)
        self._announce((lease,), (), reason)

    def revoke_topic(self, topic: str, reason: str) -> None:
        """Take all queues of a topic from their holders."""
        for lease in self.leases.all_held():
            if lease.key.topic == topic:
                self.revoke(lease.key, reason)

    def expire(self, now_s: float) -> None:
        """Former holders whose time is up no longer block; ends the grace after an unclean stop."""
        self._announce((), self.leases.end_blocks(now_s), "")
        grace_end_s = self.leases.grace_end_s
        if grace_end_s is not None and now_s >= grace_end_s:
            self._announce((), self.leases.end_grace(), "")

    def clear(self) -> None:
        """The run is over: nothing is owned here."""
        self.leases.clear()

    # ---------------------------------------------------------------------- inside

    def _owner_name(self, key: GroupQueue) -> str:
        if self._is_popped(key):
            return "POP"
        lease = self.leases.holder(key)
        if lease is not None:
            return repr(lease.client_id)
        return "the group's remoting clients" if self._is_self_assigned(key) else "a former member"

    def _announce(self, ended: Sequence[Lease], granted: Sequence[Lease], reason: str) -> None:
        """Stop the old holders before the new ones are told."""
        for lease in ended:
            self._on_lease_ended(lease)
            holder = self._holders.get((lease.key.group, lease.client_id))
            if holder is not None:
                holder.on_revoked(lease, reason)
        for lease in granted:
            holder = self._holders.get((lease.key.group, lease.client_id))
            if holder is not None:
                holder.on_granted(lease)


def lease_expired(key: GroupQueue, epoch: int) -> LeaseExpired:
    """The error for a pull or a commit under an epoch that is not current."""
    return LeaseExpired(
        f"lease {epoch} on queue {key.queue_id} of topic {key.topic} is not the current one of "
        f"group {key.group}: acquire the queue again"
    )


def _name(key: GroupQueue) -> str:
    return f"queue {key.queue_id} of topic {key.topic} for group {key.group}"


def _assigned_itself(key: GroupQueue) -> LeaseHeld:
    return LeaseHeld(
        f"remoting clients consume {_name(key)} and divide its queues among themselves: stop them, "
        "or use the same kind of client in the whole group"
    )
