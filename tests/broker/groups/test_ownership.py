"""A queue of a group has one owner: a member under a lease, POP, or nobody."""

from __future__ import annotations

import pytest

from aerobee.broker.groups.members import Member, Members, Subscription
from aerobee.broker.groups.ownership import SELFS, Claim, Owner, Ownership
from aerobee.broker.groups.queue_leases import COUNTER_BITS, GroupQueue, Lease, QueueLeases
from aerobee.runtime.errors import LeaseExpired, LeaseHeld

KEY = GroupQueue("g", "t", 0)
OTHER = GroupQueue("g", "t", 1)
POP = Claim(Owner.POP)


class Holder:
    """Notes the lease that it was granted."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []

    def on_granted(self, lease: Lease) -> None:
        self.leases.append(lease)

    def on_revoked(self, lease: Lease, reason: str) -> None:
        self.leases.remove(lease)


class Scene:
    """Members a and b of one group, until second 10."""

    def __init__(self, *, run: int = 1, grace_end_s: float | None = None) -> None:
        self.members = Members()
        self.popped: set[GroupQueue] = set()
        self.ownership = Ownership(
            self.members,
            QueueLeases(run_number=run, grace_end_s=grace_end_s),
            on_lease_ended=lambda lease: None,
        )
        self.ownership.exclude_popped(self.popped.__contains__)
        self.holders: dict[str, Holder] = {}
        for name in ("a", "b"):
            self.join(name)

    def pop(self, key: GroupQueue) -> None:
        self.ownership.check_unclaimed(key)
        self.popped.add(key)

    def member(self, name: str) -> Member:
        return Member("g", name, "1", (Subscription("t"),), False, 10.0, 0.0)

    def join(self, name: str, *shown: tuple[GroupQueue, int]) -> list[Lease]:
        self.members.join(self.member(name))
        self.holders[name] = Holder()
        return self.ownership.resume(self.member(name), shown, self.holders[name], None)

    def acquire(self, name: str) -> None:
        self.ownership.acquire(self.member(name), KEY, 1.0)

    def lease(self, name: str) -> Lease:
        (lease,) = self.holders[name].leases
        return lease

    def refusals(self) -> dict[str, type[Exception] | None]:
        """Of each claim on the queue, what becomes of a commit with it."""
        held = self.ownership.leases.holder(KEY)
        claims = {
            "none": Claim.under(0),
            "pop": POP,
            "current": Claim.under(1 if held is None else held.epoch),
            "other": Claim.under(2 if held is None else held.epoch + 1),
        }
        found = {name: self.ownership.may_commit(KEY, each) for name, each in claims.items()}
        return {name: None if each is None else type(each) for name, each in found.items()}


def test_only_the_owner_may_commit() -> None:
    scene = Scene()
    assert scene.ownership.owner(KEY) is Owner.NOBODY
    expired, held = LeaseExpired, LeaseHeld
    assert scene.refusals() == {"none": None, "pop": expired, "current": expired, "other": expired}
    scene.acquire("a")
    assert scene.ownership.owner(KEY) is Owner.LEASE
    assert scene.refusals() == {"none": held, "pop": expired, "current": None, "other": expired}
    lease = scene.lease("a")
    scene.ownership.release(scene.member("a"), KEY, lease.epoch)
    scene.pop(KEY)
    assert scene.ownership.owner(KEY) is Owner.POP
    assert scene.refusals() == {"none": held, "pop": None, "current": expired, "other": expired}
    assert scene.ownership.owner(OTHER) is Owner.NOBODY


def test_a_member_gets_no_lease_on_a_queue_that_pop_has() -> None:
    scene = Scene()
    scene.pop(KEY)
    with pytest.raises(LeaseHeld, match="POP consumes queue 0"):
        scene.acquire("a")
    assert scene.ownership.leases.wish_count("g", "a") == 0
    scene.popped.discard(KEY)
    scene.acquire("a")
    assert scene.lease("a").key == KEY


def test_a_lease_of_an_earlier_run_is_not_taken_up_again_once_pop_has_the_queue() -> None:
    epoch = (1 << COUNTER_BITS) + 1
    scene = Scene(run=2, grace_end_s=10.0)
    with pytest.raises(LeaseHeld):
        scene.pop(KEY)  # its holder may be on its way back
    scene.ownership.expire(10.0)
    scene.pop(KEY)
    assert scene.join("a", (KEY, epoch)) == []
    assert scene.ownership.owner(KEY) is Owner.POP


@pytest.mark.parametrize("believes", ["holds it", "waits for it", "has not heard that it lost it"])
def test_pop_gets_no_queue_while_a_member(believes: str) -> None:
    scene = Scene()
    scene.acquire("a")
    scene.acquire("b")
    if believes == "waits for it":
        scene.ownership.release(scene.member("b"), KEY, 0)
        scene.ownership.leases.stop_granting()
        scene.acquire("b")
        scene.ownership.release(scene.member("a"), KEY, scene.lease("a").epoch)
    elif believes == "has not heard that it lost it":
        scene.ownership.release(scene.member("b"), KEY, 0)
        scene.ownership.revoke(KEY, "reset")
    with pytest.raises(LeaseHeld, match="members of the group"):
        scene.pop(KEY)
    if believes == "has not heard that it lost it":
        scene.ownership.expire(10.0)
        scene.pop(KEY)
        assert scene.ownership.owner(KEY) is Owner.POP


def test_a_group_that_assigns_its_queues_itself_shares_them_with_no_other_kind() -> None:
    scene = Scene()
    own: set[GroupQueue] = {KEY}
    scene.ownership.exclude_self_assigned(own.__contains__)
    assert scene.ownership.owner(KEY) is Owner.SELF
    assert scene.ownership.may_commit(KEY, SELFS) is None
    assert scene.refusals()["none"] is LeaseHeld
    with pytest.raises(LeaseHeld, match="remoting clients"):
        scene.acquire("a")
    with pytest.raises(LeaseHeld, match="remoting clients"):
        scene.pop(KEY)
    own.clear()
    assert scene.ownership.may_commit(KEY, SELFS) is None  # of one that has just left
    scene.acquire("a")
    own.add(KEY)
    assert scene.ownership.owner(KEY) is Owner.LEASE
    with pytest.raises(LeaseHeld, match="'a' holds"):
        scene.ownership.wanted_by_self(KEY)
    scene.ownership.release(scene.member("a"), KEY, scene.lease("a").epoch)
    scene.ownership.wanted_by_self(KEY)


def test_readers_that_assign_themselves_a_queue_of_pop_ask_for_it() -> None:
    scene = Scene()
    asked: list[GroupQueue] = []
    scene.ownership.exclude_popped(scene.popped.__contains__, asked.append)
    scene.pop(KEY)
    scene.ownership.exclude_self_assigned({KEY}.__contains__)
    assert scene.ownership.owner(KEY) is Owner.POP
    with pytest.raises(LeaseHeld, match="POP holds"):
        scene.ownership.wanted_by_self(KEY)
    assert asked == [KEY]


def test_a_lease_of_an_earlier_run_is_not_taken_up_again_once_the_group_assigns_itself() -> None:
    epoch = (1 << COUNTER_BITS) + 1
    scene = Scene(run=2, grace_end_s=10.0)
    scene.ownership.exclude_self_assigned({KEY}.__contains__)
    scene.ownership.wanted_by_self(KEY)  # nobody is known to have it
    assert scene.join("a", (KEY, epoch)) == []


def test_a_run_that_ends_takes_every_lease_with_it() -> None:
    scene = Scene()
    scene.acquire("a")
    scene.ownership.clear()
    assert scene.ownership.owner(KEY) is Owner.NOBODY
