"""Consumer groups: sessions, duplicates, expiry, generations."""

from __future__ import annotations

import pytest

from aerobee.broker.groups.members import Member, Members, Subscription
from aerobee.runtime.errors import DuplicateClient, UnknownMember


def member(
    client_id: str,
    *,
    instance: str = "1",
    now_s: float = 0.0,
    group: str = "g",
    topics: tuple[str, ...] = ("t",),
    broadcasting: bool = False,
) -> Member:
    return Member(
        group=group,
        client_id=client_id,
        instance=instance,
        subscriptions=tuple(Subscription(topic) for topic in topics),
        broadcasting=broadcasting,
        session_timeout_s=10.0,
        last_heartbeat_s=now_s,
    )


def test_members_are_listed_by_client_id_and_each_join_raises_the_generation() -> None:
    groups = Members()
    assert groups.join(member("b"))
    assert groups.join(member("a"))
    assert [one.client_id for one in groups.members("g")] == ["a", "b"]
    assert groups.generation("g") == 2
    assert groups.names() == ["g"]


def test_the_same_instance_may_join_again_without_a_change_of_the_view() -> None:
    groups = Members()
    groups.join(member("a"))
    assert not groups.join(member("a", now_s=5.0))
    assert groups.generation("g") == 1
    assert groups.join(member("a", now_s=6.0, topics=("t", "u")))


def test_a_second_live_member_with_the_same_client_id_is_refused() -> None:
    groups = Members()
    groups.join(member("a", instance="1"))
    with pytest.raises(DuplicateClient, match="'a' is in use"):
        groups.join(member("a", instance="2", now_s=9.9))
    # Another group does not matter, and neither does a session that has ended.
    groups.join(member("a", instance="2", group="other"))
    groups.join(member("a", instance="2", now_s=10.0))


def test_a_session_ends_exactly_its_timeout_after_the_last_heartbeat() -> None:
    groups = Members()
    groups.join(member("a"))
    groups.heartbeat("g", "a", "1", 4.0)
    assert groups.next_expiry_s() == 14.0
    assert groups.expire(13.999) == []
    assert [one.client_id for one in groups.expire(14.0)] == ["a"]
    assert groups.names() == []
    assert groups.next_expiry_s() is None
    assert groups.generation("g") == 2


def test_a_heartbeat_after_the_deadline_does_not_bring_a_session_back() -> None:
    groups = Members()
    groups.join(member("a"))
    with pytest.raises(UnknownMember, match="join again"):
        groups.heartbeat("g", "a", "1", 10.0)
    with pytest.raises(UnknownMember):
        groups.heartbeat("g", "a", "other instance", 1.0)
    with pytest.raises(UnknownMember):
        groups.heartbeat("nowhere", "a", "1", 1.0)


def test_new_subscriptions_change_the_view_and_equal_ones_do_not() -> None:
    groups = Members()
    groups.join(member("a"))
    assert not groups.heartbeat("g", "a", "1", 1.0, (Subscription("t"),))
    assert groups.heartbeat("g", "a", "1", 1.0, (Subscription("u"),))
    assert groups.generation("g") == 2


def test_broadcasting_members_are_members_but_not_part_of_the_view() -> None:
    groups = Members()
    assert not groups.join(member("a", broadcasting=True))
    assert groups.generation("g") == 0
    assert groups.join(member("b"))
    assert [one.client_id for one in groups.clustering_members("g")] == ["b"]
    assert groups.member_count == 2
    assert groups.leave("g", "a", "1") is not None
    assert groups.generation("g") == 1


def test_only_the_present_instance_can_leave() -> None:
    groups = Members()
    groups.join(member("a"))
    assert groups.leave("g", "a", "2") is None
    assert groups.leave("g", "a", "1") is not None
    assert groups.leave("g", "a", "1") is None
