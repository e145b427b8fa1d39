"""Joining, leasing and leaving, as the sessions of members are told of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aerobee.broker.groups.group_coordinator import GroupCoordinator
from aerobee.broker.groups.members import Member, Members, Subscription
from aerobee.broker.groups.membership import GroupView
from aerobee.broker.groups.ownership import Ownership
from aerobee.broker.groups.queue_leases import COUNTER_BITS, GroupQueue, Lease, QueueLeases
from aerobee.runtime.errors import AerobeeError, DuplicateClient, InvalidArgument, UnknownMember


class Told:
    """A session that notes what it is told, as short words."""

    def __init__(self, journal: list[str], name: str) -> None:
        self.journal = journal
        self.name = name
        self.leases: dict[int, Lease] = {}

    def on_members(self, view: GroupView) -> None:
        members = ",".join(member.client_id for member in view.members)
        self.journal.append(f"{self.name} sees {members} @{view.generation}")

    def on_granted(self, lease: Lease) -> None:
        self.leases[lease.key.queue_id] = lease
        self.journal.append(f"{self.name} gets {lease.key.queue_id}")

    def on_revoked(self, lease: Lease, reason: str) -> None:
        assert reason
        self.journal.append(f"{self.name} loses {lease.key.queue_id}")

    def on_ended(self, error: AerobeeError) -> None:
        self.journal.append(f"{self.name} ends: {type(error).__name__}")


class Scene:
    """A coordinator, its members, and everything that anybody was told, in order."""

    def __init__(self, *, run: int = 1, grace_end_s: float | None = None) -> None:
        self.journal: list[str] = []
        self.pushes = 0
        self.leases = QueueLeases(run_number=run, grace_end_s=grace_end_s)
        members = Members()
        self.ownership = Ownership(
            members,
            self.leases,
            on_lease_ended=lambda lease: self.journal.append(f"pulls of {lease.client_id} end"),
        )
        self.coordinator = GroupCoordinator(members, self.ownership, call_soon=self.count_push)
        self.membership = self.coordinator.membership
        self.members: dict[str, Member] = {}
        self.sessions: dict[str, Told] = {}

    def count_push(self, push: Callable[[], None]) -> None:
        self.pushes += 1

    def join(
        self,
        name: str,
        *,
        now_s: float = 0.0,
        instance: str = "1",
        held: list[Lease] | None = None,
        broadcasting: bool = False,
        told_as: str | None = None,
    ) -> list[Lease]:
        member = Member("g", name, instance, (Subscription("t"),), broadcasting, 10.0, now_s)
        session = Told(self.journal, told_as or name)
        presented = [(lease.key, lease.epoch) for lease in held or []]
        confirmed = self.coordinator.join(member, presented, session)
        self.members[name], self.sessions[name] = member, session
        return confirmed

    def acquire(self, name: str, *queue_ids: int, now_s: float = 0.0) -> None:
        for queue_id in queue_ids:
            self.coordinator.acquire(self.members[name], GroupQueue("g", "t", queue_id), now_s)

    def told(self) -> list[str]:
        """What was told since the last call."""
        self.membership.push_views()
        told, self.journal[:] = list(self.journal), []
        return told


def test_a_change_of_membership_is_told_to_all_once_per_turn() -> None:
    scene = Scene()
    scene.join("a")
    scene.join("b")
    assert scene.pushes == 1
    assert scene.told() == ["a sees a,b @2", "b sees a,b @2"]
    scene.coordinator.leave(scene.members["a"])
    assert scene.told() == ["b sees b @3"]


def test_a_released_queue_is_taken_from_the_pulls_before_the_next_one_hears_of_it() -> None:
    scene = Scene()
    scene.join("a")
    scene.join("b")
    scene.told()
    scene.acquire("a", 0, 1)
    scene.acquire("b", 0)
    assert scene.told() == ["a gets 0", "a gets 1"]
    lease = scene.sessions["a"].leases[0]
    scene.ownership.release(scene.members["a"], lease.key, lease.epoch)
    assert scene.told() == ["pulls of a end", "b gets 0"]


def test_a_member_that_stops_beating_loses_its_queues_at_its_deadline_and_not_before() -> None:
    scene = Scene()
    scene.join("a")
    scene.join("b", now_s=5.0)
    scene.acquire("a", 0, now_s=5.0)
    scene.acquire("b", 0, now_s=5.0)
    scene.told()
    scene.coordinator.expire(9.99)
    assert scene.told() == []
    assert scene.coordinator.next_expiry_s() == 10.0
    scene.coordinator.expire(10.0)
    assert scene.told() == [
        "pulls of a end",
        "a loses 0",
        "b gets 0",
        "a ends: UnknownMember",
        "b sees b @3",
    ]
    with pytest.raises(UnknownMember):
        scene.membership.heartbeat(scene.members["a"], 10.0, None)
    with pytest.raises(UnknownMember):
        scene.acquire("a", 3, now_s=10.0)


def test_heartbeats_keep_the_leases() -> None:
    scene = Scene()
    scene.join("a")
    scene.acquire("a", 0)
    for now_s in (9.0, 18.0, 27.0):
        scene.membership.heartbeat(scene.members["a"], now_s, None)
        scene.coordinator.expire(now_s)
    lease = scene.sessions["a"].leases[0]
    assert scene.leases.is_current(lease.key, lease.epoch)


def test_a_second_process_with_the_same_client_id_waits_for_the_end_of_the_first() -> None:
    scene = Scene()
    scene.join("a")
    scene.acquire("a", 0)
    scene.told()
    with pytest.raises(DuplicateClient):
        scene.join("a", instance="2", now_s=9.0, told_as="a2")
    assert scene.told() == []
    scene.join("a", instance="2", now_s=10.0, told_as="a2")
    assert scene.told() == [
        "pulls of a end",
        "a loses 0",
        "a ends: UnknownMember",
        "a2 sees a @3",
    ]


def test_a_reconnecting_member_keeps_its_leases_and_its_old_stream_ends() -> None:
    scene = Scene()
    scene.join("a")
    scene.acquire("a", 0, 1)
    scene.told()
    leases = scene.sessions["a"].leases
    assert scene.join("a", now_s=3.0, held=[leases[0]], told_as="a again") == [leases[0]]
    # Queue 1 was not shown: the member does not know of it, so it is free.
    assert scene.told() == [
        "a ends: UnknownMember",
        "a again sees a @1",
        "pulls of a end",
        "a again loses 1",
    ]
    assert scene.leases.holder(leases[1].key) is None


def test_a_queue_is_not_kept_for_a_member_whose_stream_is_gone() -> None:
    scene = Scene()
    for name in ("a", "b", "c"):
        scene.join(name)
    scene.acquire("a", 0)
    scene.acquire("b", 0)
    scene.acquire("c", 0)
    scene.told()
    scene.coordinator.detach(scene.members["b"], scene.sessions["b"])
    scene.coordinator.leave(scene.members["a"])
    assert "c gets 0" in scene.told()


def test_the_end_of_a_superseded_stream_does_not_touch_the_new_one() -> None:
    scene = Scene()
    scene.join("a")
    old = scene.sessions["a"]
    scene.join("a", told_as="a again")
    scene.told()
    scene.coordinator.detach(scene.members["a"], old)
    scene.join("b")
    assert "a again sees a,b @2" in scene.told()


def test_broadcasting_members_take_no_leases_and_are_not_seen() -> None:
    scene = Scene()
    scene.join("a", broadcasting=True)
    scene.join("b")
    assert scene.told()[-1] == "b sees b @1"
    with pytest.raises(InvalidArgument, match="broadcasting"):
        scene.acquire("a", 0)


def test_a_reset_takes_the_queue_from_its_holder() -> None:
    scene = Scene()
    scene.join("a")
    scene.acquire("a", 0)
    scene.told()
    old = scene.sessions["a"].leases[0]
    scene.ownership.revoke(old.key, "reset")
    assert scene.told() == ["pulls of a end", "a loses 0"]
    scene.acquire("a", 0)
    assert scene.sessions["a"].leases[0].epoch > old.epoch


def test_a_queue_that_was_taken_waits_until_its_holders_session_could_have_ended() -> None:
    """The holder may not have heard of it, and then works on until it misses its heartbeats."""
    scene = Scene()
    scene.join("a")
    scene.join("b")
    scene.acquire("a", 0)
    scene.acquire("b", 0)
    for name in ("a", "b"):
        scene.membership.heartbeat(scene.members[name], 4.0, None)
    scene.told()
    scene.ownership.revoke(scene.sessions["a"].leases[0].key, "reset")
    assert scene.told() == ["pulls of a end", "a loses 0"]
    for name in ("a", "b"):
        scene.membership.heartbeat(scene.members[name], 12.0, None)
    assert scene.coordinator.next_expiry_s() == 14.0
    scene.coordinator.expire(13.9)
    assert scene.told() == []
    scene.coordinator.expire(14.0)
    assert scene.told() == ["b gets 0"]


def test_after_an_unclean_stop_others_wait_for_the_end_of_the_longest_session() -> None:
    scene = Scene(run=2, grace_end_s=10.0)
    old = Lease(GroupQueue("g", "t", 0), "a", (1 << COUNTER_BITS) + 9)
    scene.join("b")
    scene.acquire("b", 0, 1)
    assert scene.join("a", now_s=1.0, held=[old]) == [old]
    scene.membership.heartbeat(scene.members["a"], 9.0, None)
    scene.membership.heartbeat(scene.members["b"], 9.0, None)
    scene.told()
    scene.coordinator.expire(9.9)
    assert scene.told() == []
    scene.coordinator.expire(10.0)
    assert scene.told() == ["b gets 1"]
    assert scene.leases.is_current(old.key, old.epoch)


def test_views_held_back_after_an_unclean_stop_are_told_together() -> None:
    scene = Scene(run=2, grace_end_s=10.0)
    scene.membership.hold_views_back()
    scene.join("a")
    scene.join("b", now_s=1.0)
    assert scene.told() == []
    scene.membership.release_views()
    assert scene.told() == ["a sees a,b @2", "b sees a,b @2"]
