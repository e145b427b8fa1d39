"""Who is in each group, as told to its members.

Owns: the streams of members, and what each is told of the others. It does not deal with queues: a
member may hold leases, pop, or read every queue. Synchronous, on the loop; time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from aerobee.broker.groups.members import Member, Members, Subscription
from aerobee.runtime.errors import AerobeeError, GroupDeleted, UnknownMember


@dataclass(frozen=True, slots=True)
class GroupView:
    """What clustering members see of their group."""

    members: tuple[Member, ...]
    generation: int


class MemberStream(Protocol):
    """What a member is told of its membership. None of these methods waits."""

    def on_members(self, view: GroupView) -> None: ...

    def on_ended(self, error: AerobeeError) -> None:
        """The session is over, or continues over another stream; this stream ends with `error`."""
        ...


class Membership:
    """Members and their streams, for all groups of this broker."""

    def __init__(
        self,
        members: Members,
        *,
        on_left: Callable[[Member, str], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`on_left` is called for each expired session, with the reason, before its stream ends and
        others see it gone. `call_soon` gets `push_views`, to be called in the loop's next turn."""
        self.members = members
        self._on_left = on_left
        self._call_soon = call_soon
        self._streams: dict[tuple[str, str], MemberStream] = {}
        self._changed: set[str] = set()
        self._holding_views_back = False

    def __repr__(self) -> str:
        return f"Membership({self.members!r})"

    def join(self, member: Member, stream: MemberStream) -> None:
        """A member opens a stream, which replaces any earlier one.

        Raises:
            DuplicateClient: another live instance has this client id.
            Busy: the group's view would not fit one message.
        """
        changed = self.members.join(member)
        superseded = self._streams.get(member.name)
        self._streams[member.name] = stream
        if superseded is not None:
            superseded.on_ended(UnknownMember("the same member has opened another stream"))
        if changed:
            self._note_change(member.group)
        elif not self._holding_views_back:
            stream.on_members(self.view(member.group))

    def heartbeat(
        self, member: Member, now_s: float, subscriptions: Sequence[Subscription] | None
    ) -> int:
        """Prolong a session; returns the group's generation.

        Raises:
            UnknownMember: the session is over.
        """
        if self.members.heartbeat(
            member.group, member.client_id, member.instance, now_s, subscriptions
        ):
            self._note_change(member.group)
        return self.members.generation(member.group)

    def leave(self, member: Member) -> Member | None:
        """End a session at once; returns it, None if it was over."""
        left = self.members.leave(member.group, member.client_id, member.instance)
        if left is not None:
            self._streams.pop(left.name, None)
            self._note_left(left)
        return left

    def detach(self, member: Member, stream: MemberStream) -> bool:
        """A stream has ended and the session continues; False if it has a newer stream."""
        if self._streams.get(member.name) is not stream:
            return False
        del self._streams[member.name]
        return True

    def close_group(self, group: str) -> None:
        """End the sessions of all members of a group that is being deleted."""
        for member in self.members.members(group):
            self.members.leave(group, member.client_id, member.instance)
            self._end(
                member,
                GroupDeleted(
                    f"group {group} is being deleted by an operator; joining again creates a new "
                    "group"
                ),
            )

    def expire(self, now_s: float) -> None:
        """End the sessions whose time is up."""
        for member in self.members.expire(now_s):
            self._on_left(member, "the session has expired: no heartbeat came in time")
            self._end(
                member,
                UnknownMember(
                    f"the session of {member.client_id!r} has expired: no heartbeat came for "
                    f"{member.session_timeout_s:g} s; join again"
                ),
            )
            self._note_left(member)

    # ---------------------------------------------------------------------- views

    def hold_views_back(self) -> None:
        """After an unclean stop: let the members come back before anyone gets a view; otherwise the
        first to return would see itself alone and ask for every queue."""
        self._holding_views_back = True

    def release_views(self) -> None:
        """End `hold_views_back` and send all views."""
        self._holding_views_back = False
        for group in self.members.names():
            self._note_change(group)

    def view(self, group: str) -> GroupView:
        members = self.members
        return GroupView(tuple(members.clustering_members(group)), members.generation(group))

    def push_views(self) -> None:
        """Tell the members of every group that changed since the last call."""
        changed, self._changed = self._changed, set()
        for group in sorted(changed):
            view = self.view(group)
            for member in self.members.members(group):
                stream = self._streams.get(member.name)
                if stream is not None:
                    stream.on_members(view)

    # ---------------------------------------------------------------------- inside

    def _end(self, member: Member, error: AerobeeError) -> None:
        stream = self._streams.pop(member.name, None)
        if stream is not None:
            stream.on_ended(error)

    def _note_left(self, member: Member) -> None:
        if not member.broadcasting:
            self._note_change(member.group)

    def _note_change(self, group: str) -> None:
        if self._holding_views_back:
            return
        if not self._changed:
            self._call_soon(self.push_views)
        self._changed.add(group)
