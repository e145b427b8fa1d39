"""Coordinates members and their queues: a change of one has consequences for the other.

Owns: the order of the steps that concern both, and their timing: a master that may not act ends
nothing, and grants everybody a full session once it may act again. Members (membership) and owners
of queues (ownership) know nothing of each other's streams. Synchronous, on the loop; time is passed
in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from aerobee.broker.groups.members import Member, Members
from aerobee.broker.groups.membership import Membership, MemberStream
from aerobee.broker.groups.ownership import LeaseHolder, Ownership
from aerobee.broker.groups.queue_leases import GroupQueue, Lease


class LeasingStream(MemberStream, LeaseHolder, Protocol):
    """The stream of a member that takes leases."""


class GroupCoordinator:
    """Members and their queues, for all groups of this broker."""

    def __init__(
        self,
        members: Members,
        ownership: Ownership,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        is_acting: Callable[[], bool] = lambda: True,
    ) -> None:
        """`call_soon`: see `Membership`. `is_acting`: whether this broker may act on queues now."""
        self.members = members
        self.ownership = ownership
        self.membership = Membership(members, on_left=ownership.end, call_soon=call_soon)
        self.is_acting = is_acting
        self._has_lapsed = False

    def __repr__(self) -> str:
        return f"GroupCoordinator({self.membership!r}, {self.ownership!r})"

    def join(
        self, member: Member, presented: Sequence[tuple[GroupQueue, int]], stream: LeasingStream
    ) -> list[Lease]:
        """A member opens a stream; returns the presented leases that it still holds.

        Raises:
            DuplicateClient, Busy: see `Membership.join`.
        """
        self.expire(member.last_heartbeat_s)
        present = self.members.get(*member.name)
        believes_until_s = None if present is None else present.deadline_s
        self.membership.join(member, stream)
        return self.ownership.resume(member, presented, stream, believes_until_s)

    def acquire(self, member: Member, key: GroupQueue, now_s: float) -> None:
        """Ask for a queue. Raises as `Ownership.acquire`."""
        self.expire(now_s)
        self.ownership.acquire(member, key, now_s)

    def leave(self, member: Member) -> None:
        """End a session and its leases at once."""
        left = self.membership.leave(member)
        if left is not None:
            self.ownership.detach(left)
            self.ownership.end(left, "the member has left")

    def detach(self, member: Member, stream: LeasingStream) -> None:
        """A stream has ended without a Leave."""
        if self.membership.detach(member, stream):
            self.ownership.detach(member)

    def close_group(self, group: str) -> int:
        """End the sessions of all members of a group, and their leases; returns how many there
        were."""
        count = len(self.members.members(group))
        self.ownership.close_group(group)
        self.membership.close_group(group)
        return count

    def begin_run(self, views_held_back_s: float) -> None:
        """This broker acts as master from now on: its time as a slave was no lapse of a master,
        and prolongs no session that was taken over. Views are held back for so many seconds: see
        `Membership`."""
        self._has_lapsed = False
        if views_held_back_s > 0:
            self.membership.hold_views_back()
            loop = asyncio.get_running_loop()
            loop.call_later(views_held_back_s, self.membership.release_views)

    def expire(self, now_s: float) -> None:
        """End expired sessions, and the grace period after an unclean stop. A master that may not
        act changes nothing: by now another master may be granting the queues."""
        if not self.is_acting():
            self._has_lapsed = True
            return
        if self._has_lapsed:
            # Members could not renew their sessions meanwhile: they get a full session to come back
            # and present their leases before the queues go to others.
            self._has_lapsed = False
            self.members.begin_anew(now_s)
            self.ownership.leases.prolong(now_s + self.members.session_timeout_max_s)
        self.membership.expire(now_s)
        self.ownership.expire(now_s)

    def is_current(self, key: GroupQueue, epoch: int, now_s: float) -> bool:
        """Whether a pull under this lease may continue."""
        self.expire(now_s)
        return self.ownership.leases.is_current(key, epoch)

    def next_expiry_s(self) -> float | None:
        """When `expire` may next have something to do."""
        leases = self.ownership.leases
        times = (self.members.next_expiry_s(), leases.grace_end_s, leases.next_block_end_s())
        return min((time_s for time_s in times if time_s is not None), default=None)
